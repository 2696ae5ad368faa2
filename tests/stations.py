"""Whole nodes in the process of the test: real sockets, real databases, only the stages asked for."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from shadowrelay.authority import authority_pair, init, issue
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import DatabaseId, Incarnation, MessageId, NextHop, RequestId, ServerName
from shadowrelay.core.messages import Copy, Digests, Envelope, Recipient
from shadowrelay.core.reckoning import ClockReading
from shadowrelay.core.requests import Request, Selector
from shadowrelay.core.safety_net import requesting
from shadowrelay.core.steps import OfferCopy
from shadowrelay.database import content
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.delivery.queue import Queue
from shadowrelay.node_clock import NodeClock
from shadowrelay.operator.drain import Drain
from shadowrelay.service.adapters import hosts, machines
from shadowrelay.service.connectors import for_members, for_senders
from shadowrelay.service.node import Node
from shadowrelay.settings import Settings, settings_from_tree
from shadowrelay.smtp.receiving.connector import Connector

T = TypeVar("T")

DOMAIN = "example.org"
QUICK: dict[str, Any] = {
    "shadow_attempt_timeout": "2s",
    "shadow_time_cap": "5s",
    "revoke_timeout": "500ms",
    "shadow_retry_interval": "50ms",
    "member_skip_interval": "100ms",
    "discard_poll_interval": "100ms",
    "shadow_heartbeat_frequency": "1s",
    "queue_glitch_retry_interval": "1s",
    "minimum_free_disk": 0,
}


def full(name: str) -> ServerName:
    return ServerName(f"{name}.{DOMAIN}")


def database_id(number: int) -> DatabaseId:
    return DatabaseId(f"6f0d7a3e-0000-4000-8000-{number:012x}")


def incarnation(number: int) -> Incarnation:
    return Incarnation(f"{number:016x}")


def authority(directory: Path, *names: str) -> Path:
    """A directory with an authority and a certificate for each name."""
    init(directory, name="Test", now=datetime.now(UTC))
    for name in names:
        issue(directory, full(name), now=datetime.now(UTC))
    return directory


@dataclass
class Clock:
    """The time of day, ``ahead`` of the real one."""

    ahead: timedelta = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@dataclass
class MachineClocks:
    """The clocks of one machine. The wall clock can be set, and time passes for both as a test wants."""

    ahead: timedelta = timedelta()  # of the wall clock
    passed: timedelta = timedelta()
    boot_id: str = "one"

    def read(self) -> ClockReading:
        boot = timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME))
        return ClockReading(datetime.now(UTC) + self.passed + self.ahead, boot + self.passed, self.boot_id)


@dataclass
class Station:
    """One node. ``port`` and ``peer_port`` are where it listens.

    ``clock`` is that of its queue, ``wall`` of all else.
    """

    name: ServerName
    node: Node
    directory: Path
    wall: Clock = field(default_factory=Clock)
    clock: Clock = field(default_factory=Clock)
    port: int = 0
    peer_port: int = 0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    connectors: list[Connector] = field(default_factory=list)

    @property
    def database(self) -> TransportDatabase:
        return self.node.database

    async def read(self, work: Callable[[SqlLedger], T]) -> T:
        return await self.database.transact(work)

    async def copies(self) -> list[Copy]:
        """Every copy on this node, oldest first."""

        def work(ledger: SqlLedger) -> list[Copy]:
            rows = ledger.connection.execute("SELECT id FROM message ORDER BY received_at, id").fetchall()
            return [copy for (message_id,) in rows if (copy := ledger.copy(message_id))]

        return await self.read(work)

    async def rows(self, table: str) -> int:
        """How many that table of its database has."""
        counting = f"SELECT count(*) FROM {table}"
        count: int = await self.read(lambda ledger: ledger.connection.execute(counting).fetchone()[0])
        return count

    async def octets(self, message_id: MessageId) -> bytes:
        """The content that is kept of a message."""
        stored = await self.read(lambda ledger: content.stored(ledger, message_id))
        assert stored is not None
        return b"".join([block async for block in content.blocks(stored)])

    async def tracked(self) -> list[dict[str, str]]:
        """The tracking events so far, in order."""
        rows = await self.read(
            lambda ledger: ledger.connection.execute(
                "SELECT columns FROM outbox ORDER BY sequence"
            ).fetchall()
        )
        return [json.loads(columns) for (columns,) in rows]

    async def events(self) -> list[str]:
        return [row["event-id"] for row in await self.tracked()]

    def files(self) -> list[str]:
        """The large contents on disk."""
        return sorted(path.name for path in self.node.spool.glob("*"))

    def knows(self, other: Station) -> None:
        """Tell it where the other one listens."""
        addresses: Any = self.node.members.addresses
        addresses[other.name] = replace(addresses[other.name], host="127.0.0.1", port=other.peer_port)

    def run(self, work: Awaitable[Any]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def run_queue(self) -> None:
        self.database.when_planned(self.node.queue.wake)
        self.run(self.node.queue.run())

    def run_links(self) -> None:
        for link in self.node.links.values():
            self.run(link.run())

    def run_repair(self) -> None:
        self.run(self.node.repair.run())

    def run_reconcile(self) -> None:
        self.run(self.node.reconcile().run())

    def drain(self) -> Drain:
        node = self.node
        return Drain(node.database, node.boundary, node.in_force, node.clock, lambda: None)

    def resubmit(self) -> None:
        """Share the records, and carry requests out."""
        self.run(self.node.replication.run())
        self.run(self.node.resubmitting.run())

    def run_mend(self) -> None:
        self.run(self.node.mend.run())

    async def listen(self, *, peer_port: int = 0) -> None:
        """``peer_port``: for the other members; 0: any that is free."""
        for connector in self.connectors:
            at = peer_port if connector.options.name == "members" else 0
            connector.options = replace(connector.options, port=at)
            _, port = await connector.start()
            if connector.options.name == "members":
                self.peer_port = port
            else:
                self.port = port

    async def quiet(self) -> None:
        """End the background stages and the sessions with other members."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.node.members.close()

    async def stop(self) -> None:
        await self.quiet()
        await asyncio.gather(*(connector.stop(0) for connector in self.connectors))
        for worker in tuple(self.node.queue._workers):  # a next hop may never answer
            worker.cancel()
        await self.node.queue.stop()
        self.node.resolver.close()
        await self.database.close(datetime.now(UTC))


def settings(
    directory: Path,
    name: str,
    others: Sequence[str],
    *,
    tls: Path | None = None,
    hosts: Mapping[str, str] = MappingProxyType({}),
    **changes: Any,
) -> Settings:
    """The settings of one of these nodes. Without ``tls`` (see ``authority``) loopback is secured. ``hosts``:
    the machines of members; each has its own unless named.
    """
    peer: dict[str, Any] = {"listen": "127.0.0.1:2"}
    if tls is None:
        peer["externally_secured"] = ["127.0.0.0/8"]
    else:
        peer |= {
            "certificate": str(tls / f"{full(name)}.pem"),
            "key": str(tls / f"{full(name)}.key"),
            "ca": str(authority_pair(tls).certificate),
        }
    peer |= changes.pop("peer", {})
    # Most of these nodes have no stage that delivers, and a 250 would wait for it in vain.
    receive = {
        "listen": "127.0.0.1:1",
        "tarpit_interval": "0s",
        "max_acknowledgement_delay": "0s",
        **changes.pop("receive", {}),
    }
    tree: dict[str, Any] = {
        "name": full(name),
        "host": hosts.get(name, name),
        "data_dir": str(directory / name),
        "relay_networks": ["127.0.0.0/8"],
        "receive": {"default": receive},
        "peer": peer,
        "members": [
            {
                "name": full(other),
                "address": f"127.0.0.1:{10 + int(other[-1])}",
                "host": hosts.get(other, other),
            }
            for other in others
        ],
        "routes": {"inside": {"domains": ["*"], "host": "127.0.0.1", "port": 9, "tls": "none"}},
        **QUICK,
        **changes,
    }
    return settings_from_tree(tree)


async def station(
    directory: Path,
    name: str,
    others: Sequence[str],
    *,
    disk: int = 0,
    clocks: MachineClocks | None = None,
    **changes: Any,
) -> Station:
    """A node that listens, without any background stage. Another ``disk`` has a database of its own."""
    found = settings(directory, name, others, **changes)
    made = await opened(found, int(name[-1]) + 16 * disk, clocks=clocks)
    await made.listen()
    return made


async def opened(
    found: Settings, number: int, *, start: int = 0, clocks: MachineClocks | None = None
) -> Station:
    """A node that does not listen yet. ``number``: what tells its database from others. ``start``: how often
    it was started before. ``clocks``: those of its machine; without them its time is that of ``wall``.
    """
    reading = clocks.read() if clocks else None
    name = ServerName(found.name)
    database = await TransportDatabase.open(
        found.data_dir,
        name,
        incarnation(number + (start << 16)),
        database_id(number),
        reading.wall if reading else datetime.now(UTC),
        machines(found),
        reading,
    )
    wall = Clock()
    node = Node(found, database, NodeClock(database.opened.reckoning, clocks.read) if clocks else wall)
    content.prepare(node.spool)
    await node.back_pressure.look()
    made = Station(name, node, found.data_dir, wall)
    if not clocks:
        _give_clock(made, found)
    for link in node.links.values():
        link.changed = node.queue.wake.set
    assert found.peer
    made.connectors = [for_members(node, found.peer), for_senders(node, "default", found.receive["default"])]
    return made


def _give_clock(made: Station, found: Settings) -> None:
    """Give the queue a clock of its own."""
    node, database = made.node, made.database
    reporter = replace(node.reporter, clock=made.clock)
    node.hosts = node.hop_shadows.hosts = hosts(found, node.resolver, node.policy, made.clock)
    node.hosts.talk, node.hosts.avoided = node.hop_conversations, node.hop_shadows.avoided
    node.hosts.took = node.hop_shadows.took
    node.hosts.policies = node.tls_policies
    shaping = node.queue.shaping
    node.queue = Queue(
        database,
        node.boundary,
        node.hosts,
        node.routes,
        reporter,
        node.policy,
        made.clock,
        node.book,
        node.ways,
    )
    node.queue.shaping.take(shaping.shapes, shaping.patterns)
    node.queue.extra_hop = node.extra_hop
    node.queue.failed = node.acknowledgements.release


@asynccontextmanager
async def boundary(
    directory: Path,
    *names: str,
    own: dict[str, dict[str, Any]] | None = None,
    clocks: Mapping[str, MachineClocks] = MappingProxyType({}),
    **changes: Any,
) -> AsyncIterator[list[Station]]:
    """Nodes that know each other; ``own`` has settings for some of them alone, ``clocks`` their clocks."""
    async with AsyncExitStack() as stack:
        made: list[Station] = []
        for name in names:
            others = [other for other in names if other != name]
            more = changes | (own or {}).get(name, {})
            one = await station(directory, name, others, clocks=clocks.get(name), **more)
            stack.push_async_callback(one.stop)
            made.append(one)
        for one in made:
            for other in made:
                if one is not other:
                    one.knows(other)
        yield made
        for one in made:  # or the connectors would wait for idle sessions to be closed
            await one.quiet()


@asynccontextmanager
async def at_last(event: asyncio.Event) -> AsyncIterator[None]:
    """Set in the end, also after a failure: a node does not stop while a session waits for it."""
    try:
        yield
    finally:
        event.set()


def offer(to: ServerName, number: int = 1, content: bytes = b"", **changes: Any) -> OfferCopy:
    """An offer of a message with one recipient, and with that content."""
    envelope = Envelope(sender="a@example.org", size=0)
    recipients = (Recipient(1, "b@example.net", NextHop("inside")),)
    given: dict[str, Any] = {
        "to": to,
        "message_id": MessageId(f"01900000-0000-7000-8000-{number:012x}"),
        "epoch": 1,
        "rank": 1,
        "envelope": envelope,
        "recipients": recipients,
        "received_at": datetime(2026, 11, 21, 10, 0, tzinfo=UTC),
    }
    given |= changes
    given.setdefault(
        "digests", Digests(of_content(content), of_envelope(given["envelope"], given["recipients"]))
    )
    return OfferCopy(**given)


async def pieces(*blocks: bytes) -> AsyncIterator[bytes]:
    for block in blocks:
        yield block


async def eventually(condition: Callable[[], Any], *, within: float = 30.0) -> None:
    """Wait until ``condition``, which may be a coroutine function, is true."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            while True:
                found = condition()
                if isinstance(found, Awaitable):
                    found = await found
                if found:
                    return
                await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that in time")


async def ask_back(station: Station, began: datetime) -> None:
    """An operator asks for all mail since then, and of the minute before."""
    now = datetime.now(UTC)
    request = Request(
        id=RequestId("01900000-0000-7000-9000-000000000001"),
        number=1,
        made_by=full("mx1"),
        made_at=now,
        operator="ann",
        reason="the store is lost",
        selector=Selector(since=began - timedelta(minutes=1), until=now),
        changed_by=full("mx1"),
        changed_at=now,
    )
    await station.read(lambda ledger: ledger.apply(requesting.add(ledger, request, station.node.policy, now)))
