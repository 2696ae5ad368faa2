"""Compares the rows of every table with their sums, in parts: of each that has a column ``row_sum``.

Rows of messages are not among them: the scrub reads those message by message.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterator
from dataclasses import field
from datetime import datetime
from typing import Any

import structlog

from shadowrelay.core.decisions import Decision, SaveDamaged, UnsoundEvent
from shadowrelay.core.events.discard_notices import order_listeners
from shadowrelay.core.events.said_again import said_again
from shadowrelay.core.identifiers import DatabaseId, MessageId, ServerName
from shadowrelay.core.values import dataclass
from shadowrelay.database import sums
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queries import load
from shadowrelay.database.sums import SqlRow

log = structlog.get_logger(__name__)

SQL = load("summed.sql")

NOBODY = DatabaseId("")

OF_MESSAGES = frozenset({"message", "recipient", "holder"})


@dataclass(frozen=True, slots=True)
class SummedTable:
    """A table whose rows have a sum. ``columns``: what the sum is over. ``key``: what tells rows apart."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    def text(self, query: str, most: int = 1) -> str:
        given = {"columns": ", ".join(self.columns), "key": ", ".join(self.key), "table": self.name}
        return SQL[query].format(most=most, place=", ".join("?" * len(self.key)), **given)

    def place(self, row: SqlRow) -> SqlRow:
        """The key of a row."""
        return tuple(row[self.columns.index(one)] for one in self.key)


def tables(connection: sqlite3.Connection) -> Iterator[SummedTable]:
    """Every table whose rows have a sum, as the file has them."""
    for (name,) in connection.execute(SQL["tables"]).fetchall():
        rows = connection.execute(SQL["columns"], (name,)).fetchall()
        key = tuple(one for one, pk in sorted(rows, key=lambda row: row[1]) if pk)
        yield SummedTable(name, tuple(one for one, _ in rows if one != "row_sum"), key)


@dataclass(slots=True)
class SumRound:
    """One round through all rows. Call ``part`` in a transaction each time, until ``done``.

    ``compared``: rows so far. ``damaged``: those that differ from their sums.
    """

    compared: int = 0
    damaged: int = 0
    done: bool = False
    _left: deque[SummedTable] | None = None
    _place: SqlRow = field(default=())

    def part(self, ledger: SqlLedger, most: int, now: datetime) -> None:
        """Compare up to ``most`` rows of one table. A row of a version before sums gets its sum."""
        if self._left is None:
            self._left = deque(one for one in tables(ledger.connection) if one.name not in OF_MESSAGES)
        table, run = self._left[0], ledger.connection.execute
        query = table.text("behind" if self._place else "first", most)
        rows = run(query, self._place).fetchall()
        for row in rows:
            self.compared += 1
            if sums.sound(sums.one, row) is None:
                self.damaged += 1
                log.error("row_damaged", table=table.name, key=[str(one) for one in table.place(row)])
                _mend(ledger, table.name, row, now)
            elif row[-1] is None:
                run(table.text("put_sum"), table.place(row))
        self._place = table.place(rows[-1]) if len(rows) == most else ()
        if not self._place:
            self._left.popleft()
        self.done = not self._left


def _mend(ledger: SqlLedger, table: str, row: SqlRow, now: datetime) -> None:
    """Most rows are not believed when they are read, and are made again by those who have what they say."""
    match table:
        case "discard_event":
            ledger.apply(said_again(ledger, _unsound(ledger, *row[:3]), now))
        case "damaged":
            if found := ledger.damaged(MessageId(row[0])):
                ledger.apply(Decision(None, (SaveDamaged(found),)))


def _unsound(ledger: SqlLedger, number: int, addressee: Any, message_id: Any) -> Iterator[UnsoundEvent]:
    """The event, for whoever may be its addressee: what says who that is may be what is damaged."""
    copy = ledger.copy(MessageId(message_id)) if isinstance(message_id, str) else None
    known = [one.lineage for one in ledger.members()]
    known += [one.lineage for one in ledger.hop_rows.peers_but(ServerName(""))]
    named = [one.database_id for one in known if one and one.database_id == addressee]
    for one in dict.fromkeys((*named, *(order_listeners(ledger, copy) if copy else ()))) or [NOBODY]:
        yield UnsoundEvent(number, one, message_id)
