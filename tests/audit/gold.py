"""Gold tables made of rows, in memory and published to a directory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from shadowaudit.spark.tables.schemas import GOLD, TABLES
from shadowaudit.spark.tables.store import DataFile, Manifest, Place, directory_of, name_of

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
    """Write these tables below a directory, and a manifest that names them."""
    place = Place.of(str(directory))
    files: dict[str, list[DataFile]] = {}
    for day, parts in made:
        told = day.isoformat() if day else None
        for name, table in parts.items():
            path = Path(place.path(directory_of(name, told), "00000001-made-0.parquet"))
            path.parent.mkdir(parents=True, exist_ok=True)
            parquet.write_table(table, path)
            below = str(path.relative_to(place.root))
            files.setdefault(name, []).append(DataFile(below, len(table), path.stat().st_size, told))
    manifest = Path(place.path("manifests", name_of(1)))
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(replace(Manifest().following(files, MADE), verdict=verdict).as_json(), "utf-8")
    return directory
