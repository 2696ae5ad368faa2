"""Rows of a DataFrame into data files of a table, written by its tasks; the driver learns which."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from shadowaudit.spark.tables.data import Written, remove, write
from shadowaudit.spark.tables.store import Place

NAME = "message_tables"


def register(spark: SparkSession) -> None:
    """Make the writer known to that session. A repeated call does no harm."""
    spark.dataSource.register(MessageTables)


def written(frame: DataFrame, place: Place, table: str) -> list[Written]:
    """Data files with these rows, which have the table's columns. No version has them yet.

    Raises what Spark raises.
    """
    with TemporaryDirectory(prefix="shadowaudit-") as scratch:
        receipt = Path(scratch) / "receipt"
        told = {"uri": place.uri, "table": table, "receipt": str(receipt)}
        frame.write.format(NAME).options(**told).mode("append").save()
        found: list[Written] = pickle.loads(receipt.read_bytes())  # noqa: S301  # this process wrote it
    return found


@dataclass(frozen=True, slots=True)
class Made(WriterCommitMessage):
    """The data files of a task."""

    files: tuple[Written, ...]


class MessageTables(DataSource):
    """What a write of a table needs.

    ``uri`` of the tables, ``table``, and ``receipt``: a file of the driver's machine, to tell of data files.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001
        del schema, overwrite
        return Writer({name: self.options[name] for name in ("uri", "table", "receipt")})


class Writer(DataSourceArrowWriter):
    """The tasks write, and Spark carries what they say to the driver's machine."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return Made(tuple(write(Place.of(self.options["uri"]), self.options["table"], iterator)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        Path(self.options["receipt"]).write_bytes(pickle.dumps(_files(messages)))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        remove(Place.of(self.options["uri"]), self.options["table"], _files(messages))


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    return [one for message in messages if isinstance(message, Made) for one in message.files]
