"""The rows of one file as Arrow batches of typed columns. What cannot be read is a row, too, and says why.

Only what the file holds is told so: what keeps it from being read at all raises OSError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shadowaudit.core.facts import Fault, Flavour
from shadowaudit.logs import exchange
from shadowaudit.logs.layout import NAME, Layout, comments, encoding_of
from shadowaudit.logs.lines import Block, Readable, Reading, Room
from shadowaudit.logs.rows import Table, not_text, read
from shadowaudit.spark.columns import (
    ARROW,
    DATABASE,
    EPOCH,
    FILE,
    FILES,
    INCARNATION,
    INT,
    LINE,
    LIST,
    LONG,
    MAP,
    METADATA,
    NAMED,
    NODE,
    PROBLEM,
    RECORD,
    SEQUENCE,
    SOFTWARE,
    TEXT,
    TIME,
    Column,
    named,
)
from shadowaudit.spark.places import Log, name_of
from shadowaudit.spark.values import Entries, lists, nothing_as_null, numbers, statuses, texts, times

ROWS = 10_000
"""In a batch, at most."""

_ENTRIES = {DATABASE: "Db", INCARNATION: "Boot", SEQUENCE: "Seq", EPOCH: "Epoch"}
_TYPED = ("date-time", "internal-message-id", "total-bytes", "recipient-count")
_LOOKED_AT = (*_TYPED, "event-id", "server-hostname", "client-hostname", "custom-data")
"""Whatever is asked for."""
_OCTETS = "octets that are not UTF-8 are shown as U+FFFD"

_HEAD = 16 << 10  # octets of a file that its header is in

Array = Any  # of pyarrow, which has no types
Batch = Any


class Mode(StrEnum):
    """What becomes of rows that cannot be read, as in Spark's own sources."""

    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"
    FAILFAST = "FAILFAST"


class MalformedError(ValueError):
    """Something cannot be read, and was not to be put up with."""


def batches(
    file: Readable,
    uri: str,
    schema: Any,
    *,
    mode: Mode = Mode.PERMISSIVE,
    wants_node: Callable[[str | None], bool] = lambda _: True,
    wants_times: Callable[[datetime, datetime], bool] | None = None,
    room: Room | None = None,
    listed: Log | None = None,
    begin: int = 0,
    end: int | None = None,
) -> Iterator[Batch]:
    """Record batches of that schema (``columns.checked``). A file of a node that nobody wants is left early;
    rows between whose times nobody wants any may be missing. ``listed``: what ``_metadata`` tells. Only rows
    that begin from ``begin`` on and before ``end``; what is wrong with the file is told behind its last one.

    Raises OSError, and MalformedError if ``mode`` says so.
    """
    checks = mode is not Mode.PERMISSIVE or PROBLEM in schema.names or RECORD in schema.names
    asked = wants_times if mode is Mode.PERMISSIVE else None  # else each row is looked at
    for batch in _Events(uri, schema, wants_node, asked, room, listed, checks=checks).of(file, begin, end):
        good = batch if mode is Mode.PERMISSIVE else _good(batch, uri, mode)
        told = pa.RecordBatch.from_arrays([good.column(name) for name in schema.names], schema=schema)
        for first in range(0, len(told), ROWS):
            yield told.slice(first, ROWS)


def _good(batch: Batch, uri: str, mode: Mode) -> Batch:
    problems = batch.column(PROBLEM)
    if problems.null_count == len(batch):
        return batch
    if mode is Mode.FAILFAST:
        first = int(np.flatnonzero(problems.is_valid().to_numpy(zero_copy_only=False))[0])
        line = batch.column(LINE)[first].as_py()
        raise MalformedError(f"{uri}{'' if line is None else f', line {line}'}: {problems[first].as_py()}")
    return batch.filter(problems.is_null())


def _between(block: Block, begin: int, end: int | None) -> Block:
    """Its rows that begin there in the file."""
    at = block.begins + block.at
    keep = at >= begin if end is None else (at >= begin) & (at < end)
    return block if keep.all() else block.only(keep)


class _Events:
    def __init__(
        self,
        uri: str,
        schema: Any,
        wants_node: Callable[[str | None], bool],
        wants_times: Callable[[datetime, datetime], bool] | None,
        room: Room | None,
        listed: Log | None,
        *,
        checks: bool,
    ) -> None:
        self.uri = uri
        self.metadata = _metadata(listed) if listed else None
        self.checks = checks
        self.schema = pa.schema([*schema, *(pa.field(n, t) for n, t in _TOLD if n not in schema.names)])
        self.wants_node = wants_node
        self.wants_times = wants_times
        self.reading = Reading(Path(uri), room)
        self.node: str | None = None
        self.faults: dict[str, None] = {}
        self.rows = 0
        self.beginning = b""
        if found := NAME.fullmatch(name_of(uri)):
            self.node = found["node"]

    def of(self, file: Readable, begin: int, end: int | None) -> Iterator[Batch]:
        if not self.wants_node(self.node):
            return
        above: set[str] = set()
        for block in self.reading.blocks_of(file):
            if end is not None and block.at >= end:
                break
            self.beginning = self.beginning or block.octets[:64].tobytes()
            self.rows += block.rows
            if not self.reading.layout.usable:
                self.faults[Fault.NO_FIELDS] = None
                continue
            some = _between(block, begin, end)
            if self.node is None and some.rows < block.rows:
                self._rows(block)  # the first rows of a file tell who wrote it
                above = set(self.faults)
            if some.rows:
                rows = self._rows(some)
                if self.wants_node(self.node) and self._has_times(rows):
                    yield self._batch(some, rows)
            if not self.wants_node(self.node):
                return
        if end is None:
            self._compare()
        else:  # of the whole file the last piece tells
            self.faults = {one: None for one in self.faults if one == Fault.WRONG_HEADER and one not in above}
        if self.faults:
            yield self._told()

    def _has_times(self, rows: Table) -> bool:
        """May one of the rows be of a time that is wanted? One without a time is of none."""
        if self.wants_times is None:
            return True
        found = pc.min_max(times(nothing_as_null(rows["date-time"])))
        first, last = found["min"].as_py(), found["max"].as_py()
        return first is not None and self.wants_times(first, last)

    @property
    def _ours(self) -> bool:
        return self.reading.layout.flavour is Flavour.RELAY

    def _rows(self, block: Block) -> Table:
        fields = self.reading.layout.fields
        asked = (field for field in fields if named(field) in self.schema.names)
        table = read(block, fields, (*_LOOKED_AT, *asked), strict=self._ours)
        if not self._ours and exchange.is_ours(table):
            self.faults[Fault.WRONG_HEADER] = None
            self.reading.layout.flavour = Flavour.RELAY  # then it is read as what it is
            return self._rows(block)
        if self.node is None and len(table):
            other = None if self._ours else Path(self.uri).parent.name or None
            self.node = exchange.first_server(table) or other
        return table

    def _batch(self, block: Block, rows: Table) -> Batch:
        """All rows of the block, those that cannot be read among them."""
        good, count = rows.index, block.rows
        made = _Made(rows, self.reading.layout.fields, ours=self._ours)
        place = np.full(count, -1)
        place[good] = np.arange(len(good))
        order = None if len(good) == count else pa.array(place, mask=place < 0)
        problems, records = self._problems(block, rows, made)
        told = {
            FILE: pa.repeat(pa.scalar(self.uri), count),
            LINE: pa.array(block.lines, pa.int64()),
            SOFTWARE: pa.repeat(pa.scalar(str(self.reading.layout.flavour)), count),
            NODE: pa.repeat(pa.scalar(self.node, pa.string()), count),
            METADATA: pa.repeat(pa.scalar(self.metadata, ARROW[FILES]), count),
            PROBLEM: problems,
            RECORD: records,
        }
        arrays = []
        for name in self.schema.names:
            if name in told:
                arrays.append(told[name])
            else:
                column = made.column(name)
                arrays.append(column if order is None else column.take(order))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _problems(self, block: Block, rows: Table, made: _Made) -> tuple[Array, Array]:
        """What is wrong with each row, and the text of those with something wrong."""
        none = pa.nulls(block.rows, pa.string())
        if not self.checks:
            return none, none
        found: dict[int, list[str]] = {}
        fields = self.reading.layout.fields
        for row in rows.unreadable:
            found[row] = [f"this is not a row of the {len(fields)} columns in #Fields"]
        for where, text in made.problems():
            for row in rows.index[where].tolist():
                found.setdefault(row, []).append(text)
        if not self._ours:
            for row in np.intersect1d(not_text(block), rows.index).tolist():
                found.setdefault(row, []).append(_OCTETS)
        if not found:
            return none, none
        told: list[str | None] = [None] * block.rows
        raw = list(told)
        for row, problems in found.items():
            told[row] = "; ".join(problems)
            raw[row] = block.row(row).decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
        return pa.array(told, pa.string()), pa.array(raw, pa.string())

    def _compare(self) -> None:
        """Is it whole, and as it was closed?"""
        layout = self.reading.layout
        if not layout.usable:
            self.faults[Fault.NO_FIELDS] = None
        if Fault.NO_FIELDS in self.faults:
            return
        found = layout.closing_faults(name_of(self.uri), self.reading.sha256(), self.rows)
        self.faults |= dict.fromkeys(found)

    def _told(self) -> Batch:
        """A row for each thing that is wrong with the file as a whole."""
        rows = []
        for fault in self.faults:
            text = str(fault)
            if fault == Fault.NO_FIELDS and (encoding := encoding_of(self.beginning)):
                text += f" (it is {encoding}: convert it to UTF-8)"
            software = str(self.reading.layout.flavour) if fault != Fault.NO_FIELDS else None
            told = {FILE: self.uri, SOFTWARE: software, NODE: self.node, METADATA: self.metadata}
            rows.append(told | {PROBLEM: text})
        columns = [[row.get(name) for row in rows] for name in self.schema.names]
        arrays = [pa.array(one, field.type) for one, field in zip(columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _metadata(log: Log) -> dict[str, Any]:
    at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=log.modified // 1000)
    return {
        "file_path": log.uri,
        "file_name": name_of(log.uri),
        "file_size": log.size,
        "file_modification_time": at if log.modified else None,
    }


def further(file: Readable) -> list[str]:
    """The columns that a log names at its beginning, and that no event has: texts, as they stand there."""
    head, layout = bytearray(_HEAD), Layout()
    for line in comments(bytes(head[: file.readinto(head) or 0])):
        layout.comment(line)
    return [name for name in map(named, layout.fields) if name and name not in NAMED]


_TOLD = ((LINE, pa.int64()), (PROBLEM, pa.string()))
"""What is always found out."""


class _Made:
    """Typed columns of a block's rows, each made once."""

    def __init__(self, rows: Table, fields: tuple[str, ...], *, ours: bool) -> None:
        self._rows = rows
        self._fields = {named(field): field for field in fields}
        self._ours = ours
        self._made: dict[str, Array] = {}
        self._cells: dict[str, Array] = {}
        self._taken: Entries | None = None

    def column(self, name: str) -> Array:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Array:
        column = NAMED.get(name) or Column(name, TEXT, self._fields.get(name, name))
        if name in _ENTRIES:
            found = self._entries().named(_ENTRIES[name]) if self._ours else self._none()
            return numbers(found, column.type) if column.type in (LONG, INT) else nothing_as_null(found)
        cells = self._cell(column.field)
        if column.type == TIME:
            return times(cells)
        if column.type in (LONG, INT):
            return numbers(cells, column.type)
        if column.type == LIST:
            return statuses(cells) if column.field == "recipient-status" else lists(cells)
        return self._entries().maps() if column.type == MAP else cells

    def problems(self) -> Iterator[tuple[Any, str]]:
        """Which rows, and what is wrong with them."""
        for field in _TYPED:
            cells, made = self._cell(field), self.column(field.replace("-", "_"))
            if made.null_count > cells.null_count:
                kind = "time" if field == "date-time" else "number"
                yield _both(made.is_null(), cells.is_valid()), f"{field} is not a {kind}"
        for field in ("date-time", "event-id"):
            if self._cell(field).null_count:
                yield _both(self._cell(field).is_null()), f"{field} is empty"
        if self._ours:
            for name in (SEQUENCE, INCARNATION, DATABASE):
                if self.column(name).null_count:
                    yield _both(self.column(name).is_null()), f"custom-data has no valid S:{_ENTRIES[name]}"

    def _cell(self, field: str) -> Array:
        if field not in self._cells:
            made = texts if self._ours else nothing_as_null
            self._cells[field] = made(self._rows[field]) if field in self._rows.columns else self._none()
        return self._cells[field]

    def _entries(self) -> Entries:
        if self._taken is None:
            self._taken = Entries.of(self._cell("custom-data"))
        return self._taken

    def _none(self) -> Array:
        return pa.nulls(len(self._rows), pa.string())


def _both(one: Array, other: Array | None = None) -> Any:
    found = one if other is None else pc.and_(one, other)
    return np.flatnonzero(found.to_numpy(zero_copy_only=False))
