"""Logs as typed events, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from resealing import logs

from shadowaudit.spark import places
from shadowaudit.spark.columns import ARROW, COLUMNS
from shadowaudit.spark.event_rows import batches

SCHEMA = pa.schema([(column.name, ARROW[column.type]) for column in COLUMNS])


def read(path: Path, *names: str, **how: Any) -> list[dict[str, Any]]:
    schema = pa.schema([SCHEMA.field(name) for name in names]) if names else SCHEMA
    found: list[dict[str, Any]] = []
    (log,) = places.find([str(path)])
    with places.opened(log) as file:
        for batch in batches(file, log.uri, schema, **how):
            batch.validate(full=True)
            assert batch.schema.equals(schema)
            found += batch.to_pylist(maps_as_pydicts="strict")
    return found


def problems(directory: Path) -> list[dict[str, Any]]:
    """What could not be read of the logs below it."""
    told = ("file", "line", "problem", "_corrupt_record")
    return [row for path in logs(directory) for row in read(path, *told) if row["problem"]]
