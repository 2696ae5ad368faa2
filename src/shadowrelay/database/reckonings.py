"""The reckoning of the node's time in the database: one row of the meta data."""

from __future__ import annotations

import json
import sqlite3
from datetime import datetime, timedelta
from typing import Any

from shadowrelay.core.reckoning import Reckoning
from shadowrelay.core.spans import Span
from shadowrelay.database import meta, records
from shadowrelay.database.queries import load

SQL = load("queries.sql")
KEY = "reckoning"
_MICROSECOND = timedelta(microseconds=1)


def put(connection: sqlite3.Connection, reckoning: Reckoning) -> None:
    """Save it, in the transaction under way."""
    connection.execute(SQL["put_meta"], (KEY, _text(reckoning)))


def found(connection: sqlite3.Connection, alive_at: datetime | None) -> Reckoning | None:
    """What was saved last; None in a new database.

    If it is missing, as a release of before leaves it, or damaged, only ``alive_at`` is known: ages do not
    believe it, and it bounds the absence.
    """
    text = meta.sound(connection.execute, KEY)
    try:
        known = _read(text) if text else None
    except (ValueError, TypeError, KeyError, OverflowError):
        known = None
    if known is not None or alive_at is None:
        return known
    return Reckoning(alive_at, timedelta(0), "", least=alive_at)


def _text(reckoning: Reckoning) -> str:
    return json.dumps(
        {
            "time": records.micros(reckoning.time),
            "boot": reckoning.boot // _MICROSECOND,
            "boot_id": reckoning.boot_id,
            "ahead": reckoning.ahead // _MICROSECOND,
            "settled": reckoning.settled,
            "spans": [_span(one) for one in reckoning.spans],
            "pending": _span(reckoning.pending) if reckoning.pending else None,
            "least": records.micros(reckoning.least) if reckoning.least else None,
            "left": records.micros(reckoning.left) if reckoning.left else None,
        }
    )


def _read(text: str) -> Reckoning:
    known: dict[str, Any] = json.loads(text)
    return Reckoning(
        records.moment(known["time"]),
        known["boot"] * _MICROSECOND,
        known["boot_id"],
        known["ahead"] * _MICROSECOND,
        known["settled"],
        tuple(_moments(one) for one in known["spans"]),
        _moments(known["pending"]) if known["pending"] else None,
        records.moment(known["least"]) if known.get("least") else None,
        records.moment(known["left"]) if known.get("left") else None,
    )


def _span(span: Span) -> list[int]:
    return [records.micros(one) for one in span]


def _moments(span: list[int]) -> Span:
    begin, end = span
    return records.moment(begin), records.moment(end)
