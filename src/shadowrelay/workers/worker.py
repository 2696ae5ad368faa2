"""A worker of a node, as its own process and its supervisor see it, and the line between the two.

The lifeline is a pair of sockets, one end each. The supervisor says ``reload N`` (read the settings again;
the node has N workers now, those that leave included), ``leave``, and ``ask`` (does it still answer?). The
worker says ``serving``, and ``empty`` once it leaves, owns nothing and holds nothing; ``answer`` when it is
asked; and ``reloaded`` when a member asked it to read the settings again, which all of the node do then. When
one process dies, the other reads the end: a worker whose supervisor is gone drains and ends.
"""

from __future__ import annotations

import asyncio
import mmap
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import structlog

from shadowrelay.readings import SIZE as READINGS
from shadowrelay.readings import ReadingsBoard
from shadowrelay.settings import Settings
from shadowrelay.settings.workers import for_worker
from shadowrelay.shared_counts import SIZE as COUNTS
from shadowrelay.shared_counts import OwnCounts, SessionCounts, counts_in
from shadowrelay.workers.supervision import State

log = structlog.get_logger(__name__)

SERVING = b"serving\n"
EMPTY = b"empty\n"
RELOADED = b"reloaded\n"
ANSWER = b"answer\n"
LEAVE = b"leave\n"
ASK = b"ask\n"
_RELOAD = b"reload "


def reload_with(of: int) -> bytes:
    """Read the settings again; the node has so many workers now."""
    return _RELOAD + b"%d\n" % of


class LineEnd:
    """One end of the line. Owns the socket."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        end.set_inheritable(False)
        self._end = end

    def tell(self, word: bytes) -> None:
        """Say it, if anybody is there to hear it."""
        with suppress(OSError):
            self._end.send(word)

    async def words(self) -> AsyncIterator[bytes]:
        """What the other end says, until it is gone. Then this end is closed too."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: asyncio.StreamReaderProtocol(reader), self._end.dup()
        )
        try:
            while line := await _line(reader):
                yield line
        finally:
            transport.close()
            self._end.close()


class Lifeline:
    """The worker's end. ``of``: how many workers the node has now. ``leave``: set once this one goes."""

    def __init__(self, descriptor: int, of: int) -> None:
        self._line = LineEnd(socket.socket(fileno=descriptor))
        self.of = of
        self.leave = asyncio.Event()
        self.tell = self._line.tell

    async def hear(self, stop: asyncio.Event, again: asyncio.Event) -> None:
        """Until the supervisor is gone, which sets ``stop``. ``again`` is set when it asks for a reload."""
        async for word in self._line.words():
            if word == LEAVE:
                self.leave.set()
            elif word == ASK:
                self.tell(ANSWER)
            elif word.startswith(_RELOAD):
                self.of = int(word.split()[1])
                again.set()
        if not stop.is_set():
            log.warning("supervisor_gone", consequence="this worker drains, and ends")
        stop.set()


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The next line; empty at the end."""
    try:
        return await reader.readline()
    except (OSError, ValueError):
        return b""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlace:
    """Which worker a process is, and what its supervisor gave it.

    ``number`` of ``of`` workers, from 1. ``counts``: the descriptor of the memory that the workers share
    (memfd). ``admin``: the descriptor of the listening Unix socket where it serves its API; None: it binds
    ``admin.listen`` itself.
    """

    number: int
    of: int
    counts: int | None = None
    admin: int | None = None
    lifeline: Lifeline | None = None


def settings_of(settings: Settings, place: WorkerPlace | None) -> Settings:
    """The settings of a process of the node. How many workers the node has, the supervisor says: one that is
    leaving is still a member. Without a supervisor it is one worker, until the restart.
    """
    if place is None:
        alone = for_worker(settings.model_copy(update={"workers": 1}), 1)
        return alone.model_copy(update={"workers": settings.workers})
    of = place.lifeline.of if place.lifeline else place.of
    return for_worker(settings.model_copy(update={"workers": of}), place.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """How a worker is, as its supervisor sees it.

    ``pid``: that of its process, if it has one. ``since``: when the state began. ``restarts``: how often its
    process ended unasked, ``why``: the reason of the last time. ``socket``: its Unix socket.
    """

    number: int
    name: str
    pid: int | None
    state: State
    since: datetime
    restarts: int
    why: str
    socket: Path


def counts_of(place: WorkerPlace | None) -> SessionCounts | None:
    """The counts of a worker, which begins with no session; None for a node that is one process."""
    if place is None:
        return None
    if place.counts is None:
        return OwnCounts()
    found = counts_in(place.counts, place.number)
    found.forget()
    return found


def board_of(place: WorkerPlace | None) -> ReadingsBoard:
    """What a worker shares with the others of its node: behind the counts."""
    if place is None or place.counts is None:
        return ReadingsBoard()
    return board_in(place.counts, place.number)


def board_in(descriptor: int, number: int) -> ReadingsBoard:
    """The same of the worker with that number."""
    memory = memoryview(mmap.mmap(descriptor, COUNTS + READINGS))
    return ReadingsBoard(memory[COUNTS:], number)
