"""A snapshot of what this node holds, as LOAD rows of the tracking log.

Without it *lost* and *still queued* cannot be told apart from the logs alone.
"""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.decisions import Decision
from shadowrelay.core.tracking import Load, RowsDamaged, SnapshotEnd, Taken
from shadowrelay.database.ledger import SQL, SqlLedger

PAGE = 1000


def take_snapshot(ledger: SqlLedger, snapshot: str, now: datetime, taken: Taken) -> int:
    """Log every message in a queue or shadow queue, and then their count, in one transaction."""
    count, last = 0, ""
    while True:
        rows = ledger.connection.execute(SQL["page_in_transit"], (last, PAGE)).fetchall()
        for (message_id,) in rows:
            if copy := ledger.copy(message_id):
                load = Load(at=now, copy=copy, recipients=copy.unsettled, snapshot=snapshot)
                ledger.apply(Decision(None, (), (load,)))
                count += 1
            elif taken is Taken.STOP and (what := ledger.suspects.get(message_id)):
                # It is here, and cannot be listed: the stage that says so does not run any more.
                told = RowsDamaged(at=now, message_id=message_id, reason=what)
                ledger.apply(Decision(None, (), (told,)))
        if len(rows) < PAGE:
            break
        last = rows[-1][0]
    end = SnapshotEnd(at=now, snapshot=snapshot, count=count, taken=taken)
    ledger.apply(Decision(None, (), (end,)))
    return count
