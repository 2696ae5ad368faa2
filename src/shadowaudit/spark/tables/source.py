"""What the tables lack, as a data source for one run and for a stream; and their data files as DataFrames."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from shadowaudit.spark import planning
from shadowaudit.spark.options import Options
from shadowaudit.spark.places import Log
from shadowaudit.spark.planning import Offset
from shadowaudit.spark.source import MessageTracking, Part, Reader, StreamReader, arrow
from shadowaudit.spark.tables import writer
from shadowaudit.spark.tables.logs import Known
from shadowaudit.spark.tables.schemas import TABLES
from shadowaudit.spark.tables.store import DataFile, Place, state

NEW, PARTS = "message_tracking_new", "message_tables_parts"
_NATIVE = ("local", "hdfs")
_READ_AT_ONCE = 64 << 20


def register(spark: SparkSession) -> None:
    """Make all that the tables need known to that session. A repeated call does no harm."""
    for one in (NewLogs, DataFiles):
        spark.dataSource.register(one)
    writer.register(spark)


def events_of(spark: SparkSession, logs: Sequence[Log]) -> DataFrame:
    """The events of these logs, which were listed already."""
    listed = json.dumps([astuple(log) for log in logs])
    return spark.read.format(NEW).options(path="-", logs=listed).load()


def events_beyond(spark: SparkSession, places: Sequence[str], uri: str, options: dict[str, str]) -> DataFrame:
    """A stream of the events below these places that the tables at ``uri`` lack when it begins."""
    return spark.readStream.format(NEW).options(paths=json.dumps(list(places)), tables=uri, **options).load()


class NewLogs(MessageTracking):
    """``message_tracking`` for logs that are told one by one; a stream begins where the tables end."""

    own = ("logs", "tables")

    @classmethod
    def name(cls) -> str:
        return NEW

    def reader(self, schema: StructType) -> DataSourceReader:
        return ListedReader(
            schema, self.asked(schema), [Log(*one) for one in json.loads(self.options["logs"])]
        )

    def streamReader(self, schema: StructType) -> StreamReader:
        return BeyondReader(schema, self.asked(schema), self.options["tables"])


class ListedReader(Reader):
    """These logs, and no look for others."""

    def __init__(self, schema: StructType, options: Options, logs: Sequence[Log]) -> None:
        super().__init__(schema, options)
        self.logs = tuple(logs)

    def partitions(self) -> list[Part]:
        return Part.of(self.logs, self.options.part)


class BeyondReader(StreamReader):
    """Logs that are not in the tables yet: these say how far it has come, and no checkpoint."""

    def __init__(self, schema: StructType, options: Options, uri: str) -> None:
        super().__init__(schema, options)
        self.uri = uri

    def initialOffset(self) -> Offset:
        return Known.of(state(Place.of(self.uri))).offset


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
        base = _native(place, table)
        paths = [f"{base}/{one.path}" for one in files]
        return spark.read.schema(chosen.ddl).option("basePath", base).parquet(*paths)
    told = json.dumps([astuple(one) for one in files])
    options = {"uri": place.uri, "table": table, "files": told}
    return spark.read.format(PARTS).schema(chosen.ddl).options(**options).load()


def _native(place: Place, table: str) -> str:
    if place.is_local:
        return f"file://{place.path(table)}"
    return f"{place.uri.partition('?')[0].rstrip('/')}/{table}"


class DataFiles(DataSource):
    """Data files of a table through pyarrow's file systems: ``uri``, ``table``, ``files``."""

    @classmethod
    def name(cls) -> str:
        return PARTS

    def reader(self, schema: StructType) -> DataSourceReader:
        files = [DataFile(*one) for one in json.loads(self.options["files"])]
        return FilesReader(schema, self.options["uri"], self.options["table"], files)


class FilesReader(DataSourceReader):
    """Some data files in each task."""

    def __init__(self, schema: StructType, uri: str, table: str, files: Sequence[DataFile]) -> None:
        self.schema, self.uri, self.table, self.files = arrow(schema), uri, table, files

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(some) for some in planning.parts(self.files, _READ_AT_ONCE)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        rows = Place.of(self.uri).dataset(self.table, partition.value)
        for batch in rows.to_batches(columns=self.schema.names, batch_size=10_000, use_threads=False):
            yield batch.cast(self.schema)
