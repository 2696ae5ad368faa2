"""Takes a snapshot of what this node holds, as LOAD rows of the tracking log.

Without it, logs alone cannot tell *lost* from *still queued*. A long snapshot is taken in parts, while the
node works: its last row says that every message in transit at that moment was listed. So a message that
comes in at an id that was passed already is listed when it comes.
"""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.decisions import Decision
from shadowrelay.core.tracking import RowsDamaged
from shadowrelay.core.tracking_row import SnapshotEnd, Taken
from shadowrelay.database.ledger import SQL, SqlLedger
from shadowrelay.database.listing import Listing

PAGE = 1000


def list_part(ledger: SqlLedger, snapshot: str, now: datetime, taken: Taken, most: int = PAGE) -> bool:
    """Log up to ``most`` more messages in transit, and after the last their count. Returns whether it ended.

    ``snapshot`` is the id of a new snapshot, if none is being taken. A snapshot that a rollback interrupted
    stays without an end, and a new one begins.
    """
    listing = ledger.listing or Listing(snapshot, ledger.lineage.sequence, now)
    ledger.listing = listing
    rows = ledger.connection.execute(SQL["page_in_transit"], (listing.place, most)).fetchall()
    for (message_id,) in rows:
        if copy := ledger.copy(message_id):
            ledger.list_copy(copy, now)
        elif taken is Taken.STOP and (what := ledger.suspects.get(message_id)):
            # It is here and cannot be listed; the stage that reports damage has stopped already.
            ledger.apply(Decision(None, (), (RowsDamaged(at=now, message_id=message_id, reason=what),)))
    if len(rows) == most:
        listing.place = rows[-1][0]
        return False
    ledger.listing = None
    end = SnapshotEnd(
        at=now,
        snapshot=listing.id,
        count=listing.count,
        among=ledger.lineage.sequence - listing.begun,
        taken=taken,
    )
    ledger.apply(Decision(None, (), (end,)))
    return True


def take_snapshot(ledger: SqlLedger, snapshot: str, now: datetime, taken: Taken) -> None:
    """Take a whole snapshot in one transaction."""
    while not list_part(ledger, snapshot, now, taken):
        pass
