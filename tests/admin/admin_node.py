"""A node with a real transport database, and its admin API on a loopback socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from starlette.routing import Route as HttpRoute

from shadowrelay.admin.access import Access
from shadowrelay.admin.api import build_app
from shadowrelay.admin.node import HopStatus, LateStatus, MemberState, MemberStatus, RefusalView
from shadowrelay.admin.node_view import NodeView
from shadowrelay.admin.rates import Rates
from shadowrelay.admin.server import bind, serve
from shadowrelay.console.app import Console
from shadowrelay.core.decisions import Content, DamagedRow, Decision, HopShadow, SaveCopy
from shadowrelay.core.delivery import settling
from shadowrelay.core.delivery.hop_watch import HopWatch
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Hop
from shadowrelay.core.delivery.tls_policy import TlsResult
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import (
    Beginning,
    DatabaseId,
    Incarnation,
    Lineage,
    Mark,
    MessageId,
    NextHop,
    ServerName,
)
from shadowrelay.core.members import damage
from shadowrelay.core.messages import Digests, Envelope, Recipient, Stage, Status, TlsWish
from shadowrelay.core.operating import ActAnswer, Scope
from shadowrelay.core.ownership import heartbeat
from shadowrelay.core.ownership.handover import Remains
from shadowrelay.core.policy import Policy
from shadowrelay.core.pressure import Pressure, PressureLevel, Resource
from shadowrelay.core.reception import holding, redundancy
from shadowrelay.core.reception.holding import ShadowCopyOffer
from shadowrelay.core.reception.redundancy import Arrival, Leg, OfferAttempt
from shadowrelay.core.reception.routing import Route
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.safety_net.resubmission import Contacts
from shadowrelay.core.steps import Operate, Unanswered
from shadowrelay.core.values import replace
from shadowrelay.core.workers import worker_name
from shadowrelay.database import views
from shadowrelay.database.examining import Examiner
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.room import Room
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.delivery.recent import RecentAttempt
from shadowrelay.delivery.tls_reports import TlsReporting
from shadowrelay.delivery.tls_results import TlsResults
from shadowrelay.measures import ByHop, Measures
from shadowrelay.members.indexes import Indexes
from shadowrelay.members.inquiry import Inquiry
from shadowrelay.members.scrub import Scrub
from shadowrelay.node_clock import NodeClock
from shadowrelay.operator.acts import Acts
from shadowrelay.operator.drain import DrainOrder
from shadowrelay.operator.node_acts import NodeActs
from shadowrelay.operator.queue_names import QueueNames, hops_of
from shadowrelay.operator.resubmit import Resubmission
from shadowrelay.operator.resubmit_estimate import ResubmitEstimate
from shadowrelay.operator.retire import retire
from shadowrelay.operator.view import QUEUES, View
from shadowrelay.readings import disk
from shadowrelay.reception.filter_watch import FilterWatch
from shadowrelay.shown.records import RetiredAnswer
from shadowrelay.smtp.members.client import NO_ANSWER
from shadowrelay.smtp.receiving.rates import HeldBack
from shadowrelay.tracking.events import TrackingEvents
from shadowrelay.tracking.tail import LogDirectory

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
POLICY = Policy()
OURS, MX2, MX3 = ServerName("mx1.example.net"), ServerName("mx2.example.net"), ServerName("mx3.example.net")
DATABASES = {
    MX2: DatabaseId("d2"),
    MX3: DatabaseId("d3"),
    worker_name(MX2, 2): DatabaseId("d2-2"),
}
MARK = Mark(Incarnation("2" * 16), 5)


def peer(name: ServerName, state: MemberState = MemberState.REACHABLE, **more: Any) -> MemberStatus:
    place = {"site": "here", "host": name} | more
    return MemberStatus(name=name, address=f"{name}:2526", state=state, **place)


HOP = ServerName("edge.example.com")


def kept_for_hop(number: int) -> Callable[[SqlLedger], None]:
    """A hop took that message, and has not delivered it."""
    row = HopShadow(message_id(number), HOP, DatabaseId("d9"), MARK, (1,), NOW)
    return lambda ledger: ledger.apply(Decision(None, (row,)))


async def _nobody(*asked: object) -> Any:
    raise AssertionError(f"nobody is asked: {asked}")


async def _none(*given: object) -> list[Any]:
    return []


def tls_result(domain: str, result: Any = "", **more: Any) -> TlsResult:
    """A session with a host of that domain, which asks for TLS by MTA-STS."""
    given: dict[str, Any] = {"kind": "pkix", "source": "mta-sts", "when": NOW, **more}
    return TlsResult(domain, f"mail.{domain}", result=result, **given)


@dataclass
class FakeNode:
    """All that the API asks of a node, with what a test wants it to say."""

    database: TransportDatabase
    room: Room
    name: ServerName = OURS
    site: str = "here"
    host: str = "rack1"
    started_at: datetime = NOW - timedelta(hours=3)
    statuses: list[MemberStatus] = field(default_factory=lambda: [peer(MX2), peer(MX3)])
    hops: dict[str, HopStatus] = field(default_factory=dict)
    readiness: tuple[bool, str] = (True, "")
    alive: bool = True
    active: bool = False  # being drained
    ordered: DrainOrder = field(default_factory=DrainOrder)
    opening: bool = False
    clock: NodeClock = field(default_factory=lambda: NodeClock.following(lambda: NOW))
    saved_times: int = 0
    told_of: list[ServerName] = field(default_factory=list)
    given_up: list[MessageId] = field(default_factory=list)
    refused: dict[MessageId, list[RefusalView]] = field(default_factory=dict)
    unasked: list[ServerName] = field(default_factory=list)  # for good copies
    logged: tuple[str, str] | None = None  # of damage
    scrub_interval: timedelta = timedelta(0)
    redirecting: Any = None
    redundancy: Any = None
    cluster_settings: Any = None
    redundant: bool = True
    pressed: list[Pressure] = field(
        default_factory=lambda: [Pressure(Resource.MEMORY, PressureLevel.LOW, 20.0, (72, 75, 73, 71))]
    )
    held: list[HeldBack] = field(default_factory=list)
    hop_watches: dict[ServerName, HopWatch] = field(default_factory=dict)
    policy: Policy = POLICY
    attempted: list[RecentAttempt] = field(default_factory=list)
    traced: list[dict[str, Any]] = field(default_factory=list)  # events of its tracking log
    elsewhere: dict[ServerName, FakeNode] = field(default_factory=dict)  # members that answer
    measured: Measures = field(default_factory=lambda: Measures(delivery=ByHop(("outside",))))
    announced: list[Any] = field(default_factory=list)
    peer_operate: Scope = Scope.OPERATE  # what members may have it do

    tls_results: TlsResults = field(default_factory=TlsResults)
    tls_reports: Any = field(default_factory=lambda: TlsReporting(lambda: None, _nobody, _nobody))
    certificates: dict[str, datetime] = field(default_factory=lambda: {"peer.certificate": NOW})

    def __post_init__(self) -> None:
        log = LogDirectory(self.database.file.parent / "tracking", OURS, lambda: self.database.lineage)
        self.events = TrackingEvents(log)
        self.rates = Rates(lambda: self.database.ledger.tracked)
        examiner = Examiner(self.database, lambda: NOW)
        self.scrub = Scrub(
            examiner, Inquiry(), frozenset, self.scrub_interval, lambda: NOW, Indexes(self.database)
        )
        counting = ResubmitEstimate(
            endings=lambda: Endings(NOW),
            database=self.database,
            policy=POLICY,
            clock=lambda: NOW,
            mint=lambda now: message_id(999),
            servers=(),
            contacts=lambda: Contacts(frozenset(), frozenset(), frozenset()),
            away=dict,
            ask=_nobody,
            remembers=_nobody,
        )
        self.names = QueueNames(
            routes=(
                Route(NextHop("inside"), ("inside.test",)),
                Route(NextHop("outside"), ("outside.test",)),
                Route(NextHop("world"), ("*",), mx=True),
            ),
            sites=(),
            nodes=lambda: (OURS, MX2, MX3),
            seen=self._queues_seen,
        )
        self.resubmission = Resubmission(
            counting=counting, having=lambda request: (), wake=lambda: None, names=self.names
        )

    async def _queues_seen(self) -> frozenset[str]:
        return hops_of(await self.services.view.everybody(QUEUES, {}))

    @property
    def services(self) -> Any:
        """What an operator sees from here; members say what ``elsewhere`` has, or are silent."""
        view = View(
            name=self.name,
            looks=NodeView(self, lambda: NOW, lambda: 0.0).looks(),
            members=lambda: [one.name for one in self.statuses],
            reachable=lambda: [one.name for one in self.statuses],
            ask=self._elsewhere,
            mint=lambda now: message_id(999),
            clock=lambda: NOW,
            seconds=lambda: 0.0,
        )
        acts = NodeActs(
            members=lambda: [one.name for one in self.statuses],
            drain=self.begin_drain,
            undrain=self.end_drain,
            ask=self._elsewhere,
            mint=lambda now: message_id(998),
            clock=lambda: NOW,
        )
        return SimpleNamespace(
            view=view,
            node_acts=acts,
            events=self.events,
            rates=self.rates,
            certificates=lambda: self.certificates,
            announcing=SimpleNamespace(members=lambda: self.announced),
            queue_names=self.names,
            suspensions=SimpleNamespace(all=_none),
            jobs=SimpleNamespace(all=_none),
        )

    async def _elsewhere(self, step: Operate, timeout: float) -> ActAnswer | Unanswered:
        if found := self.elsewhere.get(step.to):
            given = found.services
            actions = {**given.view.actions(), **given.node_acts.actions()}
            return await Acts(found.peer_operate, actions, lambda: 0.0).perform(self.name, step.act)
        return Unanswered("xoperate", NO_ANSWER)

    def waits_for(self, message_id: MessageId) -> list[ServerName]:
        return self.unasked

    async def damage_in_log(self, message_id: MessageId) -> tuple[str, str] | None:
        return self.logged

    async def trace(self, message_id: MessageId, older: str, most: int) -> tuple[list[dict[str, Any]], str]:
        return [one for one in self.traced if one["id"] == message_id], ""

    def member_statuses(self) -> list[MemberStatus]:
        return self.statuses

    def hop(self, name: NextHop) -> HopStatus:
        return self.hops.get(name, HopStatus(sessions=0, places=40, limit="a limit"))

    def recent(self, name: NextHop) -> Sequence[RecentAttempt]:
        return self.attempted

    def hop_watch(self, hop: ServerName) -> HopWatch:
        return self.hop_watches.get(hop, HopWatch(hop))

    def refusals(self, message_id: MessageId) -> list[RefusalView]:
        return self.refused.get(message_id, [])

    def login_counts(self) -> Mapping[str, int]:
        return {"succeeded": 3, "failed": 2, "put_off": 1}

    async def save_time(self) -> None:
        self.saved_times += 1

    def sections(self) -> dict[str, str]:
        return {"accepted_domains": "a1"}

    def redundancy_on(self) -> bool:
        return self.redundant

    def filters(self) -> list[FilterWatch]:
        watch = FilterWatch("default", "rspamd", lambda: self.started_at)
        watch.failed("connection lost", taken=True)
        watch.unfiltered += 1
        watch.seconds.observe(0.02)
        return [watch]

    def held_back(self) -> list[HeldBack]:
        return self.held

    def back_offs(self) -> Mapping[str, int]:
        return {"google-rate": 2}

    def pressures(self) -> list[Pressure]:
        return self.pressed

    def held_back_counts(self) -> Mapping[str, int]:
        return {"connections": 0, "messages": len(self.held), "recipients": 0}

    def extra_hops(self) -> Mapping[str, int]:
        return {"taken": 4, "alone": 1}

    def measures(self) -> Measures:
        return self.measured

    def late(self) -> LateStatus:
        return LateStatus(timedelta(seconds=30), 2, {"settled": 4, "timed_out": 1})

    def refused_copies(self) -> int:
        return len(self.refused)

    def warning(self) -> str:
        return ""

    def ready(self) -> tuple[bool, str]:
        return self.readiness

    def live(self) -> bool:
        return self.alive

    async def give_up(self, message_id: MessageId, operator: str) -> bool:
        del operator
        self.given_up.append(message_id)
        copy = await self.database.transact(lambda ledger: ledger.copy(message_id))
        return copy is not None and copy.stage is Stage.SET_ASIDE

    @property
    def draining(self) -> FakeNode:
        return self

    async def remains(self) -> Remains:
        seen = await self.database.transact(views.snapshot)
        return Remains(
            queued=seen.counts.queued,
            exposed=seen.counts.exposed,
            set_aside=seen.counts.set_aside,
            held_for=seen.held_for,
            held_by=seen.held_by,
            handed_over={MX2: 2},
            awaited={MX2: 1},
            reachable=frozenset({MX2}),
        )

    async def begin_drain(self, operator: str) -> Remains:
        self.active, self.ordered = True, DrainOrder(operator, NOW)
        return await self.remains()

    async def end_drain(self, operator: str) -> Remains:
        self.active, self.ordered = False, DrainOrder(operator, NOW)
        return await self.remains()

    async def retire(self, name: ServerName, operator: str) -> RetiredAnswer:
        self.told_of.append(name)
        return await self.database.transact(lambda ledger: retire(ledger, name, NOW))


@asynccontextmanager
async def a_node(directory: Path) -> AsyncIterator[FakeNode]:
    database = await TransportDatabase.open(
        directory, OURS, Incarnation("1" * 16), DatabaseId("our-database"), NOW
    )
    try:
        room = Room(directory, 256 * 2**20)
        room.board.measured(disk(directory)[2], 1.0)
        yield FakeNode(database, room)
    finally:
        await database.close(NOW)


@asynccontextmanager
async def serving(
    node: FakeNode,
    token: str | None = None,
    access: Access | None = None,
    routes: Sequence[HttpRoute] = (),
    port: int = 0,
    console: Console | None = None,
    **more: Any,
) -> AsyncIterator[int]:
    """The port where the node's API is served, with ``routes`` besides."""
    sock, stop = bind("127.0.0.1", port), asyncio.Event()
    port = sock.getsockname()[1]
    app = build_app(node, token=token, access=access, clock=lambda: NOW)
    app.router.routes.extend(routes)
    if console:
        console.into(app)
    task = asyncio.create_task(serve(app, sock, stop, **more))
    try:
        yield port
    finally:
        node.events.close()
        stop.set()
        await task
        node.events.closed = False


@dataclass(frozen=True)
class Got:
    status: int
    headers: dict[str, str]
    text: str
    raw_headers: dict[str, str] = field(default_factory=dict)

    @property
    def json(self) -> Any:
        return json.loads(self.text)


async def ask(port: int, target: str, method: str = "GET", body: bytes = b"", **headers: str) -> Got:
    """One HTTP request over a socket of its own. Underscores in header names are hyphens."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    given = {"host": f"127.0.0.1:{port}", "connection": "close"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    if body or method == "POST":
        given["content-length"] = str(len(body))
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    writer.write(f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode() + body)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    await writer.wait_closed()
    head, _, rest = answer.partition(b"\r\n\r\n")
    first, *others = head.decode().split("\r\n")
    raw = dict(line.split(": ", 1) for line in others)
    found = {name.lower(): value.lower() for name, value in raw.items()}
    raw = {name.lower(): value for name, value in raw.items()}
    return Got(int(first.split()[1]), found, rest.decode(), raw)


def message_id(number: int) -> MessageId:
    return MessageId(f"01939e00-0000-7000-8000-{number:012d}")


def meet(name: ServerName) -> Callable[[SqlLedger], object]:
    """That member greeted us once, so that its acknowledgements count."""
    lineage = Lineage(DATABASES[name], (Beginning(MARK.incarnation, 0),), MARK.sequence)
    return lambda ledger: heartbeat.meet(ledger, name, lineage, None, NOW, after_silence=True)


def received(
    number: int,
    holder: ServerName | None,
    *to: str,
    subject: str = "hello",
    tls: TlsWish | None = None,
) -> Callable[[SqlLedger], object]:
    """A message accepted with that holder, or exposed. Addresses at ``inside`` go there, others outside."""
    attempts = [OfferAttempt(holder, Leg.ACKNOWLEDGED, 1, "250", DATABASES[holder], MARK)] if holder else []
    recipients = tuple(
        Recipient(count, address, NextHop("inside" if "inside" in address else "outside"))
        for count, address in enumerate(to or ("ann@outside.test",), start=1)
    )
    envelope = Envelope(
        sender="bob@example.net", size=4, subject=subject, message_id="<m@example.net>", tls=tls
    )
    arrival = Arrival(
        id=message_id(number),
        envelope=envelope,
        recipients=recipients,
        digests=Digests(of_content(b"body"), of_envelope(envelope, recipients)),
        received_at=NOW - timedelta(minutes=number),
    )
    return lambda ledger: ledger.apply(
        redundancy.accept(ledger, arrival, Content(data=b"body"), attempts, POLICY, NOW, last_resort=True)
    )


def without_digests(number: int) -> Callable[[SqlLedger], object]:
    """That message is one of a version before digests."""

    def work(ledger: SqlLedger) -> None:
        if copy := ledger.copy(message_id(number)):
            ledger.apply(Decision(None, (SaveCopy(copy, replace(copy, digests=None)),)))

    return work


def spoilt(number: int) -> Callable[[SqlLedger], object]:
    """The disk changes the content of that message; nobody knows."""
    return lambda ledger: ledger.connection.execute(
        "UPDATE content SET data = x'00' WHERE message_id = ?", (message_id(number),)
    )


def damaged(number: int, *, aside: bool = False) -> Callable[[SqlLedger], object]:
    """That message was found damaged; ``aside``: no member has a good copy."""

    def work(ledger: SqlLedger) -> None:
        spoilt(number)(ledger)
        ledger.apply(damage.found(ledger, message_id(number), NOW, "the octets differ from the digest"))
        if aside:
            ledger.apply(damage.given_up(ledger, message_id(number), NOW))

    return work


def unbelievable(number: int, *, aside: bool = False) -> Callable[[SqlLedger], object]:
    """The same of the rows of that message; its second recipient is known to be delivered."""
    rows = DamagedRow(message_id(number), NOW, "the sum of a row differs", ((2, Status.DELIVERED),))

    def work(ledger: SqlLedger) -> None:
        ledger.apply(damage.found_rows(rows))
        if aside:
            ledger.apply(damage.given_up(ledger, message_id(number), NOW))

    return work


def gone(owner: ServerName) -> Callable[[SqlLedger], object]:
    """That member came back with another database: what is held for it is to be promoted."""
    lineage = Lineage(DatabaseId("another"), (Beginning(Incarnation("9" * 16), 0),), 0)
    return lambda ledger: heartbeat.meet(ledger, owner, lineage, None, NOW, after_silence=True)


def held(number: int, owner: ServerName, *to: str) -> Callable[[SqlLedger], object]:
    """A copy that we hold for that member."""
    envelope = Envelope(sender="bob@example.net", size=4)
    recipients = tuple(
        Recipient(count, address, NextHop("inside" if "inside" in address else "outside"))
        for count, address in enumerate(to or ("a@b.test",), 1)
    )
    offer = ShadowCopyOffer(
        message_id=message_id(number),
        epoch=1,
        rank=1,
        owner=owner,
        owner_database=DATABASES[owner],
        mark=MARK,
        received_at=NOW - timedelta(minutes=number),
        envelope=envelope,
        recipients=recipients,
        digests=Digests(of_content(b"body"), of_envelope(envelope, recipients)),
    )
    return lambda ledger: ledger.apply(holding.hold(ledger, offer, Content(data=b"body"), POLICY, NOW))


def attempted(number: int, ending: Ending, reply: str, *recipients: int) -> Callable[[SqlLedger], object]:
    """An attempt ended so for those recipients; what is deferred waits for five minutes."""
    results = [
        AttemptResult(recipient, ending, reply, timedelta(minutes=5 if ending is Ending.DEFERRED else 0))
        for recipient in recipients or (1,)
    ]
    hop = Hop("mail.outside.test", inside=False, mailbox=False)
    return lambda ledger: ledger.apply(settling.settle(ledger, message_id(number), results, (), hop, NOW))


async def fill(node: FakeNode, *works: Callable[[SqlLedger], object]) -> None:
    for work in works:
        await node.database.transact(work)
