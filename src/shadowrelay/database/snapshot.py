"""A snapshot of what this node holds, as LOAD rows of the tracking log.

Without it *lost* and *still queued* cannot be told apart from the logs alone. A long one is taken in parts,
while the node goes on: its closing row says that whatever is in transit at that moment was listed. So what
comes meanwhile with an id that was passed already is listed when it comes.
"""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.decisions import Decision
from shadowrelay.core.tracking import RowsDamaged, SnapshotEnd, Taken
from shadowrelay.database.ledger import SQL, SqlLedger
from shadowrelay.database.listing import Listing

PAGE = 1000


def list_part(ledger: SqlLedger, snapshot: str, now: datetime, taken: Taken, most: int = PAGE) -> bool:
    """Log up to ``most`` more messages in transit, and after the last one their count. Is that all?

    ``snapshot`` is the id of a new one, where none is being taken. One that a rollback interrupted is left
    without an end, and begun again.
    """
    listing = ledger.listing or Listing(snapshot, ledger.lineage.sequence, now)
    ledger.listing = listing
    rows = ledger.connection.execute(SQL["page_in_transit"], (listing.place, most)).fetchall()
    for (message_id,) in rows:
        if copy := ledger.copy(message_id):
            ledger.list_copy(copy, now)
        elif taken is Taken.STOP and (what := ledger.suspects.get(message_id)):
            # It is here, and cannot be listed: the stage that says so does not run any more.
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
    """All of it in one transaction."""
    while not list_part(ledger, snapshot, now, taken):
        pass
