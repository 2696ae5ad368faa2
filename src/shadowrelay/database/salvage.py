"""A database of which SQLite cannot read a page: what can be read of it goes on in a new file.

One bad page costs the messages that stand on it, which are on record as damaged then: a good copy of each is
looked for elsewhere. Set aside, the database would take every message with it whose other copy is on a bad
page of another node. Meta data, lineages and schema have to be whole.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.values import dataclass
from shadowrelay.database import opening, records
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queries import load, migrations

SQL = load("salvage.sql")

UNREAD = "its rows cannot be read"

_NEEDED = {"meta": "key", "incarnation": "number", "member": "name"}
_OF_MESSAGES = {"message": "id", "recipient": "message_id", "holder": "message_id", "content": "message_id"}
_OTHERS = {
    "outcome": "message_id",
    "tombstone": "message_id",
    "damaged": "message_id",
    "discard_event": "number",
    "outbox": "sequence",
}
"""By what the rows of each table are found one by one."""

_ORDER = {"content": "rowid"}
"""In which its rows stand, where that is another one: it is read without an index then."""


@dataclass(frozen=True, slots=True)
class Rescued:
    """``kept_as``: the file that cannot be read whole. ``unread``: messages that are damaged by that; None if
    nothing can go on, and a new database has to begin.
    """

    kept_as: Path
    unread: int | None


def rescue(file: Path, name: ServerName, now: datetime) -> Rescued:
    """Put what can be read of a database in its place; where nothing can, set it aside with its contents.

    The caller holds the lock. Raises OSError.
    """
    fresh = file.with_name(f"{file.name}.rescued")
    fresh.unlink(missing_ok=True)  # of an attempt that a crash cut short
    try:
        unread = _rebuild(file, fresh, name, now)
    except (sqlite3.Error, *records.IMPOSSIBLE):
        fresh.unlink(missing_ok=True)
        return Rescued(opening.set_aside(file, now), None)
    return Rescued(opening.replace(file, fresh, now), unread)


def _rebuild(file: Path, fresh: Path, name: ServerName, now: datetime) -> int:
    """Raises sqlite3.Error, or what values lead to that cannot be (``records.IMPOSSIBLE``)."""
    with (
        closing(sqlite3.connect(fresh, isolation_level=None)) as made,
        closing(sqlite3.connect(file, isolation_level=None)) as old,
    ):
        fresh.chmod(0o600)
        made.execute("PRAGMA auto_vacuum=incremental")
        opening.migrate(made)
        version = old.execute("PRAGMA user_version").fetchone()[0]
        if version != len(migrations()):
            raise opening.corrupt(f"of schema version {version}")
        SqlLedger(old, name)  # reads text as the node does
        made.execute("BEGIN")
        made.executemany(SQL["put_sequence"], old.execute(SQL["sequences"]).fetchall())
        for table, key in _NEEDED.items():
            if not _poured(old, made, table, key):
                raise opening.corrupt(f"{table} cannot be read whole")
        _pour_messages(old, made, records.micros(now))
        for table, key in _OTHERS.items():
            if not _poured(old, made, table, key):
                _pour_each(old, made, table, key, _keys(old, table, key))
        made.execute("COMMIT")
        opening.check_lineages(SqlLedger(made, name))
        old.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # all of it is in the file that is kept
        return int(made.execute(SQL["count_unread"], (records.micros(now),)).fetchone()[0])


def _pour_messages(old: sqlite3.Connection, made: sqlite3.Connection, now: int) -> None:
    """All that can be read; messages of which too little can are put down as damaged."""
    whole = {table: _poured(old, made, table, key) for table, key in _OF_MESSAGES.items()}
    index = _Reading(old, SQL["in_transit"])
    expected = {row[0] for row in index}
    if not (index.whole and all(whole.values())):
        known = expected.union(*(_keys(old, table, key) for table, key in _OF_MESSAGES.items()))
        for table, key in _OF_MESSAGES.items():
            if not whole[table]:
                _pour_each(old, made, table, key, known)
        expected = expected if index.whole else known
    if not whole["recipient"]:
        made.execute(SQL["unread_recipients"], (now, UNREAD))
    made.executemany(SQL["unread"], ((one, now, UNREAD) for one in expected))


class _Reading:
    """Rows up to where they cannot be read; ``whole`` afterwards if that was their end."""

    def __init__(self, old: sqlite3.Connection, query: str, *values: object) -> None:
        self._old, self._query, self._values = old, query, values
        self.whole = False

    def __iter__(self) -> Iterator[records.Row]:
        try:
            yield from self._old.execute(self._query, self._values)
            self.whole = True
        except sqlite3.Error:
            return


def _poured(old: sqlite3.Connection, made: sqlite3.Connection, table: str, key: str) -> bool:
    """What can be read from either end of a table; True if that is all."""
    by = _ORDER.get(table, key)
    return any(
        _pour(made, table, _Reading(old, SQL["rows"].format(table=table, key=by, order=order)))
        for order in ("ASC", "DESC")
    )


def _pour_each(
    old: sqlite3.Connection, made: sqlite3.Connection, table: str, key: str, keys: Collection[object]
) -> None:
    for one in keys:
        _pour(made, table, _Reading(old, SQL["some"].format(table=table, key=key), one))


def _pour(made: sqlite3.Connection, table: str, reading: _Reading) -> bool:
    """A row that could not stand in that table is left out."""
    put = ""
    for row in reading:
        put = put or SQL["put"].format(table=table, values=", ".join("?" * len(row)))
        made.execute(put, row)
    return reading.whole


def _keys(old: sqlite3.Connection, table: str, key: str) -> set[object]:
    return {
        row[0]
        for order in ("ASC", "DESC")
        for row in _Reading(old, SQL["keys"].format(table=table, key=key, order=order))
    }
