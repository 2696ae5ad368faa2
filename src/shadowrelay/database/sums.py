"""Checks rows: each that decides something has a sum over its columns, and no value may be impossible.

A sum is over all other columns of a row, in the order of the table: over what identifies the row, too, so a
row that is read in place of another one differs. The statement that writes a row makes its sum, by a function
that SQLite calls (``know_sums``); whoever reads the row compares it (``sound``, ``needed``). Messages, their
recipients and holders have derived columns, and sums that ``records`` makes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

import xxhash

SqlRow = tuple[Any, ...]


def tolerant(octets: bytes) -> str:
    """Decode text for SQLite: invalid UTF-8 must not end a query. The row then differs from its sum."""
    return octets.decode("utf-8", "replace")


def corrupt(what: str) -> sqlite3.DatabaseError:
    """The error that SQLite raises for a corrupt file."""
    error = sqlite3.DatabaseError(what)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


class Unbelievable(Exception):
    """A row is not what was written: its sum differs, or a value is impossible."""


IMPOSSIBLE = (ValueError, TypeError, OverflowError, AttributeError, IndexError)
"""What converting an impossible value raises."""

T = TypeVar("T")


def know_sums(connection: sqlite3.Connection) -> None:
    """Let statements on this connection make sums: ``row_sum(column, …)``."""
    connection.create_function("row_sum", -1, row_sum, deterministic=True)


def readable(make: Callable[[SqlRow], T], row: SqlRow) -> T | None:
    """The object in columns that have no sum; None if a value is impossible."""
    try:
        return make(row)
    except IMPOSSIBLE:
        return None


def sound(make: Callable[[SqlRow], T], row: SqlRow) -> T | None:
    """The object in a row, whose last column is its sum. None if the row differs from it, or cannot be read.

    A row without a sum is of a version before sums: it is read as it is.
    """
    try:
        return make(believed(row[:-1], row[-1], old=True))
    except (Unbelievable, *IMPOSSIBLE):
        return None


def needed(make: Callable[[SqlRow], T], row: SqlRow, what: str) -> T:
    """Like ``sound``, for a row that cannot be done without. Raises sqlite3.DatabaseError (CORRUPT)."""
    try:
        return make(believed(row[:-1], row[-1], old=True))
    except (Unbelievable, *IMPOSSIBLE) as error:
        raise corrupt(f"{what} cannot be believed: {error}") from error


def one(row: SqlRow) -> SqlRow:
    """The row itself: for ``sound`` and ``needed``."""
    return row


def row_sum(*columns: object) -> int:
    """The sum over the columns of a row, as a number that SQLite can store. Takes text, numbers and NULL."""
    # ASCII is the same in every version of Python, whichever Unicode it knows.
    return xxhash.xxh3_64_intdigest(f"{columns!a}".encode()) >> 1


def believed(row: SqlRow, found: int | None, *, old: bool) -> SqlRow:
    """The row, if ``found`` is its sum. ``old``: a row from a version before sums has none."""
    if found is None and old:
        return row
    if found != row_sum(*row):
        raise Unbelievable("the sum of a row differs")
    return row
