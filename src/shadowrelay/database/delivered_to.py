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
from shadowrelay.database.queries import load

MOST_TRACKING = timedelta(days=49)
"""Exchange's bound: its interval is a 32-bit count of milliseconds."""

_SQL = load("delivered_to.sql")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class TableError(Exception):
    """The table could not be read or written; nothing was changed."""


class TableUnusable(TableError):
    """The table cannot be opened safely; the text says why, for the operator."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The key of a delivery. ``message_id`` is a hash of the content if the message has no Message-ID."""

    message_id: str
    date: str
    recipient: str


@dataclass(slots=True)
class _Write:
    statement: str
    rows: Sequence[tuple[Any, ...]]
    done: asyncio.Future[None]


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
            raise ValueError(f"duplicates are tracked for at most {MOST_TRACKING.days} days, not {track}")
        connection = await aiosqlite.connect(path, timeout=0)
        try:
            await _prepare(connection)
        except sqlite3.Error as error:
            await connection.close()
            busy = "locked" in str(error)
            raise TableUnusable(f"{path}: {'in use by another process' if busy else error}") from None
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
                    if await cursor.fetchone() is not None:
                        found.add(key)
        except sqlite3.Error as error:
            raise TableError(str(error)) from error
        return frozenset(found)

    async def record(self, keys: Iterable[Delivered], now: datetime) -> None:
        """Record deliveries; they are on disk when this returns. Idempotent. Raises TableError."""
        at = _milliseconds(now)
        await self._written("record", [(key.message_id, key.date, key.recipient, at) for key in keys])

    async def sweep(self, now: datetime) -> None:
        """Delete rows older than the tracking time. Raises TableError."""
        await self._written("sweep", [(_milliseconds(now - self._track),)])

    async def close(self) -> None:
        """Write what waits, and close the file."""
        self._closing = True
        self._wake.set()
        await self._writer
        await self._connection.close()

    async def _written(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if self._closing:
            raise TableError("the table is closed")
        write = _Write(statement, rows, asyncio.get_running_loop().create_future())
        self._waiting.append(write)
        self._wake.set()
        await write.done

    async def _write_all(self) -> None:
        while not (self._closing and not self._waiting):
            await self._wake.wait()
            self._wake.clear()
            batch, self._waiting = self._waiting, []
            if not batch:
                continue
            failure = await self._commit(batch)
            for write in batch:
                if write.done.done():
                    continue  # its caller was cancelled
                if failure is None:
                    write.done.set_result(None)
                else:
                    write.done.set_exception(failure)

    async def _commit(self, batch: Sequence[_Write]) -> TableError | None:
        try:
            for write in batch:
                await self._connection.executemany(_SQL[write.statement], write.rows)
            await self._connection.commit()
        except sqlite3.Error as error:
            await self._connection.rollback()
            return TableError(str(error))
        return None


async def _prepare(connection: aiosqlite.Connection) -> None:
    await connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    async with connection.execute("PRAGMA journal_mode = WAL") as cursor:
        row = await cursor.fetchone()
    if row is None or row[0] != "wal":
        raise TableUnusable("no write-ahead log on this file system")
    await connection.execute("PRAGMA synchronous = FULL")
    await connection.execute(_SQL["create"])
    await connection.execute(_SQL["create_index"])
    await connection.commit()


def _milliseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MILLISECOND
