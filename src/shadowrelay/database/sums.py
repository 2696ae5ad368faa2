"""Whether rows can be believed: a sum over the columns of each that decides something, and what a value that
cannot be there leads to.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

import xxhash

SqlRow = tuple[Any, ...]


def tolerant(octets: bytes) -> str:
    """For SQLite: what is no UTF-8 may not end a query. It differs from the sum of its row."""
    return octets.decode("utf-8", "replace")


def corrupt(what: str) -> sqlite3.DatabaseError:
    """As SQLite would say it."""
    error = sqlite3.DatabaseError(what)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


class Unbelievable(Exception):
    """A row is not what was written: its sum differs, or a value is none that could be there."""


IMPOSSIBLE = (ValueError, TypeError, OverflowError, AttributeError, IndexError)
"""What a value that cannot be there raises where it is made something of."""

T = TypeVar("T")


def readable(make: Callable[[SqlRow], T], row: SqlRow) -> T | None:
    """A row of those that have no sum; None if there is a value in it that cannot be there."""
    try:
        return make(row)
    except IMPOSSIBLE:
        return None


def row_sum(*columns: object) -> int:
    """The sum over the columns of a row, a number that SQLite can store. Text, numbers and NULL alone."""
    # ASCII spelling: the same in every version of Python, whatever that knows of characters.
    return xxhash.xxh3_64_intdigest(ascii(columns).encode()) >> 1


def believed(row: SqlRow, found: int | None, *, old: bool) -> SqlRow:
    """The row, if that is its sum. ``old``: it may be of a version before sums, and have none."""
    if found is None and old:
        return row
    if found != row_sum(*row):
        raise Unbelievable("the sum of a row differs")
    return row
