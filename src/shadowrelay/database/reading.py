"""Reads the file of a running node on a connection of its own, for seconds, while the node writes.

The connection takes no lock and reads no log (``opening.reader``): SQLite may lose transactions to a second
connection that does (docs/decisions/0008-database-thread.md). So the write-ahead log is brought into the file
before, and stays beside it meanwhile.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from shadowrelay.database import opening, sums

T = TypeVar("T")

WAL_PAGES = 1000
"""Pages in the write-ahead log at which SQLite brings it into the file."""

Between = Callable[[Callable[[sqlite3.Connection], Any]], Awaitable[Any]]
"""Runs a function on the connection of the node, between two commits, in the database thread."""


READERS = 2
"""Connections, so that a long read can use more than one processor: SQLite works without the interpreter."""


_AGAIN = 0.02  # seconds


@dataclass(slots=True)
class Reading:
    """One read at a time. While ``lock`` is held, nobody else may bring the log into the file."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, file: Path, between: Between, work: Callable[[Sequence[sqlite3.Connection]], T]) -> T:
        """Run ``work`` in a thread, with connections that see everything committed until now. It ends soon if
        the task is cancelled.
        """
        stop = asyncio.Event()
        task = asyncio.ensure_future(self._run(file, between, work, stop))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits
        try:
            return await asyncio.shield(task)
        finally:
            stop.set()

    async def _run(
        self,
        file: Path,
        between: Between,
        work: Callable[[Sequence[sqlite3.Connection]], T],
        stop: asyncio.Event,
    ) -> T:
        async with self.lock:
            await between(_keep_the_log)
            readers = [opening.reader(file) for _ in range(READERS)]
            for reader in readers:
                reader.text_factory = sums.tolerant
            reading = asyncio.ensure_future(asyncio.to_thread(work, readers))
            stopped = asyncio.ensure_future(stop.wait())
            try:
                await asyncio.wait({reading, stopped}, return_when=asyncio.FIRST_COMPLETED)
                while not reading.done():  # an interrupt between two statements ends neither
                    for reader in readers:
                        reader.interrupt()
                    await asyncio.wait({reading}, timeout=_AGAIN)
                return reading.result()
            finally:
                stopped.cancel()
                for reader in readers:
                    reader.close()
                await between(_let_the_log_shrink)


def _keep_the_log(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_autocheckpoint=0")
    busy, logged, copied = connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
    if busy or logged != copied:
        raise sqlite3.OperationalError("the write-ahead log could not be brought into the file")


def _let_the_log_shrink(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
