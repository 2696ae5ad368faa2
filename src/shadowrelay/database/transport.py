"""The transport database of a running node: one connection, one writer, group commit.

Everything that waits shares one transaction and one fsync. Callers get their result only after that
commit, and cannot cancel it: the work runs in a task of its own. Where the statements run is decided group
by group (docs/decisions/0012-hot-path.md); COMMIT, which waits for the disk, never runs in the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite

from shadowrelay.core.identifiers import DatabaseId, Incarnation, Lineage, ServerName
from shadowrelay.core.values import dataclass, replace
from shadowrelay.database import group_commit, opening, records, sums
from shadowrelay.database.ledger import SQL, SqlLedger
from shadowrelay.database.opening import CannotOpen, Opening
from shadowrelay.database.salvage import salvage

T = TypeVar("T")

MOST_PER_COMMIT = 512
QUIET_TURNS = 3  # of the event loop, without anything new: then a commit begins
WAL_PAGES = 1000  # in the log, after which it is brought into the file
_SHRINK = "PRAGMA incremental_vacuum(2000); PRAGMA wal_checkpoint(TRUNCATE);"


class DatabaseFailed(Exception):
    """A write or fsync failed: nothing may be acknowledged any more, the node has to exit."""


class _Raw(sqlite3.Connection):
    """A connection of SQLite whose ``commit`` is all that a transaction still lacks, COMMIT included."""

    work: Callable[[], Any] | None = None
    result: Any = None

    def commit(self) -> None:
        if self.work is None:
            raise sqlite3.ProgrammingError("a commit is more than COMMIT here: see run")
        self.result = self.work()


class _Connection(aiosqlite.Connection):
    """aiosqlite with one more verb: run a function in the database thread, one hop for many statements."""

    def __init__(self, raw: _Raw) -> None:
        super().__init__(lambda: raw, iter_chunk_size=64)
        self.raw = raw

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Not for two tasks at once."""
        self.raw.work = partial(work, *arguments)
        try:
            await self.commit()  # which calls that of ``raw`` in the thread
            result: T = self.raw.result
        finally:
            self.raw.work = self.raw.result = None
        return result


@dataclass(slots=True)
class _Job:
    work: Callable[[SqlLedger], Any]
    done: asyncio.Future[Any]
    brief: bool


@dataclass(slots=True)
class TransportDatabase:
    """Open it with ``open``. ``failed`` is set when it can be trusted no more; ``failure`` says why."""

    file: Path
    ledger: SqlLedger
    opened: Opening
    _connection: _Connection
    _lock: int
    _tracked: list[asyncio.Event] = field(default_factory=list)
    _planned: list[asyncio.Event] = field(default_factory=list)
    _left: list[asyncio.Event] = field(default_factory=list)
    failed: asyncio.Event = field(default_factory=asyncio.Event)
    failure: str = ""
    lineage: Lineage = field(init=False)
    unchecked: bool = False  # whether the file is whole
    commits: int = 0
    _jobs: asyncio.Queue[_Job | None] = field(default_factory=asyncio.Queue)
    _writer: asyncio.Task[None] | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # whoever has it may use the connection

    @classmethod
    async def open(
        cls,
        directory: Path,
        name: ServerName,
        token: Incarnation,
        fresh_id: DatabaseId,
        now: datetime,
        hosts: Mapping[ServerName, str] | None = None,
    ) -> TransportDatabase:
        """Open the database of that directory, or create it. Raises CannotOpen.

        ``token`` is this incarnation, ``fresh_id`` the database id should a new one be created; ``hosts`` are
        the machines of the members.
        """
        handle = opening.lock(directory)
        file = directory / opening.FILE
        try:
            connection, ledger, opened = await _open_or_mend(file, name, token, fresh_id, now)
            ledger.hosts = hosts or {}
            database = cls(file, ledger, opened, connection, handle)
            database.lineage = ledger.lineage
            database.unchecked = opened.unchecked
            database._writer = asyncio.create_task(database._write(), name="transport database writer")
            return database
        except sqlite3.Error as error:
            os.close(handle)
            raise CannotOpen(opening.explain(error, file)) from error
        except OSError as error:
            os.close(handle)
            raise CannotOpen(f"transport database {file}: {error.strerror}") from error
        except BaseException:
            os.close(handle)
            raise

    def when_tracked(self, listener: asyncio.Event) -> asyncio.Event:
        """Set that event after every commit that tracked something; whoever waits for it clears it."""
        self._tracked.append(listener)
        return listener

    def when_planned(self, listener: asyncio.Event) -> asyncio.Event:
        """Set that event after every commit by which a delivery became due, or is to be at another time."""
        self._planned.append(listener)
        return listener

    def when_left(self, listener: asyncio.Event) -> asyncio.Event:
        """Set that event after every commit that leaves something to be done part by part."""
        self._left.append(listener)
        return listener

    async def transact(self, work: Callable[[SqlLedger], T]) -> T:
        """Run ``work`` in a transaction; returns its result once that is durable. Raises DatabaseFailed.

        An exception of ``work`` undoes its own writes alone and is raised here.
        """
        return await self._submit(work, brief=False)

    def transact_briefly(self, work: Callable[[SqlLedger], T]) -> asyncio.Future[T]:
        """The same for work on a handful of rows: it may run in the event loop. It is begun, awaited or not.

        That is cheaper by far than in the database thread, which has to fight for the interpreter after
        each statement. Work that grows with a queue or a table goes to ``transact``.
        """
        return self._submit(work, brief=True)

    def _submit(self, work: Callable[[SqlLedger], T], *, brief: bool) -> asyncio.Future[T]:
        if self.failed.is_set() or self._writer is None:
            raise DatabaseFailed(self.failure or "the transport database is closed")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait(_Job(work, done, brief))
        return done

    async def _write(self) -> None:
        last = False
        while not last:
            group, last = await self._gather()
            if group and not await self._commit(group):
                return

    async def _gather(self) -> tuple[list[_Job], bool]:
        """What the next commit has in it, and whether it is the last one.

        Senders that were answered by one commit come back together, each some turns of the event loop after
        the other. A commit begun with the first would have only it in it, and the others would wait for that.
        """
        group: list[_Job] = []
        while (job := await self._jobs.get()) is not None:
            group.append(job)
            for _ in range(QUIET_TURNS):
                if not self._jobs.empty():
                    break
                await asyncio.sleep(0)
            if len(group) >= MOST_PER_COMMIT or self._jobs.empty():
                return group, False
        return group, True

    async def _commit(self, group: list[_Job]) -> bool:
        """Commit a group and answer its callers; False after a failure, which is final."""
        tracked, planned, alone = self.lineage.sequence, self.ledger.planned, len(group) == 1
        try:
            group.sort(key=lambda job: not job.brief)
            async with self._turn:
                if self.failed.is_set():  # since the group was begun
                    raise DatabaseFailed(self.failure)
                changes = self.ledger.changes
                brief = [job.work for job in group if job.brief]
                results = group_commit.begin(self.ledger, brief, alone=alone)
                others = [job.work for job in group if not job.brief]
                if others or self.ledger.changes != changes:
                    conclude = partial(group_commit.conclude, alone=alone)
                    results += await self._connection.run(conclude, self.ledger, others)
                else:  # nothing for the disk to wait for
                    group_commit.conclude(self.ledger, (), alone=alone)
        except Exception as error:  # whatever it is: nobody may wait for a writer that is gone
            self._fail(error, group)
            return False
        self.lineage = self.ledger.lineage
        self.commits += self.ledger.changes != changes
        for job, (result, problem) in zip(group, results, strict=True):
            if job.done.cancelled():
                continue
            if problem is not None:
                job.done.set_exception(problem)
            else:
                job.done.set_result(result)
        for listener in self._tracked if self.lineage.sequence != tracked else ():
            listener.set()
        for listener in self._planned if self.ledger.planned != planned else ():
            listener.set()
        for listener in self._left if self.ledger.chores else ():
            listener.set()
        return True

    async def check(self) -> None:
        """See whether the file is whole, where that is not known yet, beside everything else. If it is not,
        the node ends, and its next start sets the file aside.
        """
        if not self.unchecked:
            return
        reader = opening.reader(self.file)
        try:
            await asyncio.to_thread(opening.check_whole, reader)
        except asyncio.CancelledError:
            reader.interrupt()
            raise
        except sqlite3.Error as error:
            self._fail(error, [])
            raise DatabaseFailed(self.failure) from error
        self.unchecked = False
        await self.transact(
            lambda ledger: ledger.connection.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
        )

    def fail(self, error: Exception) -> None:
        """Content is not durable, or a message not on record: from now on nothing is acknowledged."""
        self._fail(error, [])

    def _fail(self, error: Exception, group: list[_Job]) -> None:
        why = self._explain(error)
        if not self.failed.is_set():
            self.failure = why
            self.failed.set()
        while not self._jobs.empty():
            if (job := self._jobs.get_nowait()) is not None:
                group.append(job)
        for job in group:
            if not job.done.done():
                job.done.set_exception(DatabaseFailed(self.failure))

    def _explain(self, error: Exception) -> str:
        """In words. A corrupt file is marked, so that the next start looks at all of it."""
        if isinstance(error, OSError):
            return f"data directory {self.file.parent}: {error}: look at its disk, owner and permissions"
        if not isinstance(error, sqlite3.Error):
            return f"transport database {self.file}: {error!r}"
        if opening.is_corrupt(error):
            with contextlib.suppress(OSError):
                opening.suspect(self.file)
        return opening.explain(error, self.file)

    async def touch(self, now: datetime) -> None:
        """Note that the node runs, give freed pages back to the file system, and shorten the log."""
        stamp = str(records.micros(now))
        await self.transact(lambda ledger: ledger.connection.execute(SQL["put_meta"], ("alive_at", stamp)))
        try:
            async with self._turn:
                # As a script, because it frees one page per step, and ``execute`` takes a single one.
                await self._connection.executescript(_SHRINK)
        except sqlite3.Error as error:
            self._fail(error, [])
            raise DatabaseFailed(self.failure) from error

    async def close(self, now: datetime) -> None:
        """Finish what waits, mark the stop as clean, and let the database go."""
        if self._writer is not None:
            if not self.failed.is_set():
                with contextlib.suppress(DatabaseFailed):
                    await self.transact(partial(opening.mark_stopped, checked=not self.unchecked, now=now))
            self._jobs.put_nowait(None)
            await self._writer
            self._writer = None
        with contextlib.suppress(sqlite3.Error):
            await self._connection.close()
        os.close(self._lock)


async def _open_or_mend(
    file: Path, name: ServerName, token: Incarnation, fresh_id: DatabaseId, now: datetime
) -> tuple[_Connection, SqlLedger, Opening]:
    """A corrupt database is replaced by what can be read of it; if that is too little, it is set aside."""
    try:
        return await _open(file, name, token, fresh_id, now)
    except sqlite3.Error as error:
        if not opening.is_corrupt(error):
            raise
        salvaged = await asyncio.to_thread(salvage, file, now)
    if salvaged is not None:
        try:
            connection, ledger, opened = await _open(file, name, token, fresh_id, now)
            return connection, ledger, replace(opened, salvaged=salvaged)
        except sqlite3.Error as error:
            if not opening.is_corrupt(error):
                raise
    aside = opening.set_aside(file, now)
    connection, ledger, opened = await _open(file, name, token, fresh_id, now)
    return connection, ledger, replace(opened, set_aside=aside)


async def _open(
    file: Path, name: ServerName, token: Incarnation, fresh_id: DatabaseId, now: datetime
) -> tuple[_Connection, SqlLedger, Opening]:
    connection = _Connection(_connect(file))
    await connection
    try:
        ledger, opened = await connection.run(_begin, connection.raw, file, name, token, fresh_id, now)
    except BaseException:
        await connection.close()
        raise
    return connection, ledger, opened


def _connect(file: Path) -> _Raw:
    # The event loop and the database thread use it in turn: only the writer task says who.
    connection = sqlite3.connect(
        file, timeout=0, isolation_level=None, cached_statements=256, check_same_thread=False, factory=_Raw
    )
    connection.text_factory = sums.tolerant
    return connection


def _begin(
    raw: sqlite3.Connection,
    file: Path,
    name: ServerName,
    token: Incarnation,
    fresh_id: DatabaseId,
    now: datetime,
) -> tuple[SqlLedger, Opening]:
    if not file.stat().st_size:  # made just now
        file.chmod(0o600)
    opening.prepare(raw, durable=True)
    unchecked = opening.check(raw, file)
    opening.migrate(raw)
    try:
        ledger, opened = opening.begin_incarnation(raw, name, token, fresh_id, now)
    except sums.IMPOSSIBLE as error:
        raise sums.corrupt(f"meta data or lineage cannot be read: {error}") from error
    opening.empty_the_log(raw)
    opening.sync_directory(file.parent)
    raw.execute(f"PRAGMA wal_autocheckpoint={0 if unchecked else WAL_PAGES}")
    return ledger, replace(opened, unchecked=unchecked)
