"""Rows of a table as data files, one or more for each day. Knows no Spark."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from shadowaudit.spark.columns import FILE
from shadowaudit.spark.tables.schemas import FILES, FINDINGS, TABLES, TRAFFIC
from shadowaudit.spark.tables.store import DataFile, Place, directory_of, sync

ROW_GROUP = 1 << 16
OPEN = 16
"""Days that a task writes at a time, at most: a log that jumps between more has more files."""

_DAY = {TRAFFIC: "hour", FILES: None, FINDINGS: None}


@dataclass(frozen=True, slots=True)
class Written:
    """A data file. ``logs``: of events, how many rows are of each log."""

    file: DataFile
    logs: dict[str, int] = field(default_factory=dict)


def write(place: Place, table: str, prefix: str, batches: Iterable[Any]) -> list[Written]:
    """Data files with these rows, on disk. If it fails, none is left. Raises OSError."""
    made = _Parts(place, table, prefix)
    try:
        for batch in batches:
            made.add(batch)
        return made.close()
    except BaseException:
        made.remove()
        raise


class _Part:
    """A data file that is being written."""

    def __init__(self, place: Place, path: str, schema: Any) -> None:
        self.place, self.path, self.schema = place, path, schema
        whole = place.path(path)
        if place.system.type_name in ("local", "hdfs"):  # the others have no directories
            place.system.create_dir(whole.rpartition("/")[0], recursive=True)
        self.sink = place.system.open_output_stream(whole)
        self.writer = parquet.ParquetWriter(self.sink, schema, compression="zstd", compression_level=1)
        self.waiting: list[Any] = []
        self.count = self.rows = 0
        self.logs: Counter[str] = Counter()
        self.last: str | None = None

    def add(self, batch: Any) -> None:
        self.waiting.append(batch)
        self.count += len(batch)
        if self.count >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if not self.count:
            return
        some = pa.Table.from_batches(self.waiting, schema=self.schema)
        self.writer.write_table(some, row_group_size=ROW_GROUP)
        self.rows += self.count
        if "parts" not in self.schema.names and FILE in self.schema.names:
            for pair in pc.value_counts(some.column(FILE).combine_chunks()).to_pylist():
                self.logs[pair["values"]] += pair["counts"]
        if "last_at" in self.schema.names:
            latest = pc.max(some.column("last_at")).as_py()
            self.last = max(self.last or "", latest.date().isoformat()) if latest else self.last
        self.waiting, self.count = [], 0

    def close(self, day: str | None) -> Written:
        self._flush()
        self.writer.close()
        size = self.sink.tell()
        self.sink.close()
        if self.place.is_local:
            sync(self.place.path(self.path))
        return Written(DataFile(self.path, self.rows, size, day, self.last), dict(self.logs))


class _Parts:
    def __init__(self, place: Place, table: str, prefix: str) -> None:
        self.place, self.table, self.prefix = place, table, prefix
        self.schema = TABLES[table].arrow
        self.open: dict[str | None, _Part] = {}
        self.done: list[Written] = []

    def add(self, batch: Any) -> None:
        if not len(batch):
            return
        told = pa.RecordBatch.from_arrays(
            [batch.column(one.name).cast(one.type) for one in self.schema], schema=self.schema
        )
        source = _DAY.get(self.table, "day")
        if source is None:
            self._into(None, told)
            return
        days = told.column(source).cast(pa.date32())
        for day in pc.unique(days):
            mine = pc.is_null(days) if not day.is_valid else pc.fill_null(pc.equal(days, day), False)
            self._into(day.as_py().isoformat() if day.is_valid else None, told.filter(mine))

    def _into(self, day: str | None, batch: Any) -> None:
        part = self.open.pop(day, None)
        if part is None:
            if len(self.open) >= OPEN:
                eldest = next(iter(self.open))
                self.done.append(self.open.pop(eldest).close(eldest))
            name = f"{self.prefix}-{secrets.token_hex(6)}.parquet"
            part = _Part(self.place, f"{directory_of(self.table, day)}/{name}", self.schema)
        self.open[day] = part  # the last one is the latest
        part.add(batch)

    def close(self) -> list[Written]:
        for day in list(self.open):
            self.done.append(self.open[day].close(day))
            del self.open[day]
        return self.done

    def remove(self) -> None:
        self.place.remove([*(one.file.path for one in self.done), *(one.path for one in self.open.values())])
