"""Tracking logs for Spark: a Python data source for queries and streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from shadowaudit.logs.lines import Room
from shadowaudit.spark import columns, places, planning
from shadowaudit.spark.columns import COLUMNS, NAMED, RECORD, Column, chosen
from shadowaudit.spark.event_rows import batches, further
from shadowaudit.spark.options import EVERYTHING, OptionError, Options
from shadowaudit.spark.places import Log
from shadowaudit.spark.planning import Offset, Piece, Wanted

NAME = "message_tracking"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

_TYPES: dict[str, DataType] = {
    columns.TEXT: StringType(),
    columns.LONG: LongType(),
    columns.INT: IntegerType(),
    columns.TIME: TimestampType(),
    columns.LIST: ArrayType(StringType()),
    columns.MAP: MapType(StringType(), StringType()),
    columns.FILES: StructType(
        [
            StructField("file_path", StringType()),
            StructField("file_name", StringType()),
            StructField("file_size", LongType()),
            StructField("file_modification_time", TimestampType()),
        ]
    ),
}
_AT_ONCE = 16  # files of which the header is read
_OPTION = "option."
"""What Spark writes before the options of a table, among its other properties."""

_TIME, _NODE = ("date_time",), (columns.NODE,)


def register(spark: Any) -> None:
    """Make the format known to that session, and let Spark hand filters to data sources like this one.

    Spark finds the format by itself, too (``pyspark_message_tracking``), where the package is installed.
    """
    spark.dataSource.register(MessageTracking)
    spark.conf.set(PUSHDOWN, "true")


class MessageTracking(DataSource):
    """``spark.read.format("message_tracking")``. docs/reference/events.md tells of columns and options."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        table = _of_table(self.options)
        options = Options.of(self.options if table is None else table, self.own)
        fields = [StructField(name, _TYPES[one.type]) for name, one in _columns(options).items()]
        if table is not None:
            fields[0].metadata = {NAME: dict(table)}
        return StructType(fields)

    own: tuple[str, ...] = ()
    """Options that are no user's."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader(schema, self.asked(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(schema, self.asked(schema))

    def asked(self, schema: StructType) -> Options:
        """Spark takes ``.schema(…)`` and drops ours; a reader that is used again keeps it."""
        options = Options.of(_kept(schema) | dict(self.options), self.own)
        options.where()
        told = list(schema.names)
        if options.columns and (named := list(_columns(options))) != told:
            raise OptionError(
                f".schema(…) has {', '.join(told)}; the option columns has {', '.join(named)}: give one"
            )
        return options


def _columns(options: Options) -> dict[str, Column]:
    """Those that are asked for, by the names that they are to have. Raises NoSuchColumnError."""
    others = _others(options.logs()) if options.merges else []
    every = [*(one.name for one in COLUMNS), *others]
    names = [
        one
        for name in options.columns or (EVERYTHING,)
        for one in (every if name == EVERYTHING else [RECORD if name == options.record else name])
    ]
    return {options.record if one.name == RECORD else one.name: one for one in chosen(names, others)}


def _others(logs: Sequence[Log]) -> list[str]:
    """Columns that these logs have beside those of events, in the order in which they come."""

    def of(log: Log) -> list[str]:
        with places.opened(log) as file:
            return further(file)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(dict.fromkeys(name for names in pool.map(of, logs) for name in names))


def _of_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """The options of a table, if Spark asks for its columns to make it; None for any other read.

    ``CREATE TABLE`` is the only time that Spark tells them. What reads the table later is told its columns
    alone, so these keep the options, as metadata of the first.
    """
    if "provider" not in given:
        return None
    options = {name.removeprefix(_OPTION): text for name, text in given.items() if name.startswith(_OPTION)}
    place = given.get("location") or given.get("path")
    return options | ({"path": place} if place else {})


def _kept(schema: StructType) -> dict[str, str]:
    kept: dict[str, str] = schema.fields[0].metadata.get(NAME, {}) if schema.fields else {}
    return dict(kept)


class Part(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(tuple(pieces))

    @property
    def pieces(self) -> tuple[Piece, ...]:
        found: tuple[Piece, ...] = self.value
        return found

    @classmethod
    def of(cls, logs: Sequence[Log], octets: int) -> list[Part]:
        """So many octets in each."""
        return [cls(some) for some in planning.parts(planning.pieces(logs, octets), octets)]


class _Reading:
    """How rows are read, of a query as of a stream."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self.options = options
        self.wanted = Wanted()
        self.told = arrow(schema)
        names = [RECORD if name == options.record else name for name in schema.names]
        others = set(names) - NAMED.keys() if options.merges else ()
        shape = pa.schema([field.with_name(name) for field, name in zip(self.told, names, strict=True)])
        self.shape = columns.checked(shape, others)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        room = Room()
        for piece in partition.pieces if isinstance(partition, Part) else ():
            with places.opened(piece.log) as file:
                for batch in batches(
                    file,
                    piece.log.uri,
                    self.shape,
                    mode=self.options.mode,
                    wants_node=self.wanted.has_node,
                    wants_times=self.wanted.has_times if self.wanted.timed else None,
                    room=room,
                    listed=piece.log,
                    begin=piece.begin,
                    end=piece.end,
                ):
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=self.told)


def arrow(schema: StructType) -> Any:
    """A schema of Spark as Arrow's."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


class _Taking:
    """A reader's ``pushFilters``, which Spark takes for the one that reads anything.

    Else it refuses a source that takes filters wherever ``PUSHDOWN`` is not set.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, take: Callable[[Filter], None]) -> None:
        self._take = take

    def __call__(self, filters: Sequence[Filter]) -> Iterator[Filter]:
        """All of them: Spark looks at each row all the same."""
        for one in filters:
            self._take(one)
        return iter(filters)


class Reader(_Reading, DataSourceReader):
    """Files that may have rows which the query asks for."""

    @property
    def pushFilters(self) -> _Taking:
        return _Taking(self._narrow)

    def _narrow(self, one: Filter) -> None:
        self.wanted = narrowed(self.wanted, one)

    def partitions(self) -> list[Part]:
        logs = planning.needed(self.options.logs(whole=True), self.wanted)
        return Part.of(logs, self.options.part)


def narrowed(wanted: Wanted, one: Filter) -> Wanted:
    """And that holds, too. Filters that do not tell which files are needed change nothing."""
    match one:
        case EqualTo(attribute, str(name)) | EqualNullSafe(attribute, str(name)) if attribute == _NODE:
            return wanted.of_nodes([name])
        case In(attribute, names) if attribute == _NODE:
            return wanted.of_nodes(name for name in names if isinstance(name, str))
        case EqualTo(attribute, datetime() as at) | EqualNullSafe(attribute, datetime() as at) if (
            attribute == _TIME and at.tzinfo
        ):
            return wanted.later_than(at).earlier_than(at)
        case GreaterThan(attribute, datetime() as at) | GreaterThanOrEqual(attribute, datetime() as at) if (
            attribute == _TIME and at.tzinfo
        ):
            return wanted.later_than(at)
        case LessThan(attribute, datetime() as at) | LessThanOrEqual(attribute, datetime() as at) if (
            attribute == _TIME and at.tzinfo
        ):
            return wanted.earlier_than(at)
        case _:
            return wanted


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """New files, and whole again those that grew. The offset names the files that were read lately."""

    def __init__(self, schema: StructType, options: Options) -> None:
        super().__init__(schema, options)
        self._only: list[Log] | None = None

    def initialOffset(self) -> Offset:
        return {}

    def prepareForTriggerAvailableNow(self) -> None:
        self._only = self.options.logs()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.files_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        logs = self.options.logs() if self._only is None else self._only
        new = sorted(planning.beyond(logs, start), key=lambda log: (log.modified, log.uri))
        some = new[: limit.max_files] if isinstance(limit, ReadMaxFiles) else new
        return planning.offset_of(some, planning.shortened(start, new)) if some else start

    def partitions(self, start: Offset, end: Offset) -> list[Part]:
        if start == end:
            return []
        logs = self.options.logs()
        return Part.of(planning.between(logs, start, end), self.options.part)

    def commit(self, end: Offset) -> None:
        pass
