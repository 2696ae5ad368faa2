"""Checks rows: each that decides something has a sum over its columns, and no value may be impossible."""

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


def readable(make: Callable[[SqlRow], T], row: SqlRow) -> T | None:
    """The object in a row without a sum; None if a value in the row is impossible."""
    try:
        return make(row)
    except IMPOSSIBLE:
        return None


def row_sum(*columns: object) -> int:
    """The sum over the columns of a row, as a number that SQLite can store. Takes text, numbers and NULL."""
    # ASCII is the same in every version of Python, whichever Unicode it knows.
    return xxhash.xxh3_64_intdigest(ascii(columns).encode()) >> 1


def believed(row: SqlRow, found: int | None, *, old: bool) -> SqlRow:
    """The row, if ``found`` is its sum. ``old``: a row from a version before sums has none."""
    if found is None and old:
        return row
    if found != row_sum(*row):
        raise Unbelievable("the sum of a row differs")
    return row
