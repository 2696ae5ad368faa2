"""Supervises the workers of a node: starts, watches, restarts, reloads, drains and stops their processes.

It touches no mail. What it decides is in ``supervision``; what it says to a worker, in ``worker``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

import structlog

from shadowrelay import logs, signals
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.workers import MOST, worker_name
from shadowrelay.errors import cannot_listen
from shadowrelay.readings import SIZE as READINGS
from shadowrelay.settings import Settings, SettingsInvalid
from shadowrelay.settings.when_changed import reloaded
from shadowrelay.settings.workers import directory_of
from shadowrelay.shared_counts import counts_in, new_counts
from shadowrelay.smtp.receiving.connector import held
from shadowrelay.workers import supervision, worker
from shadowrelay.workers.front import Fronting
from shadowrelay.workers.supervision import Do, State, Watched
from shadowrelay.workers.worker import LineEnd, WorkerState, reload_with

log = structlog.get_logger(__name__)

GRACE = 20.0
"""Seconds beyond ``drain_timeout`` that a worker may take to stop. Then it is killed, which loses no mail."""

LEFT = "left"
"""The file in the directory of a worker that has left: it owns nothing and holds nothing."""

_LONGEST_PATH = 107  # octets of the path of a Unix socket
_BACKLOG = 128


@asynccontextmanager
async def receive_addresses(settings: Settings) -> AsyncIterator[None]:
    """Keep the Receive addresses of the node for its workers. Raises NodeFailed if one is taken."""
    with ExitStack() as stack:
        for name, each in settings.receive.items():
            host, port = each.listen.host, each.listen.port
            try:
                for sock in await held(host, port):
                    stack.push(sock)
            except OSError as error:
                raise cannot_listen(f"receive.{name}", host, port, error) from error
        yield


def with_data(settings: Settings) -> Collection[int]:
    """The workers above the first that have a directory, and have not left: they may have mail."""
    places = ((number, directory_of(settings.data_dir, number)) for number in range(2, MOST + 1))
    return [number for number, place in places if place.is_dir() and not (place / LEFT).exists()]


def supervised(settings: Settings) -> bool:
    """Does the node need a supervisor: has it several workers, or had it, and one has not left yet?"""
    return settings.workers > 1 or bool(with_data(settings))


@dataclass(slots=True)
class _Process:
    process: asyncio.subprocess.Process
    line: LineEnd


class Supervisor:
    """The supervisor of one node. ``read`` reads its settings again; ``command``: what starts a worker, to
    which its options are added.
    """

    def __init__(self, settings: Settings, read: Callable[[], Settings], command: Sequence[str]) -> None:
        self.settings = settings
        self._read = read
        self._command = tuple(command)
        self._known: dict[int, Watched] = {}
        self._since: dict[int, datetime] = {}
        self._running: dict[int, _Process] = {}
        self._following: set[asyncio.Task[None]] = set()
        self._changed, self._again = asyncio.Event(), asyncio.Event()
        self._stopping = False
        self._directory = Path()
        self._counts: int | None = None
        self._fronting: Fronting | None = None

    def workers(self) -> Sequence[WorkerState]:
        """All workers, those that leave or have left included, by their numbers."""
        return [
            WorkerState(
                number=number,
                name=worker_name(ServerName(self.settings.name), number),
                pid=self._running[number].process.pid if number in self._running else None,
                state=one.state,
                since=self._since[number],
                restarts=one.restarts,
                why=one.why,
                socket=self._socket(number),
            )
            for number, one in sorted(self._known.items())
        ]

    async def run(self) -> None:
        """Until a signal stops it, and all workers have ended. Raises OSError or NodeFailed
        when it cannot begin.
        """
        again, served = self._again, asyncio.Event()
        with signals.heard(again) as stop, self._shared():
            async with receive_addresses(self.settings), asyncio.TaskGroup() as group:
                self._fronting = Fronting(self.settings, self, served)
                group.create_task(self._fronting.run(), name="front")
                try:
                    await self._supervise(stop, again)
                finally:
                    await self._stop_all()
                    served.set()
        log.info("supervisor_stopped", node=self.settings.name)

    @contextmanager
    def _shared(self) -> Iterator[None]:
        """What all workers share, and what must be free before the first one starts."""
        with ExitStack() as stack:
            self._directory = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="shadowrelay-", dir=_short()))
            )
            self._counts = new_counts(READINGS)
            stack.callback(os.close, self._counts)
            yield

    async def _supervise(self, stop: asyncio.Event, again: asyncio.Event) -> None:
        self._want()
        log.info("supervisor_started", node=self.settings.name, workers=self.settings.workers)
        while not stop.is_set():
            # A reload may come while one thing is done: what is due is looked at anew before each.
            while not stop.is_set() and (found := supervision.due(self._known, monotonic())):
                await self._do(*found[0])
            await self._something(stop, again)
            if again.is_set():
                again.clear()
                await self.reload()

    async def _something(self, stop: asyncio.Event, again: asyncio.Event) -> None:
        """Wait until there is something to do."""
        at = supervision.next_at(self._known)
        events = (stop, again, self._changed)
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        timeout = None if at is None else max(0.0, at - monotonic())
        try:
            await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        self._changed.clear()

    async def reload(self) -> Sequence[str]:
        """Take the settings file, and have all workers take it. Returns what is wrong with it; then nothing
        changes, but the workers look at it too, so that each says so.
        """
        wrong: Sequence[str] = ()
        try:
            file = await asyncio.to_thread(self._read)
            found = reloaded(self.settings, file)
            wrong = [str(error) for error in found.wrong]
        except (SettingsInvalid, OSError) as error:
            wrong = [str(each) for each in getattr(error, "errors", (error,))]
        else:
            if not wrong:
                self._take(found.settings)
        if wrong:
            log.error("reload_refused", wrong=list(wrong), consequence="nothing has changed")
        self._tell_all()
        return wrong

    def _take(self, settings: Settings) -> None:
        before, self.settings = self.settings, settings
        if self._fronting is not None:
            self._fronting.take(settings)
        if settings.log != before.log:
            logs.configure(level=settings.log.level.value, format=settings.log.format.value)
        if settings.workers != before.workers:
            log.warning("workers_wanted", workers=settings.workers, before=before.workers)
            self._want()

    def _want(self) -> None:
        self._become(
            supervision.wanted(self._known, self.settings.workers, with_data(self.settings), monotonic())
        )

    def _become(self, known: dict[int, Watched]) -> None:
        now = datetime.now(UTC)
        before, self._known = self._known, known
        self._since = {
            number: self._since[number] if number in before and before[number].state is one.state else now
            for number, one in known.items()
        }
        self._changed.set()

    def _set(self, one: Watched) -> None:
        self._become({**self._known, one.number: one})

    def _of(self) -> int:
        """How many workers the node has, for its members: those that are leaving included."""
        there = (number for number, one in self._known.items() if one.state is not State.ENDED)
        return max(self.settings.workers, *there)

    def _tell_all(self) -> None:
        for one in self._running.values():
            one.line.tell(reload_with(self._of()))

    async def _do(self, do: Do, number: int) -> None:
        one, now = self._known[number], monotonic()
        if do is Do.START:
            await self._start(one)
        elif do is Do.LEAVE:
            log.warning("worker_leaves", worker=number)
            self._running[number].line.tell(worker.LEAVE)
            self._set(supervision.leaving(one, now))
        elif do is Do.ASK:
            self._running[number].line.tell(worker.ASK)
            self._set(supervision.asked(one, now))
        elif do is Do.KILL:
            log.error("worker_hangs", worker=number, consequence="its process is killed, which loses no mail")
            self._set(supervision.killed(one))
            _signal(self._running[number].process, signal.SIGKILL)
        else:
            self._set(supervision.told_to_end(one))
            _signal(self._running[number].process, signal.SIGTERM)

    async def _start(self, one: Watched) -> None:
        number, of = one.number, self._of()
        self._set(supervision.started(one, monotonic()))
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # It may have mail from now on.
                (directory_of(self.settings.data_dir, number) / LEFT).unlink(missing_ok=True)
                with self._listening(number) as listening:
                    process = await self._spawned(number, of, listening, theirs)
            except OSError as error:
                ours.close()
                self._ended(number, f"the process cannot be started: {error}")
                return
        line = LineEnd(ours)
        self._running[number] = _Process(process, line)
        if self._of() != of:
            line.tell(reload_with(self._of()))
        log.info("worker_started", worker=number, pid=process.pid)
        task = asyncio.create_task(self._follow(number, process, line), name=f"worker {number}")
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _spawned(
        self, number: int, of: int, listening: socket.socket, lifeline: socket.socket
    ) -> asyncio.subprocess.Process:
        handed = {"--admin-socket": listening.fileno(), "--lifeline": lifeline.fileno()}
        if self._counts is not None:
            handed["--counts"] = self._counts
        options = {"--worker": number, "--of": of, **handed}
        return await asyncio.create_subprocess_exec(
            *self._command,
            *(str(word) for option in options.items() for word in option),
            stdin=subprocess.DEVNULL,
            pass_fds=tuple(handed.values()),
            process_group=0,  # Ctrl-C is for the supervisor, which stops all in order
        )

    async def _follow(self, number: int, process: asyncio.subprocess.Process, line: LineEnd) -> None:
        """Hear what a worker says, until its process has ended."""
        async for word in line.words():
            if word == worker.SERVING:
                log.info("worker_serves", worker=number, pid=process.pid)
                self._set(supervision.serves(self._known[number], monotonic()))
            elif word == worker.EMPTY:
                self._set(supervision.emptied(self._known[number]))
            elif word == worker.RELOADED:
                self._again.set()
            elif word == worker.ANSWER:
                self._set(supervision.answered(self._known[number]))
        status = await process.wait()
        if self._counts is not None:
            counts_in(self._counts, number).forget()  # its sessions ended with it
            worker.board_in(self._counts, number).forget()
        del self._running[number]
        if not self._stopping:
            self._ended(number, why(status))

    def _ended(self, number: int, reason: str) -> None:
        now = monotonic()
        one = supervision.ended(self._known[number], reason, now)
        self._set(one)
        if one.state is State.ENDED:
            self._note_that_it_left(number)
            self._tell_all()
        elif one.failures:
            log.error("worker_ended", worker=number, why=one.why, again_in=round(one.again_at - now, 1))

    def _note_that_it_left(self, number: int) -> None:
        try:
            (directory_of(self.settings.data_dir, number) / LEFT).touch()
        except OSError as error:  # the next start of the node looks once more whether it is empty
            log.error("leaving_not_noted", worker=number, error=str(error))
        log.warning("worker_left", worker=number)

    @contextmanager
    def _listening(self, number: int) -> Iterator[socket.socket]:
        """The Unix socket of a worker, new for each process: behind that of a dead one nobody waits."""
        path = self._socket(number)
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
            made.listen(_BACKLOG)
            yield made

    def _socket(self, number: int) -> Path:
        return self._directory / f"w{number}.sock"

    async def _stop_all(self) -> None:
        """End all workers: each finishes its sessions, and hands its queue over to other machines."""
        self._stopping = True
        for one in self._running.values():
            _signal(one.process, signal.SIGTERM)
        patience = self.settings.drain_timeout.total_seconds() + GRACE
        if self._following:
            await asyncio.wait(self._following, timeout=patience)
        for number, one in self._running.items():
            log.error("worker_killed", worker=number, why=f"it did not end within {patience:.0f} s")
            _signal(one.process, signal.SIGKILL)
        if self._following:
            await asyncio.wait(self._following)


def _signal(process: asyncio.subprocess.Process, which: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has just ended by itself
        process.send_signal(which)


def why(status: int) -> str:
    """Why a process ended, from its return code."""
    if status >= 0:
        known = {0: "unasked", 1: "it could not go on", 2: "its settings are wrong"}
        return f"exit status {status}" + (f": {known[status]}" if status in known else "")
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def _short() -> str:
    """Where a directory of Unix sockets may be: their paths must be short."""
    place = tempfile.gettempdir()
    longest = len(os.fsencode(place)) + len("/shadowrelay-12345678/w64.sock")
    return place if longest <= _LONGEST_PATH else "/tmp"  # noqa: S108 – the directory in it is private


def command(file: Path) -> tuple[str, ...]:
    """What starts a worker of the node that the file describes."""
    return (sys.executable, "-m", "shadowrelay", "run", str(file))
