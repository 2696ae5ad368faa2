"""What the resources of this machine read, and the memory in which the workers of a node share it.

The workers of a node go by one level: the lowest one that lives decides it, and the others read it. A worker
says its part at each look. One that has been silent for a while decides nothing, and has all the same what it
last said: its part counts until it says another, or is dead.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from shadowrelay.core.pressure import PressureLevel, PressureStanding, Resource
from shadowrelay.core.values import dataclass
from shadowrelay.core.workers import MOST

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds in which a disk has to say how full it is."""

SILENT = 10.0
"""Seconds after which a worker that has said nothing leaves it to another to decide."""

_CGROUPS = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # octets: cgroups of version 1 write such a number for none
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PART = 4  # numbers of one worker: when it said them, and the three of WorkerPart
_RESOURCES = tuple(Resource)
_STANDINGS = _PART * MOST  # where they begin: for each resource level, since, and the reading
_EACH = 3
# 1 more than is free, so that 0 says: not known; and when the disk was asked.
_FREE = _STANDINGS + _EACH * len(_RESOURCES)
_WRITTEN = _FREE + 2  # of each worker

SIZE = 8 * (_WRITTEN + MOST)
"""Octets of the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPart:
    """The part of one worker in what is scarce. ``memory`` in octets."""

    memory: float
    queue: float
    uncommitted: float


class ReadingsBoard:
    """The memory, as worker ``number`` (from 1) sees it. No worker waits for another."""

    def __init__(self, memory: memoryview | None = None, number: int = 1) -> None:
        self._cells = (memoryview(bytearray(SIZE)) if memory is None else memory[:SIZE]).cast("d")
        self._number = number

    def say(self, part: WorkerPart, now: float) -> None:
        """Say the part of this worker."""
        at = _PART * (self._number - 1)
        for place, value in enumerate((part.memory, part.queue, part.uncommitted), at + 1):
            self._cells[place] = value
        self._cells[at] = now

    def decides(self, now: float) -> bool:
        """Is it this worker that decides the level?"""
        return self._living(now)[:1] == [self._number]

    def forget(self) -> None:
        """This worker has nothing: it is dead, or looks no more."""
        at = _PART * (self._number - 1)
        for place in (*range(at, at + _PART), _WRITTEN + self._number - 1):
            self._cells[place] = 0.0

    def together(self) -> WorkerPart:
        """The parts of all workers, as each of them said it last."""
        parts = [self._cells[at + 1 : at + _PART] for at in range(0, _STANDINGS, _PART) if self._cells[at]]
        memory, queue, uncommitted = (sum(part[place] for part in parts) for place in range(3))
        return WorkerPart(memory=memory, queue=queue, uncommitted=uncommitted)

    def _living(self, now: float) -> list[int]:
        beats = enumerate(self._cells[: _PART * MOST : _PART], 1)
        return [at for at, beat in beats if beat and now - beat <= SILENT]

    def standing(self, what: Resource) -> PressureStanding:
        """What was decided last."""
        level, since, _ = self._of(what)
        return PressureStanding(PressureLevel(int(level)), since)

    def reading(self, what: Resource) -> float:
        """Of what it was decided."""
        return self._of(what)[2]

    def _of(self, what: Resource) -> tuple[float, float, float]:
        at = _STANDINGS + _EACH * _RESOURCES.index(what)
        level, since, reading = self._cells[at : at + _EACH]
        return level, since, reading

    def decide(self, what: Resource, standing: PressureStanding, reading: float) -> None:
        """From now on all workers go by that."""
        at = _STANDINGS + _EACH * _RESOURCES.index(what)
        for place, value in enumerate((float(standing.level), standing.since, reading), at):
            self._cells[place] = value

    # The room on the disk of data_dir.

    def measured(self, free: int | None, asked: float) -> None:
        """So many octets were free when the disk was asked. None: it does not say. A worker that was silent
        may have an older answer than there is.
        """
        if free is not None and asked < self.asked:
            return
        self._cells[_FREE] = 0.0 if free is None else free + 1.0
        self._cells[_FREE + 1] = asked

    @property
    def asked(self) -> float:
        """When the disk was asked what it answered last; 0: it does not say."""
        return self._cells[_FREE + 1]

    @property
    def written(self) -> memoryview[float]:
        """The place for what this worker has written since the disk was asked."""
        at = _WRITTEN + self._number - 1
        return self._cells[at : at + 1]

    @property
    def room(self) -> tuple[float, float]:
        """Octets that were free when the disk was asked (-1: unknown), and those left of them since."""
        # What was written is taken off after the disk was measured: in this order it counts twice, or once.
        written = sum(self._cells[_WRITTEN:])
        free = self._cells[_FREE] - 1
        return free, free - written


class ThreadedQuestion(Generic[T]):
    """Asks what may never answer, such as a mount that hangs, in a thread of its own. Nobody waits for that
    thread, not even the end of the process. While it has no answer, nothing else is asked.
    """

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._asked: Future[T] | None = None

    async def answer(self) -> T:
        """Raises what asking raises; TimeoutError: none within ``PATIENCE``, or none since."""
        late, asked = self._asked, self._asked or self._begin()
        if late and not late.done():
            raise TimeoutError
        self._asked = asked
        try:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.wrap_future(asked)
        finally:
            if asked.done():
                self._asked = None

    def _begin(self) -> Future[T]:
        asked: Future[T] = Future()
        asked.set_running_or_notify_cancel()  # from now on, who waits no more does not cancel it

        def run() -> None:
            try:
                asked.set_result(self._ask())
            except BaseException as error:
                asked.set_exception(error)

        try:
            threading.Thread(target=run, name="question", daemon=True).start()
        except RuntimeError as error:  # there are as many threads as there may be
            asked.set_exception(OSError(errno.EAGAIN, str(error)))
        return asked


def disk(directory: Path) -> tuple[int, int, int]:
    """Of the disk where that directory is, or will be: which one it is, its octets, and those that are free.

    Raises OSError.
    """
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    found = os.statvfs(directory)
    reserved = found.f_bfree - found.f_bavail  # for the superuser: to us they do not exist
    size = (found.f_blocks - reserved) * found.f_frsize
    return os.stat(directory).st_dev, max(size, 1), found.f_bavail * found.f_frsize


def memory_in_use() -> int:
    """Octets that this process has in memory and no file has: all that cannot be dropped."""
    try:
        _, resident, shared, *_ = Path("/proc/self/statm").read_text("ascii").split()
    except OSError:  # no Linux
        return 0
    return (int(resident) - int(shared)) * _PAGE


def give_memory_back() -> None:
    """Give the machine what this process has freed, and its allocator keeps. Without glibc: nothing."""
    with suppress(AttributeError, OSError, ImportError):
        # Imported here, because few nodes ever need it, and not every interpreter has it.
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)


def memory_limit() -> int:
    """Octets of memory that this process may have: the least of its cgroups and the machine."""
    machine = _PAGE * os.sysconf("SC_PHYS_PAGES")
    return min(limit for limit in (machine, *_limits(_groups())) if 0 < limit < _UNLIMITED)


def _groups() -> list[str]:
    """The cgroups of this process that may limit memory: those of version 2, and the one for memory."""
    try:
        lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return []
    found = [line.split(":", 2)[1:] for line in lines]
    return [path for names, path in found if not names or "memory" in names.split(",")]


def _limits(groups: Iterable[str]) -> Iterable[int]:
    for group in groups:
        for version in (_CGROUPS, _CGROUPS / "memory"):
            inner = version / group.lstrip("/")
            for directory in (inner, *inner.parents):  # each one limits what is in it
                for name in ("memory.max", "memory.limit_in_bytes"):
                    try:
                        yield int((directory / name).read_text("ascii"))
                    except (OSError, ValueError):  # none, or "max"
                        continue
                if directory == _CGROUPS:
                    break
