"""The gold tables that a summary needs, read by pyarrow from the files that the current versions have."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import compute, parquet

from shadowaudit.core.workers import nodes_of
from shadowaudit.spark.tables.schemas import TABLES
from shadowaudit.spark.tables.store import Current, DataFile, Place, TablesError
from shadowaudit.summary.model import FLOWS, Asked
from shadowaudit.summary.sums import empty, having

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "traffic": ("hour", "node", *FLOWS),
    "domains": ("node", "side", "domain", "messages", "addresses", "octets"),
    "sizes": ("node", "step", "messages", "octets"),
    "latencies": ("node", "next_hop", "step", "deliveries"),
    "reasons": ("node", "event_id", "next_hop", "code", "status", "reply", "times", "recipients", "example"),
    "promotions": ("node", "owner", "reason", "messages"),
    "findings": ("severity", "class", "node"),
    "files": ("problems",),
}
"""What a summary needs of each table. The day of a row is that of its file."""

_REPEATED = ("node", "side", "domain", "next_hop", "event_id", "reply", "severity", "class")
"""Columns whose values come again and again: read as numbers of a dictionary."""

_NAMES = pa.dictionary(pa.int32(), pa.string())
_BY_NODE = ("traffic", "promotions")
_WHOLE = ("findings", "files")
"""Tables without days."""

_FAR = 16  # files read at a time where each wants a question over the network


class NoSuchNodeError(Exception):
    """No row is about that node. ``str()`` names the nodes that there are."""


@dataclass(frozen=True, slots=True)
class Gold:
    """The tables by name: all of ``COLUMNS`` but findings, which are there if a verdict was published.

    A table may have more columns, and rows in any order. ``verdict``: the published one, if there is one.
    ``messages``: how many the tables have, in all days.
    """

    tables: Mapping[str, Any]
    verdict: Mapping[str, Any] | None = None
    messages: int = 0

    def of(self, node: str) -> Gold:
        """The rows of that node, or of that worker of one; all files. Raises NoSuchNodeError."""
        nodes = nodes_of(one for one in compute.unique(self.tables["traffic"]["node"]).to_pylist() if one)
        servers = [name for name in sorted(nodes) if node in (name, nodes[name])]
        if not servers:
            known = ", ".join(sorted({*nodes.values()})) or "none"
            raise NoSuchNodeError(f"the tables have no node {node!r} in these days; nodes are: {known}")
        chosen = {
            name: pa.concat_tables([having(table, "node", one) for one in servers])
            for name, table in self.tables.items()
            if name != "files"
        }
        return replace(self, tables={**self.tables, **chosen})


def read(current: Current, asked: Asked) -> Gold:
    """The rows of the days asked for, of all nodes. Raises TablesError for a file that cannot be read.

    Findings and files have no day: all of them are read.
    """
    verdict = current.verdict
    shapes = {name: _shape(name, asked) for name in COLUMNS if name != "findings" or verdict is not None}
    with ThreadPoolExecutor(_at_a_time(current)) as pool:
        reads = {
            name: [
                pool.submit(_part, current.place, name, one, shape) for one in _files(current, name, asked)
            ]
            for name, shape in shapes.items()
        }
        parts = {name: [empty(shapes[name]), *(one.result() for one in some)] for name, some in reads.items()}
    tables = {name: pa.concat_tables(some).unify_dictionaries() for name, some in parts.items()}
    return Gold(tables, verdict, current.rows("messages"))


def _at_a_time(current: Current) -> int:
    return (os.cpu_count() or 2) if current.place.is_local else _FAR


def _files(current: Current, name: str, asked: Asked) -> Iterator[DataFile]:
    since = asked.since.isoformat() if asked.since else ""
    until = asked.until.isoformat() if asked.until else ""
    for one in current.files(name):
        chosen = bool(one.day) and since <= (one.day or "") and (not until or (one.day or "") < until)
        if one.rows and (chosen or name in _WHOLE):
            yield one


def _shape(name: str, asked: Asked) -> Any:
    """The columns that are read of a table. That of nodes is read where it is needed."""
    known = TABLES[name].arrow
    wanted = [one for one in COLUMNS[name] if one != "node" or asked.node or name in _BY_NODE]
    return pa.schema([(one, _NAMES if one in _REPEATED else known.field(one).type) for one in wanted])


def _part(place: Place, name: str, file: DataFile, shape: Any) -> Any:
    """The rows of one file. A column that an old file has not is null."""
    try:
        with place.system.open_input_file(place.path(name, file.path)) as opened:
            found = _opened(opened, shape).read(shape.names, use_threads=False)
        if found.schema.equals(shape):
            return found
        for missing in [field for field in shape if field.name not in found.column_names]:
            found = found.append_column(missing, pa.nulls(len(found), missing.type))
        return found.select(shape.names).cast(shape)
    except (pa.ArrowInvalid, OSError) as problem:
        raise TablesError(f"{name}/{file.path} of the tables cannot be read: {problem}") from None


def _opened(file: Any, shape: Any) -> Any:
    try:
        return parquet.ParquetFile(file, read_dictionary=[name for name in shape.names if name in _REPEATED])
    except KeyError:  # an old file has no such column
        return parquet.ParquetFile(file)
