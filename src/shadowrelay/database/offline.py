"""What a disk does to the database of a node that does not run: a bit flips, or an old page is there again.

For those who break nodes on purpose. No other process may use the database meanwhile.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

from shadowrelay.core.identifiers import MessageId
from shadowrelay.database.opening import FILE
from shadowrelay.database.queries import load

SQL = load("offline.sql")

ROWS = ("message", "recipient", "holder")
"""Tables whose rows decide what becomes of a message."""

TABLES = (*ROWS, "content")
_IN_ONE_PAGE = 480  # octets of a row that stand together, however long it is
_PIECE = 64  # octets of a content by which its place is found

RowsByTable = Mapping[str, Sequence[tuple[object, ...]]]
"""What there is of one message, by table."""


def rows_of(directory: Path, ids: Collection[MessageId]) -> dict[MessageId, RowsByTable]:
    """The rows of these messages. Of one that is not there, none in each table."""
    with _opened(directory) as connection:
        return {
            one: {table: connection.execute(SQL[table], (one,)).fetchall() for table in TABLES} for one in ids
        }


def put_back(directory: Path, message_id: MessageId, tables: Collection[str], former: RowsByTable) -> None:
    """Of a message these tables have their former rows again, and no others."""
    with _opened(directory) as connection, connection:
        for table in tables:
            connection.execute(SQL[f"drop_{table}"], (message_id,))
            for row in former[table]:
                values = ", ".join("?" * len(row))
                connection.execute(SQL["put"].format(table=table, values=values), row)


def flip_row(directory: Path, message_id: MessageId, chance: Random) -> bool:
    """Flip a bit of a row in the file, behind SQLite's back: its indexes have what was there before.

    False if there is none, or it is not found.
    """
    found = rows_of(directory, (message_id,))[message_id]
    rows = [row for table in ROWS for row in found[table]]
    return bool(rows) and _flip(directory / FILE, record(chance.choice(rows)), chance)


def flip_body(directory: Path, message_id: MessageId, chance: Random) -> bool:
    """Flip a bit of a content that stands in the database. False if there is none, or it is not found."""
    for _, data, _ in rows_of(directory, (message_id,))[message_id]["content"]:
        if isinstance(data, bytes) and data:
            at = chance.randrange(max(1, len(data) - _PIECE))
            return _flip(directory / FILE, data[at : at + _PIECE], chance)
    return False


def flipped(octets: bytes, chance: Random) -> bytes:
    """The same but for one bit; nothing if there is none."""
    if not octets:
        return octets
    at = chance.randrange(len(octets))
    return octets[:at] + bytes([octets[at] ^ (1 << chance.randrange(8))]) + octets[at + 1 :]


def record(row: Sequence[object]) -> bytes:
    """A row as it stands in the file (SQLite's file format, 2.1). Text, numbers, blobs and NULL alone."""
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
    """Of less than 2^14."""
    return bytes([value]) if value < 128 else bytes([128 | value >> 7, value & 127])


def _flip(file: Path, octets: bytes, chance: Random) -> bool:
    """Wherever these octets stand in the file: pages that are no part of the database any more, too."""
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
    """When it is closed, all of the write-ahead log is in the file."""
    with closing(sqlite3.connect(directory / FILE)) as connection:
        yield connection
