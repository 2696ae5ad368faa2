"""Rows of a DataFrame into data files of a table, written by its tasks; the driver learns which."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from shadowaudit.spark.tables import parts
from shadowaudit.spark.tables.parts import Written
from shadowaudit.spark.tables.publishing import Run
from shadowaudit.spark.tables.store import DataFile, Place

NAME = "message_tables"


def register(spark: SparkSession) -> None:
    """Make the writer known to that session. A repeated call does no harm."""
    spark.dataSource.register(MessageTables)


def write(frame: DataFrame, run: Run, table: str) -> list[Written]:
    """Data files with these rows, which have the table's columns. They are not current yet.

    Raises what Spark raises.
    """
    with TemporaryDirectory(prefix="shadowaudit-") as scratch:
        receipt = Path(scratch) / "receipt.json"
        told = {"uri": run.place.uri, "table": table, "prefix": run.prefix, "receipt": str(receipt)}
        frame.write.format(NAME).options(**told).mode("append").save()
        found = json.loads(receipt.read_text("utf-8"))
    return [Written(DataFile.of(one["file"]), one["logs"]) for one in found]


@dataclass(frozen=True, slots=True)
class Made(WriterCommitMessage):
    """The data files of a task."""

    files: tuple[Written, ...]


class MessageTables(DataSource):
    """What a read of the tables, and a write, needs.

    To write: ``uri`` of the tables, ``table``, ``prefix`` of names, and ``receipt``: a file of the driver's
    machine, to name the data files.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001
        del schema, overwrite
        return Writer({name: self.options[name] for name in ("uri", "table", "prefix", "receipt")})


class Writer(DataSourceArrowWriter):
    """The tasks write, and Spark carries what they say to the driver's machine."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        place = Place.of(self.options["uri"])
        return Made(tuple(parts.write(place, self.options["table"], self.options["prefix"], iterator)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        found = [asdict(one) for message in messages if isinstance(message, Made) for one in message.files]
        Path(self.options["receipt"]).write_text(json.dumps(found), "utf-8")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        files = [one.file for message in messages if isinstance(message, Made) for one in message.files]
        Place.of(self.options["uri"]).remove(one.path for one in files)
