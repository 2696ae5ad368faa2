"""Runs the transport database of a node: one connection, one writer, group commit.

All waiting work shares one transaction and one fsync. Callers get their results only after that commit, and
cannot cancel it: the work runs in a task of its own. Each group decides in which thread its statements run
(docs/decisions/0012-hot-path.md); COMMIT, which waits for the disk, never runs in the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import coroutine
from typing import Any, Generic, TypeVar

import aiosqlite
import structlog

from shadowrelay.core.identifiers import DatabaseId, Incarnation, Lineage, ServerName
from shadowrelay.core.messages import Copy
from shadowrelay.core.reckoning import ClockReading, Reckoning
from shadowrelay.core.safety_net.resubmission import looked_at_again
from shadowrelay.core.values import dataclass, replace
from shadowrelay.database import group_commit, indexes, opening, reckonings, records, sums
from shadowrelay.database.ledger import SQL, SqlLedger
from shadowrelay.database.opening import CannotOpen, Opening
from shadowrelay.database.reading import WAL_PAGES, Reading
from shadowrelay.database.salvage import salvage
from shadowrelay.in_hand import InHand

log = structlog.get_logger(__name__)

T = TypeVar("T")

MOST_PER_COMMIT = 512
QUIET_TURNS = 3  # turns of the event loop without new work, after which a commit begins
_BRIEF = attrgetter("brief")
_SHRINK = "PRAGMA incremental_vacuum(2000); PRAGMA wal_checkpoint(TRUNCATE);"


@coroutine
def _turn() -> Generator[None, None, None]:
    """Wait for one turn of the event loop: ``asyncio.sleep(0)`` with one frame instead of two."""
    yield


class DatabaseFailed(Exception):
    """A write or fsync failed: nothing may be acknowledged any more, the node has to exit."""


class _Raw(sqlite3.Connection):
    """A SQLite connection whose ``commit`` runs ``work``: the rest of a transaction, with its COMMIT."""

    work: Callable[[], Any] | None = None
    result: Any = None

    def commit(self) -> None:
        if self.work is None:
            raise sqlite3.ProgrammingError("a commit is more than COMMIT here: see run")
        self.result = self.work()


class _Connection(aiosqlite.Connection):
    """aiosqlite with one more method: run a function of many statements in the database thread at once."""

    def __init__(self, raw: _Raw) -> None:
        super().__init__(lambda: raw, iter_chunk_size=64)
        self.raw = raw

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run ``work`` in the database thread. Only one task at a time may call this."""
        self.raw.work = partial(work, *arguments)
        try:
            await self.commit()  # calls ``raw.commit`` in the thread
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
    """Open it with ``open``. ``failed`` is set once the database cannot be trusted; ``failure`` says why."""

    file: Path
    ledger: SqlLedger
    opened: Opening
    _connection: _Connection
    _lock: int
    _tracked: list[asyncio.Event] = field(default_factory=list)
    _planned: list[asyncio.Event] = field(default_factory=list)
    _left: list[asyncio.Event] = field(default_factory=list)
    _doubted: list[asyncio.Event] = field(default_factory=list)
    _changed: Callable[[Copy], None] = field(default=lambda _: None)
    failed: asyncio.Event = field(default_factory=asyncio.Event)
    failure: str = ""
    lineage: Lineage = field(init=False)
    unchecked: bool = False  # it is not yet known whether the file is whole
    commits: int = 0
    in_hand: InHand = field(default_factory=InHand)
    _jobs: list[_Job] = field(default_factory=list)
    _closing: bool = False  # once the jobs are done, the writer ends
    _asked: asyncio.Event = field(default_factory=asyncio.Event)  # there may be jobs
    _writer: asyncio.Task[None] | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # its holder may use the connection
    _reading: Reading = field(default_factory=Reading)

    @classmethod
    async def open(
        cls,
        directory: Path,
        name: ServerName,
        token: Incarnation,
        fresh_id: DatabaseId,
        now: datetime,
        hosts: Mapping[ServerName, str] | None = None,
        reading: ClockReading | None = None,
    ) -> TransportDatabase:
        """Open or create the database in ``directory``. Raises CannotOpen.

        ``token`` is this incarnation; ``fresh_id`` is the id of a database that has to be created; ``hosts``
        are the machines of the members. ``reading``: see ``begin_incarnation``.
        """
        handle = opening.lock(directory)
        file = directory / opening.FILE
        try:
            connection, ledger, opened = await _open_or_mend(file, name, token, fresh_id, now, reading)
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

    @property
    def waiting(self) -> int:
        """How much work waits for a commit that has not begun."""
        return len(self._jobs)

    def when_tracked(self, listener: asyncio.Event) -> asyncio.Event:
        """Set ``listener`` after every commit that tracked an event; the waiting task clears it."""
        self._tracked.append(listener)
        return listener

    def when_planned(self, listener: asyncio.Event) -> asyncio.Event:
        """Set ``listener`` after every commit that planned a delivery, or changed when one is due."""
        self._planned.append(listener)
        return listener

    def when_left(self, listener: asyncio.Event) -> asyncio.Event:
        """Set ``listener`` after every commit that leaves a chore to be done."""
        self._left.append(listener)
        return listener

    def when_doubted(self, listener: asyncio.Event) -> asyncio.Event:
        """Set ``listener`` after every commit that leaves an index in doubt (``ledger.doubted``)."""
        self._doubted.append(listener)
        return listener

    def when_changed(self, told: Callable[[Copy], None]) -> None:
        """Call ``told`` after every commit that changed a message in ``ledger.awaited``."""
        self._changed = told

    async def transact(self, work: Callable[[SqlLedger], T]) -> T:
        """Run ``work`` in a transaction; return its result once it is durable. Raises DatabaseFailed.

        An exception of ``work`` undoes only the writes of that work, and is raised here. If SQLite stumbles
        over an index, ``work`` runs a second time, after the rollback of all that it wrote: what else it
        changes must bear that.
        """
        return await self.transact_briefly(work, brief=False)

    def transact_briefly(self, work: Callable[[SqlLedger], T], *, brief: bool = True) -> asyncio.Future[T]:
        """Like ``transact``, for work on a handful of rows: it may run in the event loop. It runs even if
        nobody awaits it; and a second time, after a rollback, if work beside it fails.

        The event loop is far cheaper than the database thread, which has to fight for the interpreter after
        each statement. Work that grows with a queue or a table belongs in ``transact``.
        """
        if self.failure or self._writer is None:
            raise DatabaseFailed(self.failure or "the transport database is closed")
        done: asyncio.Future[T] = asyncio.Future()
        if not self._jobs:
            self._asked.set()
        self._jobs.append(_Job(work, done, brief))
        return done

    async def _write(self) -> None:
        while self._jobs or not self._closing:
            group = await self._gather()
            if group and not await self._commit(group):
                return

    async def _gather(self) -> list[_Job]:
        """Collect the work of the next commit; there may be none at the end.

        Senders that one commit answered come back together, a few turns of the event loop apart. A commit
        that began with the first of them would hold only that one, and all others would wait for it.
        """
        while not (self._jobs or self._closing):  # once more if a failure took them away
            self._asked.clear()
            await self._asked.wait()
        group: list[_Job] = []
        quiet, room = 0, MOST_PER_COMMIT
        while room and (self._jobs or quiet < QUIET_TURNS):
            if self._jobs:
                group += self._jobs[:room]
                del self._jobs[:room]
                quiet, room = 0, MOST_PER_COMMIT - len(group)
            else:
                quiet += 1
                await _turn()
        return group

    async def _commit(self, group: list[_Job]) -> bool:
        """Commit a group and answer its callers. Returns False after a failure, which is final."""
        tracked, planned = self.lineage.sequence, self.ledger.planned
        try:
            group.sort(key=_BRIEF, reverse=True)
            async with self._turn:
                if self.failed.is_set():  # while the group was collected
                    raise DatabaseFailed(self.failure)
                changes = self.ledger.changes
                try:
                    results = await self._perform(group)
                except sqlite3.DatabaseError as error:
                    if not opening.says_malformed(error):
                        raise
                    await self._connection.run(_build_indexes_again, self.ledger, error)
                    results = await self._perform(group)
        except Exception as error:  # of any kind: no caller may wait for a writer that has ended
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
        for copy in self.ledger.take_changes():
            self._changed(copy)
        for listener in self._left if self.ledger.chores else ():
            listener.set()
        for listener in self._doubted if self.ledger.doubted else ():
            listener.set()
        return True

    async def _perform(self, group: list[_Job]) -> list[group_commit.WorkResult]:
        """Run the works of a group, the brief ones first, in one transaction. An error rolls it back."""
        changes, alone = self.ledger.changes, len(group) == 1
        brief = [job.work for job in group if job.brief]
        results = group_commit.begin(self.ledger, brief)
        others = [job.work for job in group if not job.brief]
        if others or self.ledger.changes != changes:
            conclude = partial(group_commit.conclude, alone=alone)
            return results + await self._connection.run(conclude, self.ledger, others)
        group_commit.conclude(self.ledger, (), alone=alone)  # nothing was written: no wait for the disk
        return results

    async def check(self) -> None:
        """Check that the file is whole, if that is not known yet, while other work goes on. If the file is
        corrupt, the node ends, and its next start salvages the file or sets it aside.
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
        """Acknowledge nothing from now on: content is not durable, or a message is not on record."""
        self._fail(error, [])

    def _fail(self, error: Exception, group: list[_Job]) -> None:
        why = self._explain(error)
        if not self.failed.is_set():
            self.failure = why
            self.failed.set()
        group += self._jobs
        self._jobs.clear()
        for job in group:
            if not job.done.done():
                job.done.set_exception(DatabaseFailed(self.failure))

    def _explain(self, error: Exception) -> str:
        """Explain the error in words. Mark a corrupt file, so that the next start checks all of it."""
        if isinstance(error, OSError):
            return f"data directory {self.file.parent}: {error}: look at its disk, owner and permissions"
        if not isinstance(error, sqlite3.Error):
            return f"transport database {self.file}: {error!r}"
        if opening.is_corrupt(error):
            with contextlib.suppress(OSError):
                opening.suspect(self.file)
        return opening.explain(error, self.file)

    async def touch(self, now: datetime, reckoning: Reckoning | None = None) -> None:
        """Note that the node runs and what time it is, return freed pages to the file system, and shorten the
        write-ahead log.
        """
        stamp = str(records.micros(now))

        def note(ledger: SqlLedger) -> None:
            ledger.connection.execute(SQL["put_meta"], ("alive_at", stamp))
            if reckoning is not None:
                reckonings.put(ledger.connection, reckoning)

        await self.transact(note)
        if self._reading.lock.locked():
            return
        try:
            async with self._turn:
                # A script: the vacuum frees one page per step, and ``execute`` takes a single step.
                await self._connection.executescript(_SHRINK)
        except sqlite3.Error as error:
            self._fail(error, [])
            raise DatabaseFailed(self.failure) from error

    async def read(self, work: Callable[[Sequence[sqlite3.Connection]], T]) -> T:
        """Run ``work`` on connections that read the database as it is now, while this one writes: see
        ``Reading``. Raises DatabaseFailed.
        """
        if self.unchecked:
            raise DatabaseFailed("the file is being checked: try again later")
        return await self._reading.run(self.file, self._between_commits, work)

    async def _between_commits(self, work: Callable[[sqlite3.Connection], T]) -> T:
        async with self._turn:
            return await self._connection.run(work, self._connection.raw)

    async def close(self, now: datetime, reckoning: Reckoning | None = None) -> None:
        """Finish waiting work and reads, mark the stop as clean, and close the database."""
        async with self._reading.lock:
            await self._close(now, reckoning)

    async def _close(self, now: datetime, reckoning: Reckoning | None) -> None:
        if self._writer is not None:
            if not self.failed.is_set():
                with contextlib.suppress(DatabaseFailed):
                    checked = not self.unchecked
                    await self.transact(
                        partial(opening.mark_stopped, checked=checked, now=now, reckoning=reckoning)
                    )
            self._closing = True
            self._asked.set()
            await self._writer
            self._writer = None
        with contextlib.suppress(sqlite3.Error):
            await self._connection.close()
        os.close(self._lock)


class StandingRead(Generic[T]):
    """What a stage reads again and again. Until a commit writes, the result stands, and no transaction is
    opened. ``read``: of what commits alone change, and ``beside``: what it goes by of the process's memory.
    """

    def __init__(
        self,
        database: TransportDatabase,
        read: Callable[[SqlLedger], T],
        beside: Callable[[], object] = lambda: None,
    ) -> None:
        self._database, self._read, self._beside = database, read, beside
        # The commits before the last read, and what was beside them.
        self._at: tuple[int, object] | None = None
        self._found: T

    async def __call__(self) -> T:
        if (at := (self._database.commits, self._beside())) != self._at:
            self._found = await self._database.transact(self._read)
            self._at = at
        return self._found


async def _open_or_mend(
    file: Path,
    name: ServerName,
    token: Incarnation,
    fresh_id: DatabaseId,
    now: datetime,
    reading: ClockReading | None,
) -> tuple[_Connection, SqlLedger, Opening]:
    """Open the database. Salvage a corrupt one; if too little of it can be read, set it aside."""
    try:
        return await _open(file, name, token, fresh_id, now, reading)
    except sqlite3.Error as error:
        if not opening.is_corrupt(error):
            raise
        salvaged = await asyncio.to_thread(salvage, file, now)
    if salvaged is not None:
        try:
            connection, ledger, opened = await _open(file, name, token, fresh_id, now, reading)
            await connection.run(_look_again, ledger)
            return connection, ledger, replace(opened, salvaged=salvaged)
        except sqlite3.Error as error:
            if not opening.is_corrupt(error):
                raise
    aside = opening.set_aside(file, now)
    connection, ledger, opened = await _open(file, name, token, fresh_id, now, reading)
    return connection, ledger, replace(opened, set_aside=aside)


def _build_indexes_again(ledger: SqlLedger, error: sqlite3.DatabaseError) -> None:
    """SQLite found the file malformed, and the transaction was rolled back. If its structure is whole, an
    index lacks an entry, or leads to no row: build all indexes again, durably. Raises ``error`` if that
    cannot help. The works of the transaction run once more after this (``TransportDatabase.transact``).
    """
    log.error("index_damaged", error=str(error), code=error.sqlite_errorname)
    ledger.connection.execute("PRAGMA shrink_memory")  # look at the file, not at pages in memory
    if indexes.structure(ledger.connection):
        raise error
    ((_, problem),) = group_commit.begin(ledger, (partial(indexes.rebuild, index=""),))
    group_commit.conclude(ledger, (), alone=True)
    if problem is not None:
        raise error
    ledger.refresh()  # after the rollback an index may have kept memory from being read again
    log.warning("index_rebuilt", index="all")


def _look_again(ledger: SqlLedger) -> None:
    """What was looked up in the corrupt file is looked up again."""
    group_commit.begin(ledger, (lambda ledger: ledger.apply(looked_at_again(ledger)),))
    group_commit.conclude(ledger, (), alone=True)


async def _open(
    file: Path,
    name: ServerName,
    token: Incarnation,
    fresh_id: DatabaseId,
    now: datetime,
    reading: ClockReading | None,
) -> tuple[_Connection, SqlLedger, Opening]:
    connection = _Connection(_connect(file))
    await connection
    try:
        ledger, opened = await connection.run(
            _begin, connection.raw, file, name, token, fresh_id, now, reading
        )
    except BaseException:
        await connection.close()
        raise
    return connection, ledger, opened


def _connect(file: Path) -> _Raw:
    # The event loop and the database thread use it in turn; the writer task decides the turn.
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
    reading: ClockReading | None,
) -> tuple[SqlLedger, Opening]:
    if not file.stat().st_size:  # just created
        file.chmod(0o600)
    opening.prepare(raw, durable=True)
    unchecked = opening.check(raw, file)
    opening.migrate(raw)
    try:
        ledger, opened = opening.begin_incarnation(raw, name, token, fresh_id, now, reading=reading)
    except sums.IMPOSSIBLE as error:
        raise sums.corrupt(f"meta data or lineage cannot be read: {error}") from error
    opening.empty_the_log(raw)
    opening.sync_directory(file.parent)
    raw.execute(f"PRAGMA wal_autocheckpoint={0 if unchecked else WAL_PAGES}")
    return ledger, replace(opened, unchecked=unchecked)
