"""Puts a message that was set aside back into the queue, for an operator."""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.decisions import DamagedRow
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.ownership import set_aside
from shadowrelay.database.ledger import SqlLedger

QUEUED = "it is in the queue again, and its age begins anew"
SOUGHT_AGAIN = (
    "it is damaged: a good copy is looked for again, here and at every member; "
    "it is set aside again if there is none"
)


def resume(ledger: SqlLedger, message_id: MessageId, now: datetime, operator: str = "") -> str | None:
    """Resume a message. Returns what was done, as a sentence; None if the message is not set aside."""
    found = ledger.apply(set_aside.resume(ledger, message_id, now, operator))
    if found is None:
        return None
    return SOUGHT_AGAIN if isinstance(found, DamagedRow) or found.damaged else QUEUED
