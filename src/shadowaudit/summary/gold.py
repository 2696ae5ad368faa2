"""The gold tables that a summary reads: their columns, and the rows of some days and one node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
from pyarrow import compute

from shadowaudit.summary.model import FLOWS

Names = pa.dictionary(pa.int32(), pa.string())
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "traffic": ("hour", "node", *FLOWS),
    "domains": ("day", "node", "side", "domain", "messages", "addresses", "octets"),
    "sizes": ("day", "node", "step", "messages", "octets"),
    "latencies": ("day", "node", "next_hop", "step", "deliveries"),
    "reasons": (
        "day", "node", "event_id", "next_hop", "code", "status", "reply", "times", "recipients", "example",
    ),
    "promotions": ("day", "node", "owner", "reason", "messages"),
    "findings": ("severity", "class", "node"),
}  # fmt: skip
"""What a summary needs of each table. ``findings`` is there once a verdict was published."""


class NoSuchNodeError(Exception):
    """No row is about that node. ``str()`` names the nodes that there are."""


@dataclass(frozen=True, slots=True)
class Gold:
    """The tables by name. A table may have more columns, and rows in any order."""

    tables: Mapping[str, Any]

    def chosen(self, since: date | None, until: date | None, node: str | None) -> Gold:
        """The rows of these days, and of this node. Raises NoSuchNodeError.

        Findings have no day: all of the node's stay.
        """
        if node is not None:
            self._check(node)
        return Gold({name: _rows(table, since, until, node) for name, table in self.tables.items()})

    def _check(self, node: str) -> None:
        nodes: set[str] = set()
        for table in self.tables.values():
            nodes.update(one for one in compute.unique(table["node"]).to_pylist() if one)
        if node not in nodes:
            known = ", ".join(sorted(nodes)) if nodes else "none"
            raise NoSuchNodeError(f"the tables have no node {node!r}; nodes are: {known}")


def _rows(table: Any, since: date | None, until: date | None, node: str | None) -> Any:
    wanted = []
    for bound, test in ((since, compute.greater_equal), (until, compute.less)):
        if bound is not None and (column := _time(table)) is not None:
            wanted.append(test(column, _as(bound, column.type)))
    if node is not None:
        wanted.append(compute.equal(table["node"], node))
    for mask in wanted[1:]:
        wanted[0] = compute.and_(wanted[0], mask)
    return table.filter(wanted[0]) if wanted else table


def _time(table: Any) -> Any:
    return next((table[name] for name in ("day", "hour") if name in table.column_names), None)


def _as(day: date, kind: Any) -> Any:
    """The beginning of that day."""
    if pa.types.is_date(kind):
        return pa.scalar(day, kind)
    moment = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return pa.scalar(moment if kind.tz else moment.replace(tzinfo=None), kind)
