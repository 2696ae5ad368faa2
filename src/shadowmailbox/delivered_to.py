"""Keeps the DeliveredTo table, by which a mailbox server recognises what it has delivered already.

A row is written after the message's file is safe, and before the sender is told. A crash between file and
row leaves a delivered message without its row: its retry becomes a second file, never a lost message.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiosqlite

from shadowrelay.core.values import dataclass
from shadowrelay.database import sums
from shadowrelay.database.queries import load

MOST_TRACKING = timedelta(days=49)
TOO_LONG = (
    "duplicates are tracked for at most 49 days: Exchange counts its interval in 32 bits of milliseconds"
)


_SQL = load("delivered_to.sql", __package__)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_ANY_TIME = (-(2**62), 2**62)  # in milliseconds


class TableError(Exception):
    """The table could not be read or written; nothing was changed."""


class TableUnusable(TableError):
    """The table cannot be opened safely; the text says why, for the operator."""


class TableInUse(TableUnusable):
    """Another process has the table open."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The key of a delivery. ``message_id`` is a hash of the content if the message has no Message-ID."""

    message_id: str
    date: str
    recipient: str


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Some of the rows: of these recipients (None: of all), delivered from ``since`` on and before ``until``.

    Times are aware, None is any time. A recipient is spelt as in ``Delivered``, in any case.
    """

    recipients: tuple[str, ...] | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a table, or a part of it, remembers: how many rows, and the times of the oldest and newest."""

    rows: int
    oldest: datetime | None
    newest: datetime | None


@dataclass(slots=True)
class _Write:
    statement: str
    rows: Sequence[tuple[Any, ...]]
    done: asyncio.Future[int]


class DeliveredTo:
    """The table, on one connection with one writer: waiting writes share a transaction and its fsync."""

    def __init__(self, connection: aiosqlite.Connection, track: timedelta) -> None:
        self._connection = connection
        self._track = track
        self._waiting: list[_Write] = []
        self._wake = asyncio.Event()
        self._closing = False
        self._writer = asyncio.create_task(self._write_all())

    @classmethod
    async def open(cls, path: Path, *, track: timedelta) -> DeliveredTo:
        """Open or create the table. Deliveries older than ``track`` are forgotten.

        Raises ValueError for a ``track`` over 49 days, and TableUnusable if another process has the file or
        the file is not ours.
        """
        if not timedelta(0) <= track <= MOST_TRACKING:
            raise ValueError(TOO_LONG)
        connection = await aiosqlite.connect(path, timeout=0)
        try:
            await _prepare(connection)
        except sqlite3.Error as error:
            await connection.close()
            if "locked" in str(error):
                raise TableInUse(f"{path}: in use by another process") from None
            raise TableUnusable(f"{path}: {error}") from None
        except TableUnusable:
            await connection.close()
            raise
        return cls(connection, track)

    async def known(self, keys: Iterable[Delivered], now: datetime) -> frozenset[Delivered]:
        """Those that were delivered within the tracking time. Raises TableError."""
        since = _milliseconds(now - self._track)
        found = set()
        try:
            for key in keys:
                row = (key.message_id, key.date, key.recipient, since)
                async with self._connection.execute(_SQL["known"], row) as cursor:
                    # A damaged row is none: the worst is one more delivery.
                    if (there := await cursor.fetchone()) and sums.sound(sums.one, tuple(there)):
                        found.add(key)
        except sqlite3.Error as error:
            raise TableError(str(error)) from error
        return frozenset(found)

    async def record(self, keys: Iterable[Delivered], now: datetime) -> None:
        """Record deliveries; they are on disk when this returns. Idempotent. Raises TableError."""
        at = _milliseconds(now)
        await self._written("record", [(key.message_id, key.date, key.recipient, at) for key in keys])

    async def sweep(self, now: datetime) -> int:
        """Delete rows older than the tracking time; returns how many. Raises TableError."""
        return await self._written("sweep", [(_milliseconds(now - self._track),)])

    async def oldest(self, now: datetime) -> datetime | None:
        """When the oldest delivery was that is still within the tracking time. Raises TableError."""
        [(oldest,)] = await self._read("oldest", (_milliseconds(now - self._track),))
        return _time(oldest)

    async def rows(self) -> int:
        """How many rows there are. Raises TableError."""
        [(rows,)] = await self._read("rows")
        return int(rows)

    async def remembered(self) -> Remembered:
        """What the whole table remembers. Raises TableError."""
        [row] = await self._read("ends")
        return _remembered(*row)

    async def by_domain(self, most: int) -> dict[str, Remembered]:
        """What it remembers of each recipient domain: the ``most`` with the most rows. Raises TableError."""
        return {domain: _remembered(*rest) for domain, *rest in await self._read("by_domain", (most,))}

    async def count(self, which: Deliveries) -> int:
        """How many rows ``forget`` would delete now. Raises TableError."""
        found = 0
        for row in _selected(which):
            [(rows,)] = await self._read("count" if which.recipients is None else "count_of_recipient", row)
            found += rows
        return found

    async def forget(self, which: Deliveries) -> int:
        """Delete rows, all or none; returns how many. They are gone from the disk when this returns.

        Their messages are delivered once more if they come again. Raises TableError.
        """
        statement = "forget" if which.recipients is None else "forget_recipient"
        return await self._written(statement, _selected(which))

    async def close(self) -> None:
        """Write what waits, and close the file."""
        self._closing = True
        self._wake.set()
        await self._writer
        await self._connection.close()

    async def _read(self, statement: str, row: tuple[Any, ...] = ()) -> list[Any]:
        try:
            async with self._connection.execute(_SQL[statement], row) as cursor:
                return list(await cursor.fetchall())
        except (sqlite3.Error, ValueError) as error:  # ValueError: the connection is closed
            raise TableError(str(error)) from error

    async def _written(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Returns how many rows were changed."""
        if self._closing:
            raise TableError("the table is closed")
        write = _Write(statement, rows, asyncio.get_running_loop().create_future())
        self._waiting.append(write)
        self._wake.set()
        return await write.done

    async def _write_all(self) -> None:
        while not (self._closing and not self._waiting):
            await self._wake.wait()
            self._wake.clear()
            batch, self._waiting = self._waiting, []
            if not batch:
                continue
            changed = await self._commit(batch)
            for number, write in enumerate(batch):
                if write.done.done():
                    continue  # its caller was cancelled
                if isinstance(changed, TableError):
                    write.done.set_exception(changed)
                else:
                    write.done.set_result(changed[number])

    async def _commit(self, batch: Sequence[_Write]) -> list[int] | TableError:
        """How many rows each write changed, or why none did."""
        changed = []
        try:
            for write in batch:
                async with self._connection.executemany(_SQL[write.statement], write.rows) as cursor:
                    changed.append(cursor.rowcount)
            await self._connection.commit()
        except sqlite3.Error as error:
            await self._connection.rollback()
            return TableError(str(error))
        return changed


async def _prepare(connection: aiosqlite.Connection) -> None:
    await connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    async with connection.execute("PRAGMA journal_mode = WAL") as cursor:
        row = await cursor.fetchone()
    if row is None or row[0] != "wal":
        raise TableUnusable("no write-ahead log on this file system")
    await connection.execute("PRAGMA synchronous = FULL")
    await connection.create_function("row_sum", -1, sums.row_sum, deterministic=True)
    await connection.execute(_SQL["create"])
    async with connection.execute(_SQL["columns"]) as cursor:
        columns = {row[0] for row in await cursor.fetchall()}
    if "row_sum" not in columns:
        await connection.execute(_SQL["add_sums"])
    await connection.execute(_SQL["create_index"])
    await connection.commit()


def _milliseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MILLISECOND


def _time(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else _EPOCH + milliseconds * _MILLISECOND


def _remembered(rows: int, oldest: int | None, newest: int | None) -> Remembered:
    return Remembered(rows, _time(oldest), _time(newest))


def _selected(which: Deliveries) -> list[tuple[Any, ...]]:
    """The parameters of ``count`` and ``forget``, for each recipient once."""
    first, last = _ANY_TIME
    first = first if which.since is None else _milliseconds(which.since)
    last = last if which.until is None else _milliseconds(which.until)
    if which.recipients is None:
        return [(first, last)]
    return [(first, last, one) for one in {one.lower(): one for one in which.recipients}.values()]
