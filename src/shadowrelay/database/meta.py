"""Reads the meta data of a transport database: a key and its value in each row."""

from __future__ import annotations

from shadowrelay.database import sums
from shadowrelay.database.queries import load
from shadowrelay.database.sharing import Run
from shadowrelay.database.sums import SqlRow

SQL = load("queries.sql")

_BEFORE_SUMS = 2  # columns of a schema without sums, which is read before it is migrated


def needed(run: Run, key: str) -> str | None:
    """The value of a key, which cannot be guessed; None if there is no such row. Raises sqlite3.DatabaseError
    (CORRUPT) for a damaged row.
    """
    row = _row(run, key)
    return sums.needed(_value, row, f"the meta data {key}") if row else None


def sound(run: Run, key: str) -> str | None:
    """The value of a key; a damaged row counts as none."""
    row = _row(run, key)
    return sums.sound(_value, row) if row else None


def _row(run: Run, key: str) -> SqlRow | None:
    row: SqlRow | None = run(SQL["meta"], (key,)).fetchone()
    return (*row, None) if row and len(row) == _BEFORE_SUMS else row


def _value(row: SqlRow) -> str:
    if not isinstance(row[1], str):
        raise ValueError(f"no text: {row[1]!r}")
    return row[1]
