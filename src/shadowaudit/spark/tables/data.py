"""Rows of a table as data files, one or more for each day. Knows no Spark, and no Delta."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import fs

from shadowaudit.spark.tables.schemas import DAY_COLUMN, TABLES
from shadowaudit.spark.tables.store import DataFile, Place, sync

ROW_GROUP = 1 << 16
OPEN = 16
"""Days that a task writes at a time, at most: a log that jumps between more has more files."""

_INDEXED = ("file", "node", "date_time", "network_message_id", "hour", "accepted_at", "first_at", "last_at")
"""Columns whose least and greatest values stand in the log of a table, so that whoever asks skips files."""

NO_DAY = "__HIVE_DEFAULT_PARTITION__"
"""Where rows without a day are: what Hive, Spark, DuckDB and pyarrow call it."""


@dataclass(frozen=True, slots=True)
class Written:
    """A data file that no version has yet. ``stats``: as the log of a table has them."""

    file: DataFile
    stats: str


def write(place: Place, table: str, batches: Iterable[Any]) -> list[Written]:
    """Data files with these rows, on disk. If it fails, none is left. Raises OSError."""
    from pyarrow import dataset  # it brings pandas

    schema, token = TABLES[table].arrow, secrets.token_hex(8)
    made: list[Written] = []

    def done(file: Any) -> None:
        path = file.path.removeprefix("/").removeprefix(place.path(table).removeprefix("/")).lstrip("/")
        if place.is_local:
            sync(file.path)
        made.append(_written(path, file.size, file.metadata))

    rows = (
        pa.RecordBatch.from_arrays([batch.column(one.name).cast(one.type) for one in schema], schema=schema)
        for batch in batches
    )
    kind = dataset.ParquetFileFormat()
    try:
        dataset.write_dataset(
            rows,
            place.path(table),
            schema=schema,
            filesystem=place.system,
            format=kind,
            file_options=kind.make_write_options(compression="zstd", compression_level=1),
            partitioning=dataset.partitioning(TABLES[table].partition, flavor="hive"),
            basename_template=f"{token}-{{i}}.parquet",
            existing_data_behavior="overwrite_or_ignore",
            max_open_files=OPEN,
            min_rows_per_group=ROW_GROUP,
            max_rows_per_group=ROW_GROUP,
            use_threads=False,
            create_dir=place.system.type_name in ("local", "hdfs"),  # the others have no directories
            file_visitor=done,
        )
    except BaseException:
        below = fs.FileSelector(place.path(table), allow_not_found=True, recursive=True)
        with suppress(FileNotFoundError):  # what is being made, or removed, by another run
            for info in place.system.get_file_info(below):
                if info.base_name.startswith(token):
                    place.system.delete_file(info.path)
        raise
    return made


def remove(place: Place, table: str, files: Iterable[Written]) -> None:
    """Remove data files that no version has, as far as that can be done: what stays is swept later."""
    for one in files:
        with suppress(OSError):
            place.system.delete_file(place.path(table, one.file.path))


def _written(path: str, size: int, metadata: Any) -> Written:
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name, told = column.path_in_schema, column.statistics
            if name in _INDEXED and told is not None and told.has_min_max:
                least[name] = min(least.get(name, told.min), told.min)
                most[name] = max(most.get(name, told.max), told.max)
    stats = {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": {}}
    named, _, day = path.partition("/")[0].partition("=")
    last = most.get("last_at")
    file = DataFile(
        path,
        metadata.num_rows,
        size,
        day if named == DAY_COLUMN and day != NO_DAY else None,
        last and last.date().isoformat(),
    )
    return Written(file, json.dumps(stats, default=lambda at: at.isoformat()))
