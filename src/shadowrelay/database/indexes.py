"""Compares indexes with the rows of their tables, in parts, and builds an index that differs again.

SQLite believes an index. An entry that a bad disk changed hides its row from every query that goes through
the index, while the row, and its sum, are as they were. So each row is looked up again through every index
that must have it, and by its own key; and each entry of an index is looked up among the rows. The indexes are
those of the file itself (``sqlite_schema``), so none can be forgotten.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from shadowrelay.core.members.damage import Counted
from shadowrelay.core.safety_net import resubmission
from shadowrelay.core.values import dataclass
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.opening import is_corrupt
from shadowrelay.database.queries import load
from shadowrelay.database.sums import SqlRow
from shadowrelay.database.tally import Tally

SQL = load("indexes.sql")

ROWS = 500
"""Rows, or entries, that are compared in one part: all other writes wait meanwhile."""

SETTLED = "recipient_settled"
"""The index by which Safety Net is searched for what was settled in a window."""

OF_MESSAGES = ("recipient", "message")
"""Tables in which an id of a message begins the key. They come first: by them mail is found that is due."""

_NONE = "1"  # the condition of an index that has every row


@dataclass(frozen=True, slots=True)
class Index:
    """An index: its columns, or expressions; and its condition, if it is a partial one."""

    name: str
    columns: tuple[str, ...]
    condition: str = _NONE


@dataclass(frozen=True, slots=True)
class Table:
    """A table. ``key``: the columns that tell its rows apart. ``own``: the name by which SQLite builds the
    table itself again, if it is kept in the order of its key (WITHOUT ROWID).
    """

    name: str
    key: tuple[str, ...]
    own: str | None
    indexes: tuple[Index, ...]

    @property
    def itself(self) -> str:
        """The table in a FROM clause, so that SQLite finds its rows by their keys alone."""
        return f"{self.name} INDEXED BY {self.own}" if self.own else f"{self.name} NOT INDEXED"

    def entry(self, index: Index) -> tuple[str, ...]:
        """What an entry of an index has, in the order of the index."""
        return (*index.columns, *(one for one in self.key if one not in index.columns))


def tables(connection: sqlite3.Connection) -> tuple[Table, ...]:
    """Every table of the file, with its indexes."""
    found = []
    for name, sql in connection.execute(SQL["tables"]).fetchall():
        keyed = "WITHOUT ROWID" in sql
        columns = connection.execute(SQL["key"], (name,)).fetchall()
        numbers = [one for one, kind in columns if kind == "INTEGER"]
        key = tuple(one for one, _ in columns) if keyed else (*numbers, "rowid")[:1]
        rows = connection.execute(SQL["indexes"], (name,)).fetchall()
        own = f"sqlite_autoindex_{name}_1" if keyed else None
        found.append(Table(name, key, own, tuple(_index(connection, *row) for row in rows)))
    return tuple(found)


def _index(connection: sqlite3.Connection, name: str, sql: str | None) -> Index:
    if sql is None:  # of a UNIQUE or PRIMARY KEY
        return Index(name, tuple(row[0] for row in connection.execute(SQL["columns"], (name,))))
    columns, condition = _parts(sql)
    return Index(name, columns, condition)


def _parts(sql: str) -> tuple[tuple[str, ...], str]:
    """Columns and condition in the text of an index."""
    parts, depth, begin = [], 0, sql.index("(") + 1
    for at in range(begin, len(sql)):
        if sql[at] == "(":
            depth += 1
        elif sql[at] == ")" and depth:
            depth -= 1
        elif sql[at] in ",)" and not depth:
            parts.append(sql[begin:at].strip())
            begin = at + 1
            if sql[at] == ")":
                break
    rest = sql[begin:].split(maxsplit=1)
    return tuple(parts), rest[1] if rest else _NONE


@dataclass(frozen=True, slots=True)
class Differs:
    """An index, or the order of a table, in which rows are missing, or that has rows that are not there.

    ``index``: the name by which it is built again; None if SQLite cannot do that: a table with row numbers.
    """

    table: str
    index: str | None


@dataclass(slots=True)
class _Rows:
    """Each row of a table: is it found by its key, and through every index that must have it?"""

    table: Table
    indexes: tuple[Index, ...]
    place: SqlRow | None = None

    def part(self, ledger: SqlLedger, most: int) -> tuple[int, Iterable[Differs]]:
        rows = _behind(ledger, "rows", self.given(), self.table.key, self.place, most)
        length = len(self.table.key)
        self.place = rows[-1][:length] if len(rows) == most else None
        names = (self.table.own, *(one.name for one in self.indexes))
        bad = [any(flags) for flags in zip(*(row[length:] for row in rows), strict=True)]
        return len(rows), [
            Differs(self.table.name, name) for name, one in zip(names, bad, strict=False) if one
        ]

    def given(self) -> Mapping[str, str]:
        table = self.table
        told = (*table.key, *(each for one in self.indexes for each in (*one.columns, one.condition)))
        names = _names(told)
        key = ", ".join(names[one] for one in table.key)
        before = ", ".join(f"lag({names[one]}) OVER ()" for one in table.key)
        same = _same(table.key, names)
        flags = [SQL["not_by_key"].format(key=key, before=before, table=table.itself, same=same)]
        for one in self.indexes:
            given = {"meant": names[one.condition], "same": _same(table.entry(one), names)}
            text = SQL["not_by_index"]
            flags.append(text.format(table=table.name, index=one.name, condition=one.condition, **given))
        return {"key": key, "flags": ", ".join(flags), "told": _told(names), "table": table.itself}


@dataclass(slots=True)
class _Entries:
    """Each entry of an index: is there such a row?"""

    table: Table
    index: Index
    place: SqlRow | None = None

    def part(self, ledger: SqlLedger, most: int) -> tuple[int, Iterable[Differs]]:
        entry, differs = self.table.entry(self.index), (Differs(self.table.name, self.index.name),)
        try:
            rows = _behind(ledger, "entries", self.given(), entry, self.place, most)
        except sqlite3.DatabaseError as error:  # an entry leads to a row number that no row has
            if not is_corrupt(error):
                raise
            self.place = None
            return 1, differs
        self.place = rows[-1][: len(entry)] if len(rows) == most else None
        strays = [row for row in rows if row[-1]]
        if self.table.name in OF_MESSAGES:
            at = entry.index(self.table.key[0])
            _tell_missing(ledger, {row[at] for row in strays})
        return len(rows), differs if strays else ()

    def given(self) -> Mapping[str, str]:
        table, names = self.table, _names(self.table.entry(self.index))
        return {
            "entry": ", ".join(names.values()),
            "rows": table.itself,
            "condition": self.index.condition,
            "same": _same(names, names),
            "told": _told(names),
            "table": table.name,
            "index": self.index.name,
        }


def _tell_missing(ledger: SqlLedger, ids: Iterable[Any]) -> None:
    """Entries have no rows. If another row of the message is there, its own is gone: that is damage."""
    for message_id in ids:
        if ledger.connection.execute(SQL["known"], (message_id,)).fetchone()[0]:
            ledger.expected(message_id)


def _names(told: Iterable[str]) -> dict[str, str]:
    """A name for each expression, by which an outer query tells it to the inner ones."""
    return {one: f'"~{number}"' for number, one in enumerate(dict.fromkeys(told))}


def _told(names: Mapping[str, str]) -> str:
    return ", ".join(f"({one}) AS {name}" for one, name in names.items())


def _same(columns: Iterable[str], names: Mapping[str, str]) -> str:
    return " AND ".join(f"{one} IS {names[one]}" for one in columns)


def _behind(
    ledger: SqlLedger,
    query: str,
    given: Mapping[str, str],
    order: Sequence[str],
    place: SqlRow | None,
    most: int,
) -> list[SqlRow]:
    """Up to ``most`` rows behind a place."""
    found: list[SqlRow] = []
    for behind, values in searches(order, place):
        if len(found) < most:
            text = SQL[query].format(behind=behind, **given)
            found += ledger.connection.execute(text, (*values, most - len(found))).fetchall()
    return found


def searches(order: Sequence[str], place: SqlRow | None) -> Iterator[tuple[str, SqlRow]]:
    """One search for each column that may be the first to differ from the place, one after the other.

    A comparison of whole places would leave out rows with NULL.
    """
    if place is None:
        yield f"1 ORDER BY {', '.join(order)}", ()
        return
    for length in reversed(range(len(order))):
        known = place[length] is not None
        same = [f"{one} IS ?" for one in order[:length]]
        behind = f"{order[length]} > ?" if known else f"{order[length]} IS NOT NULL"
        yield f"{' AND '.join([*same, behind])} ORDER BY {', '.join(order[length:])}", place[: length + known]


@dataclass(frozen=True, slots=True)
class ComparedPart:
    """What one part of a round found: how many rows and entries were compared, and what differs."""

    compared: int
    differs: tuple[Differs, ...] = ()


@dataclass(slots=True)
class Comparison:
    """One round through every table and index, or through ``only`` that index and its table.

    Call ``part`` in a transaction each time, until ``done``.
    """

    only: str | None = None
    rows: int = 0
    done: bool = False
    _walks: deque[_Rows | _Entries] | None = None
    _found: set[Differs] = field(default_factory=set)

    def part(self, ledger: SqlLedger, most: int = ROWS) -> ComparedPart:
        """Compare the next ``most`` rows and entries. Tells each difference once."""
        if self._walks is None:
            self._walks = deque(self._planned(ledger))
        compared, searched, news = 0, 0, dict[Differs, None]()
        while self._walks and compared + searched < most:
            walk = self._walks[0]
            count, differs = walk.part(ledger, most - compared)
            compared += count
            searched += 1
            news |= dict.fromkeys(one for one in differs if one not in self._found)
            if walk.place is None:
                self._walks.popleft()
        self._found |= news.keys()
        self.rows += compared
        self.done = not self._walks
        return ComparedPart(compared, tuple(news))

    def _planned(self, ledger: SqlLedger) -> Iterator[_Rows | _Entries]:
        found = tables(ledger.connection)
        for table in sorted(found, key=lambda one: one.name not in OF_MESSAGES):
            meant = tuple(one for one in table.indexes if self.only in (None, one.name))
            if meant or self.only is None:
                yield _Rows(table, meant)
                yield from (_Entries(table, one) for one in meant)


def structure(connection: sqlite3.Connection) -> str:
    """What is wrong with the pages of the file; empty if nothing is. Takes seconds for a million messages.

    To build an index again, SQLite frees its pages. If one of them led to a page of another table, that table
    would lose the page.
    """
    try:
        found: str = connection.execute(SQL["structure"]).fetchone()[0]
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
        return str(error)
    return "" if found == "ok" else found


class CannotRebuild(Exception):
    """Two rows have the same key: only a salvage of the file helps."""


def rebuild(ledger: SqlLedger, index: str) -> None:
    """Make an index anew of the rows; what was looked up or counted through it is looked up again.

    All other writes wait meanwhile: two seconds for a million rows. An empty name means all indexes. Raises
    CannotRebuild.
    """
    try:
        ledger.connection.execute(SQL["rebuild"].format(index=index))
    except sqlite3.IntegrityError as error:
        raise CannotRebuild(str(error)) from error
    ledger.damage[Counted.INDEX] += 1
    ledger.scratch -= 1  # SQLite counts no row, but what was read through the index is read again
    ledger.planned += 1  # what is due was perhaps not found
    ledger.forget_recent()
    ledger.hop_shadow_rows.refresh()
    if ledger.tally.place is None:
        ledger.tally = Tally()
        ledger.tally.count(ledger.connection, None)
    ledger.apply(resubmission.looked_at_again(ledger))
