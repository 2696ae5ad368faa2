"""An operator forgets a message whose rows cannot be believed, and of which no member has a good copy."""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.members.damage import dropped
from shadowrelay.database.ledger import SqlLedger


def drop(ledger: SqlLedger, message_id: MessageId, now: datetime) -> bool:
    """Nobody is told: who its sender is stands in those rows. False if it is not set aside for that."""
    return ledger.apply(dropped(ledger, message_id, now))
