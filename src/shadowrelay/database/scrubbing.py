"""Reads rows and derived columns from the disk for a scrub, past what memory holds."""

from __future__ import annotations

import contextlib
import os
from datetime import datetime
from pathlib import Path

from shadowrelay.core.decisions import Content
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.members.damage import Counted
from shadowrelay.core.members.pace import Amount
from shadowrelay.core.messages import Copy, Stage
from shadowrelay.core.values import dataclass
from shadowrelay.database import meta, records
from shadowrelay.database.content import stored
from shadowrelay.database.ledger import SQL, SqlLedger

FIRST = MessageId("")
"""The place before every message."""

_PLACE, _COMPLETE = "scrub_place", "scrub_complete"


@dataclass(frozen=True, slots=True)
class Seen:
    """One message as the disk has it. ``copy``: None if its rows differ from their sums, or it is gone.
    ``mended``: a derived column was wrong.
    """

    copy: Copy | None
    content: Content
    mended: bool = False


@dataclass(frozen=True, slots=True)
class ScrubPlace:
    """How far a scrub has come: ``behind`` a message. ``complete_at``: when the last complete one ended."""

    behind: MessageId = FIRST
    complete_at: datetime | None = None


def forget_cached(ledger: SqlLedger) -> None:
    """Empty the cache of SQLite. Call ``forget_file`` before it: then the next read comes from the disk."""
    ledger.connection.execute("PRAGMA shrink_memory")


def forget_file(file: Path) -> None:
    """Drop the database from the kernel's page cache: half a second for two gigabytes, so in a thread."""
    files = {str(file), f"{file}-wal"}
    for entry in Path("/proc/self/fd").iterdir():
        # Use SQLite's own handles: closing another handle of the same file would end its locks (POSIX).
        with contextlib.suppress(OSError):
            if str(entry.readlink()) in files:
                os.posix_fadvise(int(entry.name), 0, 0, os.POSIX_FADV_DONTNEED)


def page(ledger: SqlLedger, behind: MessageId, most: int) -> list[tuple[MessageId, Amount]]:
    """Messages behind ``behind``, in any state, in the order of ids, with the size in their rows."""
    rows = ledger.connection.execute(SQL["everything"], (behind, most)).fetchall()
    return [(MessageId(row[0]), Amount(1, row[1] if isinstance(row[1], int) else 0)) for row in rows]


def reread(ledger: SqlLedger, message_id: MessageId) -> Seen:
    """Read one message again. Rows from a version before sums get them; derived columns are corrected."""
    before = ledger.damage[Counted.DERIVED]
    copy = ledger.read_again(message_id)
    if copy is None:
        return Seen(None, Content())
    wrong = ledger.derived_differ(copy)
    if wrong or ledger.has_old_rows:
        ledger.write_again(copy, derived=wrong)
    content = stored(ledger, message_id) or Content()
    mended = ledger.damage[Counted.DERIVED] > before
    return Seen(None if copy.stage is Stage.ARRIVING else copy, content, mended)


def place(ledger: SqlLedger) -> ScrubPlace:
    """The stored place of the scrub."""
    return ScrubPlace(MessageId(_meta(ledger, _PLACE)), _moment(_meta(ledger, _COMPLETE)))


def note(ledger: SqlLedger, place: ScrubPlace) -> None:
    """Store the place of the scrub."""
    put = ledger.connection.execute
    put(SQL["put_meta"], (_PLACE, place.behind))
    if place.complete_at is not None:
        put(SQL["put_meta"], (_COMPLETE, str(records.micros(place.complete_at))))


def complete(ledger: SqlLedger, now: datetime) -> ScrubPlace:
    """Note that a scrub read every message: no row without a sum is left."""
    ledger.no_old_rows()
    done = ScrubPlace(complete_at=now)
    note(ledger, done)
    return done


def _meta(ledger: SqlLedger, key: str) -> str:
    return meta.sound(ledger.connection.execute, key) or ""


def _moment(stamp: str) -> datetime | None:
    """The time in a stamp; None if it is unreadable, which only makes the scrub begin anew."""
    with contextlib.suppress(ValueError, OverflowError):
        return records.moment(int(stamp)) if stamp else None
    return None
