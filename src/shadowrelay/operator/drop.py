"""Drops, for an operator, a message with damaged rows of which no member has a good copy."""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.members.damage import dropped
from shadowrelay.database.ledger import SqlLedger


def drop(ledger: SqlLedger, message_id: MessageId, now: datetime, operator: str = "") -> bool:
    """Drop the message. Nobody is told: only the damaged rows name its sender.

    Returns False if the message is not set aside for damaged rows.
    """
    return ledger.apply(dropped(ledger, message_id, now, operator))
