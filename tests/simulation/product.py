"""Nodes of the product on a virtual clock: ``service.node.Node``, with stages of ``service.running``.

Made of timers: the network (``Wire`` takes the place of ``MemberConnection``, and ends at the product's
``AnsweringSession``), the disk (SQLite in memory: the database answers inline, some milliseconds later), the
clocks of the machine. A process that is killed leaves what it committed, and what it sent.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import structlog

from shadowrelay import authority, ids
from shadowrelay.core.identifiers import DatabaseId, Incarnation, ServerName
from shadowrelay.core.members.conversation import Answered, Greeting, Query
from shadowrelay.core.operating import Act, ActAnswer
from shadowrelay.core.reckoning import ClockReading
from shadowrelay.database import opening, sums
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.members import pool
from shadowrelay.members.answering import AnsweringSession, AnsweringSessions
from shadowrelay.members.chores import Chores
from shadowrelay.node_clock import NodeClock
from shadowrelay.safety_net.expiry import Expiry
from shadowrelay.service import running
from shadowrelay.service.adapters import machines
from shadowrelay.service.connectors import for_members
from shadowrelay.service.node import Node
from shadowrelay.service.running import opened
from shadowrelay.settings import Settings
from shadowrelay.smtp.members.client import NO_ANSWER, MemberAddress, MemberFailed, MemberGone
from shadowrelay.wire import xoperate, xqdiscard, xshadow
from shadowrelay.wire.replies import Refused

from .virtual_loop import VirtualLoop

T = TypeVar("T")

START = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
AT_RISK = 10.0  # seconds that a reply may take


@dataclass(slots=True)
class Machine:
    """The clocks of one machine. ``offset``: how far the wall clock is ahead."""

    world: World
    boot_id: str = "1"
    switched_on: float = -1000.0
    offset: timedelta = timedelta(0)

    def read(self) -> ClockReading:
        now = self.world.loop.now
        wall = START + timedelta(seconds=now) + self.offset
        return ClockReading(wall, timedelta(seconds=now - self.switched_on), self.boot_id)

    def reboot(self) -> None:
        self.switched_on, self.boot_id = self.world.loop.now, str(int(self.boot_id) + 1)


@lru_cache(maxsize=1)
def _empty() -> bytes:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    opening.prepare(connection, durable=False)
    opening.migrate(connection)
    return connection.serialize()


@dataclass(slots=True)
class Disk:
    """``connection`` has what was committed. ``kept``: images of earlier moments, to be put back."""

    number: int
    image: bytes = field(default_factory=_empty)
    connection: sqlite3.Connection = field(init=False)
    put_back: int = 0

    def __post_init__(self) -> None:
        self.open(self.image)

    def open(self, image: bytes) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=256)
        self.connection.text_factory = sums.tolerant
        self.connection.deserialize(image)

    def keep(self) -> None:
        """Remember the disk as it is now; not while a transaction is under way."""
        if not self.connection.in_transaction:
            self.image = self.connection.serialize()

    def roll_back(self) -> None:
        self.put_back += 1
        self.open(self.image)


class Inline:
    """Takes the place of the database's thread: the work is done at one moment, and told at a later one."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        draw = self._process.world.draw
        await asyncio.sleep(draw.choice((0.0, 0.001, 0.004, 0.02)))
        found = work(*arguments)
        if draw.random() < 0.2:
            await asyncio.sleep(0.01)  # it is durable, and nobody has been told
        return found

    async def executescript(self, script: str) -> None:
        """Give pages back: not here."""


class Process:
    """One incarnation of a node: what a kill ends. A stage that ends by itself is a problem."""

    def __init__(self, world: World, name: ServerName) -> None:
        self.world, self.name = world, name
        self.alive = True
        self.gone = False  # for good
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.sessions: list[Wire] = []  # those that others opened
        self.node: Node
        self.answering: AnsweringSessions

    def create_task(self, work: Any, *, name: str | None = None) -> asyncio.Task[Any]:
        """As a task group does: what fails is told."""
        task = self.world.loop.create_task(work, name=name)
        self.tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) and self.alive:
            self.world.problem(f"{self.name}: {task.get_name()} ended by {error!r}")

    async def start(self, settings: Settings, disk: Disk, machine: Machine) -> None:
        """As ``service.running`` does, without what listens for senders and operators."""
        world, reading = self.world, machine.read()
        raw = disk.connection
        if raw.in_transaction:
            raw.rollback()
        opening.prepare(raw, durable=False)
        raw.execute("DELETE FROM active")
        ledger, found = opening.begin_incarnation(
            raw,
            self.name,
            Incarnation(f"{world.draw.getrandbits(64):016x}"),
            DatabaseId(f"6f0d7a3e-0000-4000-8000-{disk.number:012x}"),
            reading.wall,
            reading=reading,
        )
        ledger.hosts = machines(settings)
        database = TransportDatabase(Path("transport.db"), ledger, found, cast("Any", Inline(self)), -1)
        database.lineage = ledger.lineage
        database._writer = self.create_task(database._write(), name="transport database writer")
        self.node = node = Node(settings, database, NodeClock(found.reckoning, machine.read))
        node.room.board.measured(1 << 50, 1.0)  # no disk of these worlds is short
        assert settings.peer
        self.answering = cast("AnsweringSessions", for_members(node, settings.peer)._receiver)
        await running._prepare(node)
        await opened(node)
        world.processes[self.name] = self
        node.membership.start(cast("asyncio.TaskGroup", self))
        expiry = Expiry(database, node.policy, node.clock.endings, node.boundary.reachable, node.save_time)
        for name, stage in {
            "chores": Chores(database, node.queue.wake.set),
            "reconcile": node.reconcile(),
            "expiry": expiry,
            "records": node.replication,
            "requests": node.resubmitting,
            "jobs": node.services.job_runner,
            "announcing": node.services.announcing,
            "workers": node.services.workers,
        }.items():
            self.create_task(stage.run(), name=name)  # type: ignore[attr-defined]

    async def kill(self) -> None:
        """Nothing more is done or heard. What it sent is on its way."""
        self.alive = False
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for session in self.sessions:
            session.reset()


@dataclass(eq=False, slots=True)
class Wire:
    """A session with another member: takes the place of ``MemberConnection``. What is said is spelt and read
    by ``wire``; the other end is an ``AnsweringSession`` of the process that took the call.
    """

    caller: Process
    server: Process
    answering: AnsweringSession
    timeout: float
    address: MemberAddress | None = None
    version: int = xshadow.VERSION
    over: bool = False
    _reply: asyncio.Future[Any] | None = None

    @classmethod
    async def dial(cls, address: MemberAddress, own_name: ServerName, timeout: float) -> Wire:
        world = World.now
        assert world is not None
        caller, server = world.processes[own_name], world.processes.get(address.name)
        if server is None:
            raise MemberFailed("connect", "nobody listens there")
        session = cls(caller, server, server.answering.open(), timeout, address)

        async def opened() -> None:
            server.sessions.append(session)

        try:
            await session._exchange("connect", opened)
        except MemberGone as refused:
            raise MemberFailed(refused.step, refused.error) from refused
        return session

    @property
    def usable(self) -> bool:
        return not self.over

    closed = lost = property(lambda self: self.over)

    def reset(self) -> None:
        """The process at the other end is gone: that is heard where packets get through."""
        self.caller.world.carry(self.server.name, self.caller.name, self._gone, lambda: not self.over)

    def _gone(self) -> None:
        self.over = True
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(ConnectionResetError())

    def abort(self) -> None:
        self.over = True

    async def close(self) -> None:
        self.abort()

    async def greet(self, ours: Greeting) -> Greeting:
        said = xshadow.format_greeting(ours)

        async def answer() -> str:
            theirs = await self.answering.greet(_CLIENT, xshadow.parse_greeting(said))
            return xshadow.format_greeting(theirs)

        return xshadow.parse_greeting(await self._exchange("xshadow", answer))

    async def ask(self, query: Query) -> tuple[Answered, tuple[str, ...]]:
        said = xqdiscard.format_query(query)

        async def answer() -> tuple[list[str], str | None, str]:
            told = await self.answering.ask(xqdiscard.parse_query(said))
            lines = [xqdiscard.format_line(line, self.version) for line in told.lines]
            seen = xqdiscard.format_seen(told.seen) if told.seen else None
            return lines, seen, xshadow.format_mark(self.answering.mark())

        lines, seen, mark = await self._exchange("xqdiscard", answer)
        found = tuple(xqdiscard.parse_line(line) for line in lines)
        return Answered(found, xshadow.parse_mark(mark), xqdiscard.parse_seen(seen) if seen else None), ()

    async def operate(self, act: Act) -> ActAnswer:
        try:
            said = xoperate.format_act(act)
        except xoperate.TooLong as error:
            return ActAnswer({}, str(error))

        async def answer() -> tuple[tuple[str, ...], str]:
            told = await self.answering.operate(xoperate.parse_act(said))
            return xoperate.format_answer(told.told), told.refused

        lines, refused = await self._exchange("xoperate", answer)
        return ActAnswer({}, refused) if refused else xoperate.parse_answer(lines)

    async def _exchange(self, step: str, answer: Callable[[], Awaitable[T]]) -> T:
        """Say something, and wait for the answer. What was said is read though the speaker has died since."""
        if self.over:
            raise MemberGone(step, "the connection was closed")
        world, server, here = self.caller.world, self.server, self.caller.name
        self._reply = reply = world.loop.create_future()

        def arrived() -> None:
            if server.alive:
                server.create_task(served(), name=f"session of {here}")
            else:
                self.reset()

        async def served() -> None:
            try:
                told: Any = await answer()
            except Refused as refused:
                told = MemberFailed(step, str(refused))
            world.carry(
                server.name, here, lambda: reply.done() or reply.set_result(told), lambda: not self.over
            )

        world.carry(here, server.name, arrived, lambda: not self.over)
        try:
            async with asyncio.timeout(self.timeout):
                told = await reply
        except TimeoutError:
            self.abort()
            raise MemberFailed(step, NO_ANSWER) from None
        except ConnectionResetError:
            raise MemberGone(step, "connection reset") from None
        except asyncio.CancelledError:
            self.abort()
            raise
        if isinstance(told, MemberFailed):
            self.abort()
            raise told
        return cast("T", told)


_CLIENT = cast("Any", SimpleNamespace(certificate=None, address="127.0.0.1"))


class World:
    """All machines, and the network between them."""

    now: World | None = None  # the one that runs
    verbose = False

    def __init__(self, seed: int) -> None:
        self.loop = VirtualLoop()
        self.draw = random.Random(seed)
        self.processes: dict[ServerName, Process] = {}
        self.cut: set[tuple[ServerName, ServerName]] = set()
        self.slow: dict[tuple[ServerName, ServerName], float] = {}
        self.late = 0.0  # the share of packets that are read seconds later
        self.problems: list[str] = []
        self.history: list[str] = []
        self._parked: list[tuple[ServerName, ServerName, Callable[[], object], Callable[[], bool]]] = []

    def problem(self, text: str) -> None:
        self.say(f"PROBLEM {text}")
        self.problems.append(text)

    def say(self, text: str) -> None:
        self.history.append(f"{self.loop.now:9.3f} {text}")

    def carry(
        self, sender: ServerName, to: ServerName, arrived: Callable[[], object], wanted: Callable[[], bool]
    ) -> None:
        """A packet on its way. One that meets a cut is sent again once that ends, if still ``wanted``."""
        if self.verbose:
            self.say(f"packet {sender[:3]} {to[:3]}")
        delay = 0.0005 + self.draw.random() * 0.004 + self.slow.get((sender, to), 0.0) * self.draw.random()
        if self.late and self.draw.random() < self.late:
            delay += self.draw.random() * 6

        def arrive() -> None:
            if (sender, to) in self.cut:
                self._parked.append((sender, to, arrived, wanted))
            else:
                arrived()

        self.loop.call_later(delay, arrive)

    def heal(self, links: Sequence[tuple[ServerName, ServerName]]) -> None:
        self.cut.difference_update(links)
        parked, self._parked = self._parked, []
        for sender, to, arrived, wanted in parked:
            if (sender, to) in self.cut:
                self._parked.append((sender, to, arrived, wanted))
            elif wanted():
                self.carry(sender, to, arrived, wanted)


def _believed(octets: bytes, signature: bytes, **about: object) -> bool:
    """Signatures are not simulated."""
    del octets, about
    return signature == b"the authority"


@contextmanager
def running_in(
    world: World, watched: Mapping[str, str], changes: Sequence[tuple[Any, str, Any]] = ()
) -> Iterator[None]:
    """The product's modules live in this world meanwhile: its time, its network, its randomness. What is
    logged under a name in ``watched`` is a problem. ``changes``: of other values in modules.
    """

    def heard(logger: object, method: str, event: dict[str, Any]) -> dict[str, Any]:
        del logger, method
        if (name := event.get("event")) in watched:
            error = sys.exc_info()[1]
            world.problem(f"{watched[name]}: {event} {error!r}")
        raise structlog.DropEvent

    kept: list[tuple[Any, str, Any]] = []
    boot = SimpleNamespace(CLOCK_BOOTTIME=None, clock_gettime=lambda _: world.loop.now)
    for module, name, value in (
        (pool, "time", boot),
        (pool, "MemberConnection", Wire),
        (ids, "os", SimpleNamespace(urandom=world.draw.randbytes)),
        (authority, "signed", _believed),
        (World, "now", world),
        *changes,
    ):
        kept.append((module, name, getattr(module, name)))
        setattr(module, name, value)
    before = structlog.get_config()
    structlog.configure(processors=[heard], cache_logger_on_first_use=False)
    asyncio.set_event_loop(world.loop)
    try:
        yield
    finally:
        structlog.configure(**before)
        for module, name, value in kept:
            setattr(module, name, value)
        with suppress(Exception):
            world.loop.close()
        asyncio.set_event_loop(None)
