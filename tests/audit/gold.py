"""Gold tables made of rows, in memory and published to a directory."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from shadowaudit.spark.tables.data import write
from shadowaudit.spark.tables.publishing import Run
from shadowaudit.spark.tables.schemas import GOLD, TABLES
from shadowaudit.spark.tables.store import Place

Rows = Mapping[str, list[dict[str, Any]]]
MADE = datetime(2026, 11, 26, tzinfo=UTC)


def tables(rows: Rows) -> dict[str, Any]:
    """All gold tables, and files; of findings, if there are any rows of them."""
    return {
        name: pa.Table.from_pylist(rows.get(name, []), schema=TABLES[name].arrow)
        for name in (*GOLD, "files", *(["findings"] if "findings" in rows else []))
    }


def by_day(rows: Rows) -> Iterable[tuple[date | None, dict[str, Any]]]:
    """The tables of each day. Findings have none."""
    days: dict[date | None, dict[str, list[dict[str, Any]]]] = {}
    for name, some in rows.items():
        for row in some:
            day = row["hour"].date() if "hour" in row else row.get("day")
            days.setdefault(day, {}).setdefault(name, []).append(row)
    for day, parts in sorted(days.items(), key=lambda one: str(one[0])):
        yield day, {name: tables(parts)[name] for name in parts}


def publish(
    directory: Path, made: Iterable[tuple[date | None, Mapping[str, Any]]], *, verdict: Any = None
) -> Path:
    """Publish these tables below a directory, all at once."""
    run, files = Run.begun(Place.of(str(directory)), MADE), defaultdict(list)
    for _, parts in made:
        for name, table in parts.items():
            files[name] += write(run.base.place, name, whole(name, table).to_batches())
    if verdict is not None:
        told = {
            "made_at": datetime.fromisoformat(verdict.get("made_at", MADE.isoformat())),
            "verdict": json.dumps(verdict),
        }
        table = pa.Table.from_pylist([told], schema=TABLES["verdict"].arrow)
        files["verdict"] = write(run.base.place, "verdict", table.to_batches())
    rows = files.pop("files", [])
    for name, new in files.items():
        run.commit(name, new)
    run.publish(rows)
    return directory


def whole(name: str, table: Any) -> Any:
    """With all columns: a row of ``traffic`` has the day of its hour; others are null."""
    schema, found = TABLES[name].arrow, {one: table[one] for one in table.column_names}
    if "hour" in found:
        found["day"] = found["hour"].cast(pa.date32())
    return pa.table([found.get(one.name, pa.nulls(len(table), one.type)) for one in schema], schema=schema)
