"""The reckoning of the node's time in the database: one row of the meta data, with a sum over itself."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from datetime import datetime, timedelta
from typing import Any

from shadowrelay.core.reckoning import Reckoning
from shadowrelay.core.spans import Span
from shadowrelay.database import records
from shadowrelay.database.queries import load

SQL = load("queries.sql")
KEY = "reckoning"
_MICROSECOND = timedelta(microseconds=1)


def put(connection: sqlite3.Connection, reckoning: Reckoning) -> None:
    """Save it, in the transaction under way."""
    connection.execute(SQL["put_meta"], (KEY, _text(reckoning)))


def found(connection: sqlite3.Connection, alive_at: datetime | None) -> Reckoning | None:
    """What was saved last; None in a new database.

    If it is missing, as a release of before leaves it, or damaged, only ``alive_at`` is known, and nothing
    confirms it.
    """
    row = connection.execute(SQL["meta"], (KEY,)).fetchone()
    try:
        known = _read(row[0]) if row else None
    except (ValueError, TypeError, KeyError, OverflowError):
        known = None
    if known is not None or alive_at is None:
        return known
    return Reckoning(alive_at, timedelta(0), "")


def _sum(told: str) -> str:
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _text(reckoning: Reckoning) -> str:
    told = json.dumps(
        {
            "time": records.micros(reckoning.time),
            "boot": reckoning.boot // _MICROSECOND,
            "boot_id": reckoning.boot_id,
            "ahead": reckoning.ahead // _MICROSECOND,
            "settled": reckoning.settled,
            "spans": [_span(one) for one in reckoning.spans],
            "pending": _span(reckoning.pending) if reckoning.pending else None,
        }
    )
    return f"{_sum(told)} {told}"


def _read(text: str) -> Reckoning | None:
    told_sum, _, told = text.partition(" ")
    if told_sum != _sum(told):
        return None
    known: dict[str, Any] = json.loads(told)
    return Reckoning(
        records.moment(known["time"]),
        known["boot"] * _MICROSECOND,
        known["boot_id"],
        known["ahead"] * _MICROSECOND,
        known["settled"],
        tuple(_moments(one) for one in known["spans"]),
        _moments(known["pending"]) if known["pending"] else None,
    )


def _span(span: Span) -> list[int]:
    return [records.micros(one) for one in span]


def _moments(span: list[int]) -> Span:
    begin, end = span
    return records.moment(begin), records.moment(end)
