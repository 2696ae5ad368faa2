"""What the tables lack, as a data source for one run and for a stream."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from shadowaudit.spark.options import Options
from shadowaudit.spark.places import Log
from shadowaudit.spark.planning import Offset
from shadowaudit.spark.source import MessageTracking, Part, Reader, StreamReader
from shadowaudit.spark.tables.logs import Known
from shadowaudit.spark.tables.store import Place, state

NEW = "message_tracking_new"


def register(spark: SparkSession) -> None:
    """Make it known to that session. A repeated call does no harm."""
    spark.dataSource.register(NewLogs)


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
