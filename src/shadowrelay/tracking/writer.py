"""Drains the outbox into tracking log files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol, TypeVar

import structlog

from shadowrelay import failpoints
from shadowrelay.core.identifiers import Incarnation, ServerName
from shadowrelay.core.tracking_row import OutboxRow
from shadowrelay.tracking.events import TrackingEvents
from shadowrelay.tracking.files import LogFile, LogLimits, LogName, enforce_limits
from shadowrelay.tracking.format import render
from shadowrelay.tracking.recovery import recover
from shadowrelay.tracking.tail import WrittenRow

log = structlog.get_logger(__name__)

Result = TypeVar("Result")

BATCH = 2000
"""Most rows per read of the outbox: about 1 MB of text."""

SYNC_INTERVAL = 1.0
"""Seconds between two fsyncs under load, and between two reads of the outbox without a commit."""


_PASSING = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of a call that opens something, and of no other: they say nothing of the disk."""

_SPARE = 2
"""Descriptors that a new file needs."""


class OutboxSource(Protocol):
    """The outbox table of the transport database."""

    async def rows_after(self, sequence: int, most: int) -> list[OutboxRow]:
        """At most ``most`` committed rows after ``sequence``, oldest first."""
        ...

    async def forget(self, upto: int) -> None:
        """Delete the rows up to ``upto``, which are safe in a file. Idempotent."""
        ...


class TrackingWriter:
    """Writes every outbox row to a file once; deletes an outbox row only after its file was fsynced.

    An OSError from the log directory ends the stage and with it the node: what is on disk is then unknown,
    and a failed fsync must never be retried. The recovery at the next start seals what is whole.

    That the process has no descriptor left is no such error, for whoever connects can bring it about. The
    writer has two in reserve for its next file. If they are not enough, the rows stay in the outbox, and the
    writer tries again at each interval.
    """

    def __init__(
        self,
        outbox: OutboxSource,
        *,
        directory: Path,
        node: ServerName,
        limits: LogLimits,
        committed: asyncio.Event,
        clock: Callable[[], datetime],
        sync_interval: float = SYNC_INTERVAL,
        events: TrackingEvents | None = None,
        reckoned: Callable[[], datetime] | None = None,
        aged: Callable[[timedelta], datetime] | None = None,
        waits: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """``committed``: other code sets it when a commit added rows; only this class clears it. ``events``
        hears of rows once they are durable. ``clock``: the wall clock, by which files roll. ``reckoned``: the
        time from which the age of a file counts. ``aged``: what was closed by then certainly has that age.
        ``waits`` is told whether rows wait for a descriptor.
        """
        self._outbox = outbox
        self._directory = directory
        self._node = node
        self._limits = limits
        self._committed = committed
        self._clock = clock
        self._reckoned = reckoned or clock
        self._aged = aged or (lambda age: self._reckoned() - age)
        self._interval = sync_interval
        self._turn = asyncio.Lock()
        self._file: LogFile | None = None
        self._written: Mapping[Incarnation, int] | None = None  # None: not recovered yet
        self._last: OutboxRow | None = None
        self._read = 0  # rows up to here are in a file, though perhaps not fsynced
        self._forgotten = 0
        self._synced_at = float("-inf")  # loop time
        self._limits_due = True
        self._events = events
        self._unsynced: list[WrittenRow] = []  # for ``events``, if anybody subscribes
        self._failure: Exception | None = None
        self._waits, self._waiting = waits, False
        self._spare: list[int] = []

    def limit(self, limits: LogLimits) -> None:
        """Roll and delete files by these limits from now on."""
        self._limits, self._limits_due = limits, True

    async def run(self, stop: asyncio.Event) -> None:
        """Drain until ``stop``, then drain what is left and close the file.

        Set ``stop`` only when the stages that commit rows have ended. Raises OSError.
        """
        try:
            while not stop.is_set():
                self._committed.clear()
                await self._unless_it_waits(self._round)
                await self._pause(stop)
            await self._unless_it_waits(self._round)
            async with self._turn:
                await self._off_loop(self._close)
                await self._unless_it_waits(lambda: self._off_loop(self._enforce_limits))
        finally:
            async with self._turn:
                self._give_way()
                if self._file is not None:
                    self._file.abandon()
                    self._file = None
            self._failure = self._failure or RuntimeError("the tracking writer has ended")

    async def flush(self) -> None:
        """Return when every row committed before the call is in a file and fsynced. Raises OSError."""
        await self._round()

    async def _round(self) -> None:
        """Write all rows of the outbox, fsync, and only then delete them from the outbox."""
        async with self._turn:
            if self._written is None:
                self._written = await self._recover()
            loop = asyncio.get_running_loop()
            more = True
            while more:
                rows = await self._outbox.rows_after(self._read, BATCH)
                more = len(rows) == BATCH
                await self._off_loop(self._store, rows)
                if not more or loop.time() >= self._synced_at + self._interval:
                    await self._settle()
            await self._off_loop(self._enforce_limits)

    async def _unless_it_waits(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work, or as much of it as there are descriptors for."""
        try:
            await work()
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            if not self._waiting:
                log.error("tracking_waits_for_a_descriptor", error=str(error))
            waiting = True
        else:
            if self._waiting:
                log.info("tracking_goes_on")
            waiting = False
        if waiting != self._waiting:
            self._waiting = waiting
            self._waits(waiting)

    async def _settle(self) -> None:
        upto = self._read
        if upto == self._forgotten:
            return
        await self._off_loop(self._sync)
        failpoints.passed("after-log-sync")
        self._synced_at = asyncio.get_running_loop().time()
        self._tell(upto)
        await self._outbox.forget(upto)
        self._forgotten = upto

    def _tell(self, upto: int) -> None:
        """Tell subscribers of the rows that the last sync made durable."""
        rows, self._unsynced = self._unsynced, []
        if self._events is not None:
            self._events.tell(upto, rows)

    async def _recover(self) -> Mapping[Incarnation, int]:
        """Before the first row, seal what a crash left, and learn which rows are in files already."""
        found = await self._off_loop(lambda: recover(self._directory, self._node, self._reckoned()))
        for path in found.sealed:
            log.info("tracking_log_sealed_after_crash", file=path.name)
        for path in found.set_aside:
            log.warning("tracking_log_damaged", file=path.name)
        return found.written

    # The methods below block: they run in a thread, one at a time.

    def _store(self, rows: Sequence[OutboxRow]) -> None:
        now = self._clock()
        if self._file is not None and not self._file.takes(self._file.name.incarnation, now, self._limits):
            self._close()  # by age, even if no row comes
        for row in rows:
            if row.sequence > (self._written or {}).get(row.incarnation, 0):
                self._write(row, now)
            self._note_gap(row)
            self._read = row.sequence
        self._keep_spare()

    def _write(self, row: OutboxRow, now: datetime) -> None:
        if self._file is not None and not self._file.takes(row.incarnation, now, self._limits):
            self._close()
        if self._file is None:
            name = LogName(self._node, row.incarnation, row.sequence)
            self._file = self._created(name, now)
        text = render(
            row.columns,
            sequence=row.sequence,
            incarnation=row.incarnation,
            database_id=row.database_id,
            server=self._node,
        )
        self._file.append(text, row.sequence)
        if self._events is not None and self._events.wanted:
            event_id = row.columns.get("event-id", "")
            self._unsynced.append(WrittenRow(row.sequence, row.incarnation, event_id, text))

    def _created(self, name: LogName, now: datetime) -> LogFile:
        try:
            return LogFile.create(self._directory, name, opened=now)
        except OSError as error:
            if error.errno not in _PASSING or not self._spare:
                raise
        self._give_way()
        return LogFile.create(self._directory, name, opened=now)

    def _keep_spare(self) -> None:
        with contextlib.suppress(OSError):  # there are none now; perhaps next time
            while len(self._spare) < _SPARE:
                self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _give_way(self) -> None:
        while self._spare:
            os.close(self._spare.pop())

    def _note_gap(self, row: OutboxRow) -> None:
        last = self._last
        if last and last.database_id == row.database_id and row.sequence != last.sequence + 1:
            log.warning("tracking_sequence_gap", after=last.sequence, before=row.sequence)
        self._last = row

    def _sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def _close(self) -> None:
        if self._file is not None:
            closed, self._file = self._file, None
            try:
                closed.close(self._reckoned())
            except BaseException:
                closed.abandon()
                raise
            self._limits_due = True

    def _enforce_limits(self) -> None:
        if self._limits_due:
            since = self._aged(self._limits.max_age)
            deleted = enforce_limits(self._directory, self._node, since=since, limits=self._limits)
            self._limits_due = False
            for path in deleted:
                log.info("tracking_log_deleted", file=path.name)

    async def _off_loop(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Run blocking file work in a thread; even if cancelled, return only after it has ended.

        Otherwise the thread would go on writing to a closed file.
        """
        if self._failure is not None:
            raise self._failure
        job = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            while not job.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([job])
            if not job.cancelled():
                self._failure = self._failure or _failure_of(job)
            raise
        except Exception as problem:
            if not (isinstance(problem, OSError) and problem.errno in _PASSING):
                self._failure = problem
            raise

    async def _pause(self, stop: asyncio.Event) -> None:
        """Wait for a commit or the interval, but never less than the interval after the last fsync."""
        if self._waiting:
            return await _first_of(stop, within=self._interval)
        await _first_of(stop, self._committed, within=self._interval)
        early = self._synced_at + self._interval - asyncio.get_running_loop().time()
        if early > 0:
            await _first_of(stop, within=early)
        return None


def _failure_of(job: asyncio.Future[Result]) -> Exception | None:
    failure = job.exception()
    return failure if isinstance(failure, Exception) else None


async def _first_of(*events: asyncio.Event, within: float) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=within, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
