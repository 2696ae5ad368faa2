"""What a verdict merges, for Spark: facts of each log, and partial states of messages, many in one cell.

A row is either one log's facts, or a block: the states that some logs add to the messages of one bucket
(``engine.blocks``). Rows that cross from Python to Java cost; blocks are few.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from shadowaudit.core.facts import FileFacts
from shadowaudit.engine.blocks import NAMES, packed
from shadowaudit.logs.file import digest, digest_file
from shadowaudit.logs.lines import Room
from shadowaudit.spark import places, planning
from shadowaudit.spark.places import Log

NAME = "message_tracking_states"
LOG, BUCKET, BLOCK, FACTS = "log", "bucket", "block", "facts"

_SHAPE = pa.schema([(LOG, pa.int32()), (BUCKET, pa.int32()), (BLOCK, pa.binary()), (FACTS, pa.string())])
_TOGETHER = 300_000
"""States that a task keeps before it makes blocks of them: 80 MB."""


class States(DataSource):
    """``spark.read.format("message_tracking_states")``: ``log`` and ``facts``, or ``bucket`` and ``block``.

    Options: ``logs`` (``told`` makes it), ``buckets``, and ``maxPartitionBytes``, the octets of logs a task.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return StructType(
            [
                StructField(LOG, IntegerType()),
                StructField(BUCKET, IntegerType()),
                StructField(BLOCK, BinaryType()),
                StructField(FACTS, StringType()),
            ]
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        given = self.options
        return _Reader(
            heard(given["logs"]),
            int(given["buckets"]),
            int(given.get("maxPartitionBytes") or planning.PART),
        )


def told(logs: Iterable[Log]) -> str:
    """The option ``logs``: these logs as they were listed, so that nobody lists a bucket again."""
    return json.dumps([[one.uri, one.size, one.modified, one.place, one.path] for one in logs])


def heard(option: str) -> tuple[Log, ...]:
    """The inverse of ``told``."""
    return tuple(Log(*one) for one in json.loads(option))


class _Part(InputPartition):
    """The logs that one task reads, with their numbers."""

    def __init__(self, logs: Sequence[tuple[int, Log]]) -> None:
        super().__init__(tuple(logs))


class _Reader(DataSourceReader):
    def __init__(self, logs: Sequence[Log], buckets: int, octets: int) -> None:
        self.logs, self.buckets, self.octets = logs, buckets, octets

    def partitions(self) -> list[_Part]:
        numbers = {log.uri: number for number, log in enumerate(self.logs)}
        return [
            _Part([(numbers[log.uri], log) for log in some])
            for some in planning.parts(self.logs, self.octets)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        room = Room()
        waiting: list[Any] = []
        for number, log in partition.value:
            facts, states = read(log, room)
            yield _row({LOG: number, FACTS: facts.to_json()})
            if len(states):
                waiting.append(numbered(states, number))
            if sum(map(len, waiting)) >= _TOGETHER:
                yield from self._blocks(waiting)
                waiting = []
        yield from self._blocks(waiting)

    def _blocks(self, tables: Sequence[Any]) -> Iterator[Any]:
        if tables:
            table = pa.concat_tables(tables)
            states = {name: table.column(name).to_numpy() for name in NAMES}
            for bucket, block in packed(states, self.buckets):
                yield _row({BUCKET: bucket, BLOCK: block})


def read(log: Log, room: Room) -> tuple[FileFacts, Any]:
    """Facts and partial states of that log. What is wrong with it is in its facts, never raised."""
    if places.is_local(log):
        return digest_file(Path(log.path), room)
    return digest(log.uri, lambda: places.opened(log), size=log.size, modified=log.modified, room=room)


def numbered(states: Any, number: int) -> Any:
    """The table with that number of a log in each row."""
    return states.append_column("file", pa.array(np.full(len(states), number, dtype=np.int32)))


def _row(cells: dict[str, Any]) -> Any:
    """A batch of its own, as a block may be large."""
    return pa.RecordBatch.from_pylist([{name: cells.get(name) for name in _SHAPE.names}], schema=_SHAPE)
