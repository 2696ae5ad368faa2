"""Rows of DataFrames from and into data files of a table, by tasks of Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from shadowaudit.spark import planning
from shadowaudit.spark.tables.data import Written, write
from shadowaudit.spark.tables.schemas import TABLES
from shadowaudit.spark.tables.store import DataFile, Place

_NATIVE = ("local", "hdfs")
_READ_AT_ONCE = 64 << 20


def written(frame: DataFrame, place: Place, table: str) -> list[Written]:
    """Data files with these rows, which have the table's columns. No version has them yet.

    Files of a task that failed, or was done twice, stay until a sweep. Raises what Spark raises.
    """
    uri = place.uri

    def task(batches: Iterable[Any]) -> Iterator[Any]:
        made = [json.dumps(asdict(one)) for one in write(Place.of(uri), table, batches)]
        yield pa.RecordBatch.from_arrays([pa.array(made, pa.string())], names=["file"])

    told = [json.loads(row.file) for row in frame.mapInArrow(task, "file string").collect()]
    return [Written(DataFile(**one["file"]), one["stats"]) for one in told]


def frame(
    spark: SparkSession, place: Place, table: str, files: Sequence[DataFile], columns: Sequence[str] = ()
) -> DataFrame:
    """The rows of these data files of a table; of these columns, if they are told.

    Spark reads Parquet itself where it has the file system; else pyarrow does, in tasks of Python.
    """
    chosen = TABLES[table].only(columns) if columns else TABLES[table]
    if not files:
        return spark.createDataFrame([], chosen.ddl)
    if place.system.type_name in _NATIVE:
        root = f"file://{place.root}" if place.is_local else place.uri.partition("?")[0].rstrip("/")
        paths = [f"{root}/{table}/{one.path}" for one in files]
        return spark.read.schema(chosen.ddl).option("basePath", f"{root}/{table}").parquet(*paths)
    parts, uri, schema = list(planning.parts(files, _READ_AT_ONCE)), place.uri, chosen.arrow

    def task(batches: Iterable[Any]) -> Iterator[Any]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            rows = Place.of(uri).dataset(table, parts[number])
            for batch in rows.to_batches(columns=schema.names, batch_size=10_000, use_threads=False):
                yield batch.cast(schema)

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(task, chosen.ddl)
