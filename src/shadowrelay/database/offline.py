"""Damages the database of a stopped node as a disk does: flips a bit, or puts an old page back.

For tests that break nodes on purpose. No other process may use the database meanwhile.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from random import Random

from shadowrelay.core.identifiers import MessageId
from shadowrelay.database.opening import FILE
from shadowrelay.database.queries import load

SQL = load("offline.sql")

ROWS = ("message", "recipient", "holder")
"""Tables whose rows decide what becomes of a message."""

TOLD = ("discard_event", "outcome", "tombstone")
"""Tables whose rows say what became of a message."""

TABLES = (*ROWS, "content", "shared_content")
_IN_ONE_PAGE = 480  # octets: the part of a row that is in one page, however long the row is
_LEAVES = frozenset({10, 13})  # kinds of pages
_PIECE = 64  # octets of a content by which it is found in the file


class IndexWay(StrEnum):
    """How to damage an index. BIT: one bit of one entry. PAGE: one bit of each entry of a page. DOUBLE: a
    page has what another one has, if there are two.
    """

    BIT = "bit"
    PAGE = "page"
    DOUBLE = "double"


RowsByTable = Mapping[str, Sequence[tuple[object, ...]]]
"""The rows of one message, by table."""


def rows_of(directory: Path, ids: Collection[MessageId]) -> dict[MessageId, RowsByTable]:
    """The rows of these messages; a message that is not there has no rows in any table."""
    with _opened(directory) as connection:
        return {
            one: {table: connection.execute(SQL[table], (one,)).fetchall() for table in TABLES} for one in ids
        }


def put_back(directory: Path, message_id: MessageId, tables: Collection[str], former: RowsByTable) -> None:
    """Replace a message's rows in these tables by the former ones."""
    with _opened(directory) as connection, connection:
        for table in tables:
            connection.execute(SQL[f"drop_{table}"], (message_id,))
            for row in former[table]:
                values = ", ".join("?" * len(row))
                connection.execute(SQL["put"].format(table=table, values=values), row)


def flip_row(directory: Path, message_id: MessageId, chance: Random) -> bool:
    """Flip a bit of a row in the file, behind SQLite's back: the indexes keep the old value.

    Returns False if there is no row, or it is not found in the file.
    """
    found = rows_of(directory, (message_id,))[message_id]
    rows = [row for table in ROWS for row in found[table]]
    return bool(rows) and _flip(directory / FILE, record(chance.choice(rows)), chance)


def flip_told(directory: Path, message_id: MessageId, chance: Random) -> int:
    """Flip a bit of each row that says what became of a message: waiting discard events, its outcome, and the
    tombstone of an offer. Returns how many were found in the file.
    """
    with _opened(directory) as connection:
        rows = [row for table in TOLD for row in connection.execute(SQL[table], (message_id,)).fetchall()]
    # A row has no number of its own in the file: that is its place.
    stored = [(None, *row[1:]) if isinstance(row[0], int) else row for row in rows]
    return sum(_flip(directory / FILE, record(row), chance) for row in stored)


def flip_body(directory: Path, message_id: MessageId, chance: Random) -> bool:
    """Flip a bit of the content that a message uses. Returns False if the database has none, or it is not
    found in the file.
    """
    found = rows_of(directory, (message_id,))[message_id]
    for _, of in found["shared_content"]:
        found = rows_of(directory, (MessageId(str(of)),))[MessageId(str(of))]
    for _, data, _ in found["content"]:
        if isinstance(data, bytes) and data:
            at = chance.randrange(max(1, len(data) - _PIECE))
            return _flip(directory / FILE, data[at : at + _PIECE], chance)
    return False


def indexes(directory: Path) -> tuple[str, ...]:
    """The indexes, in the order of their names."""
    with _opened(directory) as connection:
        return tuple(row[0] for row in connection.execute(SQL["indexes"]))


def spoil_index(directory: Path, name: str, way: IndexWay, chance: Random) -> bool:
    """Change a page of an index, or of a table, behind SQLite's back. Returns False if it has no entries."""
    with _opened(directory) as connection:
        root = connection.execute(SQL["root"], (name,)).fetchone()[0]
    return spoil_tree(directory / FILE, root, way, chance)


def spoil_tree(file: Path, root: int, way: IndexWay, chance: Random) -> bool:
    """The same, for the b-tree that begins at page ``root`` of the file."""
    octets = file.read_bytes()
    size = int.from_bytes(octets[16:18], "big")
    found = {page: cells for page, cells in _cells(octets, size, root).items() if cells}
    if not found:
        return False
    leaves = [page for page in found if octets[(page - 1) * size] in _LEAVES and page != 1]
    if way is IndexWay.DOUBLE and len(leaves) > 1:
        one, other = chance.sample(sorted(leaves), 2)
        with file.open("r+b") as stored:
            stored.seek((one - 1) * size)
            stored.write(octets[(other - 1) * size : other * size])
            os.fsync(stored.fileno())
        return True
    cells = found[chance.choice(sorted(found))]
    with file.open("r+b") as stored:
        for begin, end in cells if way is IndexWay.PAGE else (chance.choice(cells),):
            at = chance.randrange(begin, end)
            stored.seek(at)
            stored.write(bytes([octets[at] ^ 1 << chance.randrange(8)]))
        os.fsync(stored.fileno())
    return True


def _cells(octets: bytes, size: int, root: int) -> dict[int, list[tuple[int, int]]]:
    """Where the records of a b-tree are, by page (SQLite's file format, 1.6): begin and end of the values of
    each. Takes pages as a sound database has them.
    """
    found: dict[int, list[tuple[int, int]]] = {}
    pages = [root]
    while pages:
        page = pages.pop()
        start = (page - 1) * size
        header = start + (100 if page == 1 else 0)
        inner, numbered = octets[header] in {2, 5}, octets[header] in {5, 13}
        if inner:
            pages.append(_number(octets, header + 8, 4))
        found[page] = []
        for index in range(_number(octets, header + 3, 2)):
            at = start + _number(octets, header + (12 if inner else 8) + 2 * index, 2)
            if inner:
                pages.append(_number(octets, at, 4))
                at += 4
            if inner and numbered:
                continue
            length, at = _varint_at(octets, at)
            if numbered:
                _, at = _varint_at(octets, at)
            values, _ = _varint_at(octets, at)
            if length > values:
                found[page].append((at + values, min(at + min(length, _IN_ONE_PAGE), start + size)))
    return found


def _number(octets: bytes, at: int, length: int) -> int:
    return int.from_bytes(octets[at : at + length], "big")


def _varint_at(octets: bytes, at: int) -> tuple[int, int]:
    """A varint, and where it ends."""
    value = 0
    while octets[at] & 128:
        value = value << 7 | octets[at] & 127
        at += 1
    return value << 7 | octets[at], at + 1


def flipped(octets: bytes, chance: Random) -> bytes:
    """The octets with one bit flipped; empty octets stay empty."""
    if not octets:
        return octets
    at = chance.randrange(len(octets))
    return octets[:at] + bytes([octets[at] ^ (1 << chance.randrange(8))]) + octets[at + 1 :]


def record(row: Sequence[object]) -> bytes:
    """A row as the file has it (SQLite's file format, 2.1). Takes text, numbers, blobs and NULL."""
    types, values = zip(*map(_serial, row), strict=True)
    header = b"".join(map(_varint, types))
    return _varint(len(header) + 1) + header + b"".join(values)


def _serial(value: object) -> tuple[int, bytes]:
    match value:
        case None:
            return 0, b""
        case 0 | 1:
            return 8 + int(value), b""
        case int():
            for kind, size in enumerate((1, 2, 3, 4, 6, 8), 1):
                if -(1 << (8 * size - 1)) <= value < 1 << (8 * size - 1):
                    return kind, value.to_bytes(size, "big", signed=True)
        case str():
            octets = value.encode()
            return 13 + 2 * len(octets), octets
        case bytes():
            return 12 + 2 * len(value), value
    raise TypeError(f"no such value is stored: {value!r}")


def _varint(value: int) -> bytes:
    """A SQLite varint for a value below 2^14."""
    return bytes([value]) if value < 128 else bytes([128 | value >> 7, value & 127])


def _flip(file: Path, octets: bytes, chance: Random) -> bool:
    """Flip a bit of these octets wherever the file has them, also in pages the database no longer uses."""
    pages = file.read_bytes()
    if octets not in pages:
        octets = octets[:_IN_ONE_PAGE]
    changed, at = flipped(octets, chance), pages.find(octets)
    if at < 0:
        return False
    with file.open("r+b") as stored:
        while at >= 0:
            stored.seek(at)
            stored.write(changed)
            at = pages.find(octets, at + len(octets))
        os.fsync(stored.fileno())
    return True


@contextmanager
def _opened(directory: Path) -> Iterator[sqlite3.Connection]:
    """Open the database; closing it brings the whole write-ahead log into the file."""
    with closing(sqlite3.connect(directory / FILE)) as connection:
        yield connection
