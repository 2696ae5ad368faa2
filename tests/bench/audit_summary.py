"""A year of gold tables, made up, and how long their summary takes.

Mail follows the hours of the day and the days of the week; domains have a long tail; next hops differ; every
other month a node dies for two hours, and its mail is promoted, and accepted with one copy elsewhere.

``python -m tests.bench.audit_summary DIR`` makes the tables in ``DIR`` and measures.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from shadowaudit.spark.tables import store
from shadowaudit.spark.tables.schemas import TABLES
from tests.audit.gold import MADE, publish

YEAR = 365
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
_LATENCIES, _SIZES = np.arange(20, 110), np.arange(8, 26)  # steps: 9 ms to 5 minutes, 256 octets to 32 MiB


def days(count: int = YEAR, *, domains: int = 50_000, mails: int = 900, seed: int = 1) -> Iterator[Any]:
    """Each day with its tables by name. ``mails``: messages that a node receives in a middling hour."""
    random = np.random.default_rng(seed)
    names = np.array([f"d{number:05}.example" for number in range(domains)], dtype=object)
    for number in range(count):
        day = MADE.date() - timedelta(days=count - number)
        yield day, _day(random, day, names, mails * (0.35 if day.weekday() > 4 else 1.0))


def measured(directory: Path, runs: int = 5) -> dict[str, Any]:
    """Make a year of tables below ``directory``, and print its summary some times, each in a process."""
    tables = directory / "tables"
    if not tables.exists():
        publish(tables, days())
    command = [sys.executable, "-m", "shadowaudit", "summary", "--tables", str(tables)]
    seconds = []
    for _ in range(runs):
        began = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.monotonic() - began)
    files = [one for name in TABLES for one in store.current(str(tables)).files(name)]
    return {
        "days": YEAR,
        "rows": sum(one.rows for one in files),
        "files": len(files),
        "seconds": round(median(seconds), 2),
        "fastest": round(min(seconds), 2),
    }


def _day(random: Any, day: date, names: Any, mails: float) -> dict[str, Any]:
    died = NODES[day.month % 3] if day.day == 11 and day.month % 2 else None
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ("traffic", "reasons", "promotions")}
    parts: dict[str, list[Any]] = {name: [] for name in ("domains", "latencies", "sizes")}
    for node in NODES:
        received = random.poisson(mails * _BY_HOUR)
        rows["traffic"] += _traffic(random, day, node, received, died)
        total = int(received.sum())
        rows["reasons"] += _reasons(random, day, node, total)
        for side, spread in (("sender", 1.35), ("recipient", 1.5)):
            drawn = random.zipf(spread, total)
            found, many = np.unique(drawn[drawn <= len(names)] - 1, return_counts=True)
            parts["domains"].append((node, side, names[found], many, many + many // 3, many * 41_000))
        for hop, middle in zip(HOPS, random.normal(55, 3, len(HOPS)) + np.arange(len(HOPS)) / 3, strict=True):
            share = 2 if hop == HOPS[0] else 200
            many = random.poisson(max(1.0, total / share) * _bell(_LATENCIES, middle, 6.0))
            parts["latencies"].append((node, hop, _LATENCIES[many > 0], many[many > 0]))
        many = random.poisson(total * _bell(_SIZES, 14.5, 2.6))
        parts["sizes"].append((node, _SIZES, many, (many * 1.4 * 2.0**_SIZES).astype(int)))
        if died not in (None, node):
            rows["promotions"].append(
                {"day": day, "node": node, "owner": died, "reason": "OwnerSilent", "messages": 40}
            )
    return {
        **{name: pa.Table.from_pylist(some, schema=TABLES[name].arrow) for name, some in rows.items()},
        **{name: _joined(name, day, some) for name, some in parts.items()},
    }


def _traffic(random: Any, day: date, node: str, received: Any, died: str | None) -> list[dict[str, Any]]:
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    rows = []
    for hour, many in enumerate(map(int, received)):
        gone = died == node and hour in (9, 10)
        alone = died not in (None, node) and hour == 9
        rows.append({
            "hour": begin + timedelta(hours=hour), "node": node, "received": 0 if gone else many,
            "octets": 0 if gone else int(many * random.lognormal(10.4, 0.2)),
            "delivered": 0 if gone else int(many * 1.02),
            "dropped_as_duplicates": int(random.random() < 0.01),
            "deferred": 0 if gone else int(random.poisson(many * 0.03)),
            "failed": 0 if gone else int(random.poisson(many * 0.008)),
            "promoted": 40 if alone else 0, "exposed": many // 50 if alone else 0,
        })  # fmt: skip
    return rows


def _reasons(random: Any, day: date, node: str, total: int) -> list[dict[str, Any]]:
    rows = []
    stamp = f"{int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000):012x}"
    for event, code, status, reply in REPLIES:
        for hop in random.choice(HOPS, 6, replace=False):
            times = int(random.poisson(total * 0.0008)) + 1
            rows.append({
                "day": day, "node": node, "event_id": event, "next_hop": str(hop), "code": code,
                "status": status, "reply": reply, "times": times, "recipients": times + times // 4,
                "example": f"{stamp[:8]}-{stamp[8:]}-7000-8000-{int(random.integers(1 << 40)):012x}",
            })  # fmt: skip
    return rows


def _bell(steps: Any, middle: float, width: float) -> Any:
    bell = np.exp(-(((steps - middle) / width) ** 2))
    return bell / bell.sum()


def _joined(name: str, day: date, parts: list[Any]) -> Any:
    """``parts``: values for all columns but the day; one value stands for all rows of its part."""
    schema = TABLES[name].arrow
    made = []
    for part in parts:
        rows = max(len(one) for one in part if isinstance(one, np.ndarray))
        columns = [one if isinstance(one, np.ndarray) else [one] * rows for one in (day, *part)]
        arrays = [pa.array(one, field.type) for one, field in zip(columns, schema, strict=True)]
        made.append(pa.Table.from_arrays(arrays, schema=schema))
    return pa.concat_tables(made)


if __name__ == "__main__":
    print(json.dumps(measured(Path(sys.argv[1]))))
