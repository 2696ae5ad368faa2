"""Counts the crashes at which each message was in hand, and sets aside what was in hand at two.

A row that cannot be read counts as none: then it takes two more crashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.ownership import set_aside
from shadowrelay.core.values import dataclass
from shadowrelay.database import meta, records, sums
from shadowrelay.database.ledger import SQL, SqlLedger
from shadowrelay.database.sums import SqlRow

COUNTED = "crash_counted"
"""The meta key of the last note that was counted."""

KEPT = timedelta(days=30)
"""How long a count is kept of a message that has not been in hand at a crash since."""


@dataclass(frozen=True, slots=True)
class Crash:
    """``note`` tells this crash from others; ``why`` is a line about it."""

    note: str
    why: str
    at: datetime


def count(ledger: SqlLedger, crash: Crash, in_hand: Sequence[str]) -> list[MessageId]:
    """Count one crash more for each message in hand, and the same crash once. Returns what is set aside."""
    run, at = ledger.connection.execute, records.micros(crash.at)
    if meta.sound(run, COUNTED) == crash.note:
        return []
    run(SQL["put_meta"], (COUNTED, crash.note))
    run(SQL["expire_crashes"], (records.micros(crash.at - KEPT),))
    found = []
    for message_id in map(MessageId, in_hand):
        before = crashes(ledger, message_id)
        why = (*before, f"{crash.at:%Y-%m-%dT%H:%M:%SZ} {crash.why}")
        run(SQL["put_crashes"], (message_id, len(why), "\n".join(why), at))
        copy = ledger.copy(message_id)
        if copy is not None and (decision := set_aside.poisonous(copy, why, crash.at)) is not None:
            ledger.apply(decision)
            found.append(message_id)
    return found


def crashes(ledger: SqlLedger, message_id: MessageId) -> tuple[str, ...]:
    """When this node crashed with the message in hand, and why: one line each, the first one first."""
    row = ledger.connection.execute(SQL["crashes"], (message_id,)).fetchone()
    return (row and sums.sound(_whys, row)) or ()


def _whys(row: SqlRow) -> tuple[str, ...]:
    return tuple(row[2].split("\n"))
