"""A year of gold tables, made up: what ``shadowaudit summary`` is measured with.

Mail follows the hours of the day and the days of the week; domains have a long tail; one next hop is slow now
and then; a node dies every other month, and its mail is promoted and exposed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

NODES = tuple(f"mx{number}.example.net" for number in (1, 2, 3))
HOPS = ("mailbox.example.net", *(f"mx{number}.hop{number % 17}.test" for number in range(1, 40)))
REPLIES = (
    ("DEFER", "451", "4.7.1", "451 4.7.1 Greylisted, try again in 300 seconds"),
    ("DEFER", "421", "4.3.2", "421 4.3.2 System not accepting network messages"),
    ("DEFER", None, None, "connection refused"),
    ("DEFER", "452", "4.2.2", "452 4.2.2 Mailbox full"),
    ("FAIL", "550", "5.1.1", "550 5.1.1 User unknown"),
    ("FAIL", "554", "5.7.1", "554 5.7.1 Message blocked by policy"),
    ("FAIL", "552", "5.3.4", "552 5.3.4 Message too big"),
)
_BY_HOUR = np.array([2, 1, 1, 1, 1, 2, 4, 8, 14, 16, 15, 13, 12, 13, 14, 13, 12, 10, 7, 5, 4, 4, 3, 2]) / 7
_LATENCY = np.arange(20, 110)  # steps: 9 ms to 5 minutes


def days(count: int, *, last: date = date(2026, 11, 25), domains: int = 50_000, mails: int = 900,
         seed: int = 1) -> Iterator[tuple[date, dict[str, Any]]]:
    """The gold tables of each day. ``mails``: a node's messages of a middling hour."""  # fmt: skip
    random = np.random.default_rng(seed)
    names = np.array([f"d{number:05}.example" for number in range(domains)], dtype=object)
    for number in range(count):
        day = last - timedelta(days=count - 1 - number)
        yield day, _day(random, day, names, mails * (0.35 if day.weekday() > 4 else 1.0))


def _day(random: Any, day: date, names: Any, mails: float) -> dict[str, Any]:
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    died = NODES[day.month % 3] if day.day == 11 and day.month % 2 else None
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in ("traffic", "reasons", "promotions")}
    columns: dict[str, list[Any]] = {name: [] for name in ("domains", "latencies", "sizes")}
    for node in NODES:
        received = random.poisson(mails * _BY_HOUR)
        for hour, many in enumerate(map(int, received)):
            gone = died == node and hour in (9, 10)
            lonely = many // 50 if died not in (None, node) and hour == 9 else 0
            many = 0 if gone else many
            tables["traffic"].append({
                "hour": begin + timedelta(hours=hour), "node": node, "received": many,
                "octets": int(many * random.lognormal(10.4, 0.2)), "delivered": int(many * 1.02),
                "dropped_as_duplicates": int(random.random() < 0.01), "deferred": int(random.poisson(many * 0.03)),
                "failed": int(random.poisson(many * 0.008)), "promoted": 40 if lonely else 0, "exposed": lonely,
            })  # fmt: skip
        total = int(received.sum())
        for side, spread in (("sender", 1.35), ("recipient", 1.5)):
            drawn = random.zipf(spread, total)
            found, many = np.unique(drawn[drawn <= len(names)] - 1, return_counts=True)
            columns["domains"].append((node, side, names[found], many, many + many // 3, many * 41_000))
        speed = random.gamma(60, 1, len(HOPS))
        for hop, middle in zip(HOPS, speed, strict=True):
            many = random.poisson(max(1.0, total / (200 if hop != HOPS[0] else 2)) * _bell(middle))
            columns["latencies"].append((node, hop, _LATENCY[many > 0], many[many > 0]))
        bell = np.exp(-(((np.arange(8, 26) - 14.5) / 2.6) ** 2))
        many = random.poisson(total * bell / bell.sum())
        columns["sizes"].append((node, np.arange(8, 26), many, (many * 1.4 * 2.0 ** np.arange(8, 26)).astype(int)))
        for event, code, status, reply in REPLIES:
            for hop in random.choice(HOPS, 6, replace=False):
                times = int(random.poisson(total * 0.0008)) + 1
                tables["reasons"].append({
                    "day": day, "node": node, "event_id": event, "next_hop": str(hop), "code": code,
                    "status": status, "reply": reply, "times": times, "recipients": times + times // 4,
                    "example": f"{int(begin.timestamp() * 1000):012x}-7000-8000-{int(random.integers(1 << 40)):012x}",
                })  # fmt: skip
        if died not in (None, node):
            tables["promotions"].append(
                {"day": day, "node": node, "owner": died, "reason": "OwnerSilent", "messages": 40}
            )
    return {
        **{name: pa.Table.from_pylist(rows, schema=SCHEMAS[name]) for name, rows in tables.items()},
        "domains": _joined("domains", day, columns["domains"]),
        "latencies": _joined("latencies", day, columns["latencies"]),
        "sizes": _joined("sizes", day, columns["sizes"]),
    }


def _bell(middle: float) -> Any:
    bell = np.exp(-(((_LATENCY - middle) / 6.0) ** 2))
    return bell / bell.sum()


def _joined(name: str, day: date, parts: list[Any]) -> Any:
    schema = SCHEMAS[name]
    made = []
    for part in parts:
        rows = max(len(one) for one in part if isinstance(one, np.ndarray))
        columns = [day, *part]
        arrays = [
            pa.array(one if isinstance(one, np.ndarray) else [one] * rows, field.type)
            for one, field in zip(columns, schema, strict=True)
        ]
        made.append(pa.Table.from_arrays(arrays, schema=schema))
    return pa.concat_tables(made)


_LONG = pa.int64()
SCHEMAS = {
    "traffic": pa.schema([
        ("hour", pa.timestamp("us", tz="UTC")), ("node", pa.string()), ("received", _LONG), ("octets", _LONG),
        ("delivered", _LONG), ("dropped_as_duplicates", _LONG), ("deferred", _LONG), ("failed", _LONG),
        ("promoted", _LONG), ("exposed", _LONG),
    ]),
    "domains": pa.schema([
        ("day", pa.date32()), ("node", pa.string()), ("side", pa.string()), ("domain", pa.string()),
        ("messages", _LONG), ("addresses", _LONG), ("octets", _LONG),
    ]),
    "latencies": pa.schema([
        ("day", pa.date32()), ("node", pa.string()), ("next_hop", pa.string()), ("step", pa.int32()),
        ("deliveries", _LONG),
    ]),
    "sizes": pa.schema([
        ("day", pa.date32()), ("node", pa.string()), ("step", pa.int32()), ("messages", _LONG), ("octets", _LONG),
    ]),
    "reasons": pa.schema([
        ("day", pa.date32()), ("node", pa.string()), ("event_id", pa.string()), ("next_hop", pa.string()),
        ("code", pa.string()), ("status", pa.string()), ("reply", pa.string()), ("times", _LONG),
        ("recipients", _LONG), ("example", pa.string()),
    ]),
    "promotions": pa.schema([
        ("day", pa.date32()), ("node", pa.string()), ("owner", pa.string()), ("reason", pa.string()),
        ("messages", _LONG),
    ]),
}  # fmt: skip
