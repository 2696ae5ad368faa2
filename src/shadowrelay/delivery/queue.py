"""The delivery queue: claims forks that are due, and gives each to a worker with its own session."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import TypeVar

import structlog

from shadowrelay import failpoints, measures
from shadowrelay.core.decisions import Part
from shadowrelay.core.delivery import retry
from shadowrelay.core.delivery.hosts import HostGroup
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Expansion, Hop, expansion_of, settle
from shadowrelay.core.filtering import in_queue
from shadowrelay.core.identifiers import NextHop, ServerName
from shadowrelay.core.members.damage import found
from shadowrelay.core.messages import Copy, Recipient
from shadowrelay.core.ownership import chores, heartbeat
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.routing import Route, next_hop_of
from shadowrelay.core.reception.sites import SitePath, fanned_out
from shadowrelay.core.recipients import LISTS, AddressBook, Becomes, no_book
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.steps import SendOn, Sent, Transact, WriteReports
from shadowrelay.core.values import dataclass, replace
from shadowrelay.database.examining import Examiner, Finding
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue import (
    ActiveFork,
    claim,
    claim_late,
    due_hops,
    may_be_sent,
    unclaim,
)
from shadowrelay.database.transport import DatabaseFailed, TransportDatabase
from shadowrelay.delivery.attempt import Outbound, Sender, room_of
from shadowrelay.delivery.extra_hop import ExtraHop
from shadowrelay.delivery.hosts import Hosts, worn_out
from shadowrelay.delivery.recent import RecentAttempts
from shadowrelay.delivery.reports import Reporter
from shadowrelay.delivery.shaping import TURN, Shaping
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.inquiry import AT_ONCE
from shadowrelay.members.pool import seconds
from shadowrelay.members.suspended import Suspended
from shadowrelay.running import Performer
from shadowrelay.smtp.sending.session import DeliverySession
from shadowrelay.wire.xtext import typed_recipient

log = structlog.get_logger(__name__)

T = TypeVar("T")

IDLE = 1.0  # seconds between looks at the queue if nothing wakes it
PRUNE = 60.0  # seconds between looks for next hops that nobody needs
LOOKS = 4.0  # times what a look took, until the next one: looking through thousands of domains takes a while
GATHER = 0.01  # seconds between two looks, at least: messages that come meanwhile are claimed together


class Queue:
    """The stage that delivers. Setting ``wake`` tells it that there may be something to send. ``failed`` is
    called after each attempt that leaves a next hop in retry.
    """

    def __init__(
        self,
        database: TransportDatabase,
        boundary: Boundary,
        hosts: Hosts,
        routes: Sequence[Route],
        reporter: Reporter,
        policy: Policy,
        clock: Callable[[], datetime],
        book: Callable[[], AddressBook] = no_book,
        ways: Mapping[str, SitePath] = MappingProxyType({}),
        endings: Callable[[], Endings] | None = None,
    ) -> None:
        self.wake = asyncio.Event()
        self.hosts = hosts
        self._fixed = frozenset(route.name for route in routes if not route.mx)
        self.hops = {name: Outbound(hosts.template(name)) for name in self._fixed}
        self.attempts = measures.ByHop(self._fixed)  # how long attempts take
        self.recent = RecentAttempts()
        self.failed: Callable[[NextHop], None] = lambda _: None  # nobody waits for mail of that next hop
        self._database = database
        self._boundary = boundary
        self._examiner = Examiner(self._database, clock)
        self.suspended = Suspended(clock, endings)
        self._still_ours = StillOurs(database, boundary, self.suspended, clock)
        self.shaping = Shaping(clock, self._freed)
        self._sender = Sender(
            self._still_ours,
            self._examiner,
            hosts,
            routes,
            policy,
            clock,
            self._ending,
            self.shaping,
            self._close,
        )
        self._lists = Lists(book, self._still_ours, self._examiner, routes, policy, self._ending, ways)
        self._reporter = reporter
        self._policy = policy
        self._clock = clock
        self.extra_hop: ExtraHop | None = None
        self._workers: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()  # sessions being closed in the background
        self._stopping = False
        self._looking = asyncio.Lock()  # held while deliveries are begun
        self._prune_at = 0.0  # on the loop's clock
        self._idle_at = 0.0  # when sessions are looked at again, on the loop's clock
        self._look_took = 0.0  # seconds
        self._short = False  # at the last look, more forks were due than sessions were allowed

    def _ending(self) -> datetime:
        return self.suspended.endings().at

    def rerouted(self, routes: Sequence[Route]) -> None:
        """The settings changed, and the hosts with them."""
        self._fixed = frozenset(route.name for route in routes if not route.mx)
        rerouted(self.hops, self._fixed, self.hosts)
        self.wake.set()

    def _freed(self) -> None:
        """A shaped next hop may take more."""
        if self._short:
            self.wake.set()

    async def run(self) -> None:
        """Deliver until ``stop`` is called."""
        while not self._stopping:
            self.wake.clear()
            async with self._looking:
                pause = await self._dispatch()
            if not self._stopping:
                await asyncio.sleep(max(GATHER, LOOKS * self._look_took))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self.wake.wait()

    async def stop(self) -> None:
        """Begin no new delivery; wait until those under way have finished."""
        self._stopping = True
        self.wake.set()
        async with self._looking:  # a look that is under way begins what it has claimed
            await asyncio.gather(*self._workers, return_exceptions=True)
        for outbound in self.hops.values():
            while outbound.idle:
                self._close(outbound.idle.pop()[0])
        await asyncio.gather(*self._closing)
        self.shaping.stop()

    async def _dispatch(self) -> float:
        """Start workers for next hops whose mail is due. Returns seconds until there may be more to do."""
        now = self._clock()
        pause, self._short = IDLE, False
        waiting = await self._database.transact_briefly(self._look)
        share = LaneShares(self.shaping, self.hosts, self.hops) if self.shaping.shapes else None
        if share is not None:  # next hops that share a lane are served in the order of their mail
            waiting.sort(key=lambda hop: hop[1])
        for name, due in waiting:
            if self._stopping:
                break
            if name not in self.hops:
                self.hops[name] = Outbound(self.hosts.template(name))
            outbound = self.hops[name]
            at = max(due, outbound.retry_at or due)
            if at > now:
                pause = min(pause, (at - now).total_seconds())
                if outbound.resting(now) and not outbound.probes:
                    await self._start_late(name, outbound)
                continue
            free = outbound.places(asyncio.get_running_loop().time(), self._policy) - outbound.workers
            only = 1 - len(outbound.probes) if outbound.probed else free
            free = min(free, only, self._policy.max_outbound_connections - len(self._workers))
            if share is not None:
                free = min(free, share.places(name, outbound))
            if free <= 0:
                self._short = True
                await self._start_late(name, outbound)
                continue
            started = await self._start(name, outbound, free)
            if started == free:
                self._short = True
            if share is not None:
                share.started(name, started)
        if share is not None:
            for session in [*share.spare()]:
                self._close(session)
        self._close_idle({name for name, _ in waiting})
        return max(pause, 0.01)

    def _look(self, ledger: SqlLedger) -> list[tuple[NextHop, datetime]]:
        began = seconds()
        found = due_hops(ledger)
        self._look_took = seconds() - began
        return found

    async def _start(self, name: NextHop, outbound: Outbound, most: int) -> int:
        """Start up to ``most`` workers. Returns how many were started."""
        await self._still_ours.note_silence()
        if self.suspended(name):
            return 0
        now = self._clock()
        claims = await self._database.transact_briefly(lambda ledger: claim(ledger, name, now, most))
        self._begin(outbound, claims)
        return len(claims)

    async def _start_late(self, name: NextHop, outbound: Outbound) -> None:
        """Start workers for late mail of a hop that takes none now, so that its senders are told.

        If the hop rests, mail whose delay notice or expiry is due; if all its sessions are in use, only mail
        that has expired. While there is none, one part of the queue is looked through each second.
        """
        at = asyncio.get_running_loop().time()
        if at < outbound.late_at:
            return
        await self._still_ours.note_silence()
        if self.suspended(name):  # nothing is late: suspended mail does not age
            return
        now = self._clock()
        delayed = self.suspended.received_by(name, self._policy.delay_notification_timeout)
        expired = self.suspended.received_by(name, self._policy.message_expiration_timeout)
        room = room_of(name, outbound, self.hosts, self.shaping) if self.shaping.shapes else None
        if not (outbound.resting(now) or (room and room.held_back)):
            delayed = expired
        behind = outbound.late_from
        claims, outbound.late_from = await self._database.transact(
            lambda ledger: claim_late(ledger, name, now, delayed, expired, behind)
        )
        if not claims:
            outbound.late_at = at + IDLE
        self._begin(outbound, claims)

    def _begin(self, outbound: Outbound, claims: list[ActiveFork]) -> None:
        outbound.let_in &= bool(outbound.workers or outbound.idle)
        probed = outbound.probed
        for claimed in map(self.suspended.aged, claims):
            worker = asyncio.create_task(self._work(outbound, claimed))
            outbound.workers += 1
            self._workers.add(worker)
            if probed:
                outbound.probes.add(worker)
            worker.add_done_callback(lambda task: self._ended(task, outbound))

    def _ended(self, worker: asyncio.Task[None], outbound: Outbound) -> None:
        outbound.workers -= 1
        self._workers.discard(worker)
        outbound.probes.discard(worker)
        if self._short:  # mail may wait for this worker's session
            self.wake.set()
        error = None if worker.cancelled() else worker.exception()
        if error is not None and not isinstance(error, DatabaseFailed):  # which ends the node, and says so
            log.error("delivery_failed", exc_info=error)

    async def _work(self, outbound: Outbound, claimed: ActiveFork) -> None:
        """Send one fork, and keep its session for the next one if possible."""
        in_hand = self._database.in_hand
        slot = in_hand.take(claimed.copy.id)
        try:
            session = await self._deliver(claimed, outbound)
        finally:
            in_hand.leave(slot)
        if session is not None:
            kept = session.alive and session.served < session.most
            if kept and outbound.server is not None and not self._stopping:
                outbound.idle.append((session, asyncio.get_running_loop().time()))
            else:
                self._close(session)

    async def _deliver(self, claimed: ActiveFork, outbound: Outbound) -> DeliverySession | None:
        """Make one attempt. Returns the session that is left, if any."""
        session, again = None, False
        if self.suspended(claimed.next_hop):  # since the claim
            await self._settle(claimed, lambda _: None)
            return None
        if self.extra_hop and self.extra_hop.wanted(claimed) and await self.extra_hop.take(claimed):
            await self._settle(claimed, lambda _: None)
            return None
        if claimed.copy.digests is None:
            if await self._examiner.compare(claimed.copy, claimed.content) is Finding.UNREADABLE:
                await self._put_off(claimed)
                return None
            await self._settle(claimed, lambda _: None)  # the fork is still due, unless it is damaged
            self.wake.set()
            return None

        writing = partial(self._reporter.write, content=claimed.content)
        # The claim stays until the next hop has answered for all recipients.
        meanwhile = Performer(transact=self._database.transact_briefly, report=writing)

        async def heard(sent: Sent) -> None:
            await meanwhile.run(write_down(claimed.copy, sent, self._clock))

        async def send(_: SendOn) -> Sent:
            nonlocal session, again
            if claimed.next_hop == LISTS:
                sent = await self._lists.expand(claimed)
            else:
                began = measures.now()
                sent, session = await self._sender.send(claimed, outbound, heard)
                took = measures.now() - began
                self.attempts.observe(claimed.next_hop, took)
                self.recent.note(claimed.next_hop, claimed.copy.id, sent, took, self._clock())
            at_once = [one for one in sent.results if one.ending is Ending.DEFERRED and not one.retry_after]
            again = not sent.results or bool(at_once)
            failpoints.passed("after-next-hop-reply")
            return sent

        performer = Performer(transact=partial(self._settle, claimed), send=send, report=writing)
        try:
            await performer.run(deliver(claimed.copy, claimed.next_hop, claimed.recipients, self._clock))
        except DatabaseFailed:
            raise
        except Exception:
            log.exception("delivery_failed", message=claimed.copy.id)
            await self._put_off(claimed)
        if outbound.failures:
            self.failed(claimed.next_hop)
        if again or outbound.failures:  # the fork is still due, or mail waits for its hop to come back
            self.wake.set()
        return session

    async def _settle(self, claimed: ActiveFork, work: Callable[[SqlLedger], T]) -> T:
        """Store the outcome and end the claim, in one transaction."""

        def settle_and_unclaim(ledger: SqlLedger) -> T:
            unclaim(ledger, claimed.copy.id, claimed.next_hop)
            return work(ledger)

        return await self._database.transact_briefly(settle_and_unclaim)

    async def _put_off(self, claimed: ActiveFork) -> None:
        """After an error of this node: give the fork back, to be tried again like one that failed."""
        failures = 1 + max(recipient.attempts for recipient in claimed.recipients)
        hop = Hop(server="", inside=False, mailbox=False)
        sent = self._sender.all_deferred(claimed, hop, "451 4.3.0 Local error in processing", failures)
        await self._settle(
            claimed,
            lambda ledger: ledger.apply(
                settle(ledger, claimed.copy.id, sent.results, (), hop, self._clock())
            ),
        )

    def try_now(self, next_hop: NextHop) -> None:
        """An operator wants mail for that next hop, or for all of that route, tried now."""
        clear_backoff(self.hops, self.hosts, next_hop, self.shaping)
        self.wake.set()

    def _close_idle(self, waiting: Set[NextHop]) -> None:
        """Once a second, close the sessions that waited too long. ``waiting``: next hops that have mail."""
        now, most = asyncio.get_running_loop().time(), self._policy.queue_max_idle_time.total_seconds()
        if now < self._idle_at:
            return
        self._idle_at = now + IDLE
        for outbound in self.hops.values():
            outbound.idle, old = worn_out(outbound.idle, now, most)
            for session in old:
                self._close(session)
            for item in [one for one in outbound.idle if one[0].owes and one[1] < now - IDLE]:
                outbound.idle.remove(item)
                self._in_background(self._ask(outbound, *item))
        self._prune(waiting, now)

    def _prune(self, waiting: Set[NextHop], now: float) -> None:
        """Once a minute, forget next hops of single domains that have neither mail nor sessions."""
        if now < self._prune_at:
            return
        self._prune_at = now + PRUNE
        for name in self.hops.keys() - waiting - self._fixed:
            if self.hops[name].quiet:
                del self.hops[name]
        self.hosts.prune()
        self.shaping.prune()

    async def _ask(self, outbound: Outbound, session: DeliverySession, since: float) -> None:
        """A session has nothing to do: ask the hop what it delivered of the mail that it tracks."""
        await session.ask()
        forgotten = all(one is not outbound for one in self.hops.values())
        if session.alive and not self._stopping and not forgotten:
            outbound.idle.append((session, since))
        else:
            await session.close()

    def _close(self, session: DeliverySession) -> asyncio.Task[None]:
        """Close in the background, so that a hop that ignores QUIT delays no one; at once what is dead."""
        if not session.alive:
            session.abort()
        return self._in_background(session.close())

    def _in_background(self, talk: Coroutine[None, None, None]) -> asyncio.Task[None]:
        closing = asyncio.create_task(talk)
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing


@dataclass(slots=True)
class StillOurs:
    """The question that every attempt asks, and what a silence before it leads to."""

    database: TransportDatabase
    boundary: Boundary
    suspended: Suspended
    clock: Callable[[], datetime]
    _noting: asyncio.Lock = field(default_factory=asyncio.Lock)  # while consequences of silence are stored

    async def __call__(self, claimed: ActiveFork) -> bool:
        """May this fork, claimed some time ago, be sent now?

        It may not after a silence in which members may have promoted their copies, nor if they told us that
        they did or that the fork is delivered, nor if an operator suspended it or its queue. Every attempt
        asks this. If nothing has happened to the message since the claim, memory gives the answer.
        """
        await self.note_silence()
        if chores.held_back(self.database.ledger) or self.suspended(claimed.next_hop):
            return False
        if self.database.ledger.undisturbed(claimed.copy.id):
            return True

        now = self.clock()
        return await self.database.transact_briefly(lambda ledger: may_be_sent(ledger, claimed, now))

    async def note_silence(self) -> None:
        """If this node was frozen or cut off for long, members may own our messages by now: mark them.

        This goes part by part. Until it is complete, nothing is claimed or sent.
        """
        boundary = self.boundary
        while boundary.cut_off(seconds()):
            async with self._noting:
                for member in boundary.cut_off(seconds()):
                    await self._ask_about_what_it_holds(member)

    async def _ask_about_what_it_holds(self, member: ServerName) -> None:
        boundary = self.boundary
        part: Part | None = Part(most=AT_ONCE)
        while part is not None:
            at = seconds()
            note = partial(heartbeat.cut_off, name=member, at_hand=boundary.at_hand(at), now=self.clock())
            part = await self.database.transact(partial(note, part=part))
        boundary.noted(member, at)
        log.warning("cut_off_from_holder", member=member)


class LaneShares:
    """One look at the queue: what each next hop gets of what lanes leave. A lane's places go to the next hops
    in the order in which this is asked.
    """

    def __init__(self, shaping: Shaping, hosts: Hosts, hops: Mapping[NextHop, Outbound]) -> None:
        self._shaping, self._hosts, self._hops = shaping, hosts, hops
        self._given: Counter[str] = Counter()  # in this look, by lane
        self._short: set[str] = set()  # lanes that have no place left for a next hop that has mail
        self._asked: dict[NextHop, set[str]] = {}  # the lanes of next hops that have mail
        self._starved: set[str] = set()  # those of them of which it has no session at all
        self._now = asyncio.get_running_loop().time()

    def places(self, name: NextHop, outbound: Outbound) -> int:
        """How many more workers it may have, of which there is mail."""
        known = self._hosts.known(name, outbound.known)
        names = {host.name for host in known} or {""}
        lanes = {lane.key for one in names if (lane := self._shaping.lane(name, one))}
        self._asked[name] = lanes
        if self._now < outbound.held_back_until:
            return 0
        if not known and outbound.workers:  # the first one finds the hosts
            return 0
        room = room_of(name, outbound, self._hosts, self._shaping)
        if room is None:
            return sys.maxsize if known else 1
        if room.held_back:
            return 0
        places = room.places - outbound.about_to - sum(self._given[lane] for lane in lanes)
        if lanes & self._starved or any(map(self._shaping.yields, lanes)):
            young = [one for one, _ in outbound.idle if one.since > self._now - TURN]
            places = min(places, len(young) - outbound.about_to)
        elif places <= 0:
            self._short |= lanes
            if not outbound.workers:
                self._starved |= lanes
        return places if known else min(places, 1)

    def started(self, name: NextHop, count: int) -> None:
        for lane in self._asked[name]:
            self._given[lane] += count

    def spare(self) -> Iterator[DeliverySession]:
        """Sessions to close, since others want their places: nothing is left for them to send, or their turn
        is over. None that a worker is about to take.
        """
        self._shaping.want(self._starved)
        elsewhere = {lane for lane in self._shaping.own if self._shaping.yields(lane)}
        starved = elsewhere | self._starved
        for name, outbound in self._hops.items() if starved or self._short else ():
            for session, idle in outbound.idle[: max(0, len(outbound.idle) - outbound.about_to)]:
                waited = name not in self._asked and session.lane in starved | self._short
                if waited or (session.since <= self._now - TURN and session.lane in starved):
                    outbound.idle.remove((session, idle))
                    if session.lane in elsewhere:
                        self._shaping.yielded(session.lane)
                    yield session


def clear_backoff(hops: Mapping[NextHop, Outbound], hosts: Hosts, wanted: NextHop, shaping: Shaping) -> None:
    """Let that next hop, or all next hops of that route, be tried now. Failures are remembered: one session
    goes first.
    """
    shaping.clear_backoff(wanted)
    for name, outbound in hops.items():
        if in_queue(wanted, name):
            outbound.retry_at = None
            outbound.held_back_until = 0.0
            hosts.clear_backoff(host for some in outbound.known.values() for host in some)
            for group in hosts.ways(name):
                if isinstance(group, HostGroup):
                    hosts.clear_backoff(group.hosts)


def rerouted(hops: dict[NextHop, Outbound], fixed: Iterable[NextHop], hosts: Hosts) -> None:
    """The hosts changed. ``fixed``: the next hops that the settings name now. Attempts under way go on.

    A next hop that leads elsewhere now is tried at once, whatever failed before. One that is gone keeps its
    mail, which goes by its domain, or waits for a route.
    """
    for name in {*hops, *fixed}:
        server = hosts.template(name)
        if name not in hops:
            hops[name] = Outbound(server)
        elif hops[name].server != server or hosts.moved(name):
            hops[name].server = server
            hops[name].restored()


async def deliver(
    copy: Copy, next_hop: NextHop, recipients: tuple[Recipient, ...], clock: Callable[[], datetime]
) -> Copy | None:
    """Send one fork and record the outcome. The result is the copy afterwards, None if it is gone.

    Whatever happens to the message during the attempt, the attempt may finish: its outcome settles recipients
    in any role.
    """
    sent = await SendOn(next_hop, copy, recipients)
    if sent.damaged:
        await Transact(lambda ledger: ledger.apply(found(ledger, copy.id, clock(), sent.damaged)))
    return await write_down(copy, sent, clock)


async def write_down(copy: Copy, sent: Sent, clock: Callable[[], datetime]) -> Copy | None:
    """Settle the recipients that have results, and announce that.

    An LMTP server answers for one recipient after the other, and may take minutes: each answer is recorded
    when it comes.
    """
    reports = await WriteReports(copy, sent.results, sent.hop, sent.dsn_offered)
    return await Transact(
        lambda ledger: ledger.apply(
            settle(ledger, copy.id, sent.results, (*reports, *sent.expansions), sent.hop, clock(), sent=copy)
        )
    )


_HERE = Hop(server="", inside=False, mailbox=False)


@dataclass(frozen=True, slots=True)
class Lists:
    """Expands the lists of a fork. ``still_ours`` is asked first: another member may own the message."""

    _book: Callable[[], AddressBook]
    _still_ours: Callable[[ActiveFork], Awaitable[bool]]
    _examiner: Examiner
    _routes: Sequence[Route]
    _policy: Policy
    _ending: Callable[[], datetime]  # what would have ended by then has ended
    _ways: Mapping[str, SitePath]

    async def expand(self, claimed: ActiveFork) -> Sent:
        """One result for each list of the fork. The message to the members refers to the content, which is
        compared with its digest first.
        """
        if not await self._still_ours(claimed):
            return Sent((), _HERE)
        finding = await self._examiner.compare(claimed.copy, claimed.content)
        if finding is Finding.DAMAGED:
            return Sent((), _HERE)  # it waits for a good copy
        if finding is Finding.UNREADABLE:
            reply = "451 4.3.0 Local error: its content cannot be read"
            return Sent(tuple(self._put_off(claimed, one, reply) for one in claimed.recipients), _HERE)
        book, results, expansions = self._book(), [], []
        for one in claimed.recipients:
            result, expansion = self._expanded(claimed, one, book)
            results.append(result)
            expansions += [expansion] if expansion else []
        return Sent(tuple(results), _HERE, expansions=tuple(expansions))

    def _expanded(
        self, claimed: ActiveFork, one: Recipient, book: AddressBook
    ) -> tuple[AttemptResult, Expansion | None]:
        expansion = expansion_of(claimed.copy, one, book, self._next_hop, typed_recipient)
        if expansion is not None:
            for loop in expansion.loops:
                log.warning("list_inside_itself", message=claimed.copy.id, list=one.address, again=loop)
            count = len(expansion.recipients)
            expansion = replace(expansion, recipients=fanned_out(expansion.recipients, self._ways))
            ending = Ending.POSTED if expansion.posted else Ending.EXPANDED
            reply = f"250 2.1.5 Expanded to {count} recipient{'s' if count > 1 else ''}"
            return AttemptResult(one.number, ending, reply, remote=False), expansion
        found = book.resolve(one.address)
        if found.what is Becomes.UNKNOWN:
            reply = "550 5.1.1 No such recipient here"
            return AttemptResult(one.number, Ending.REJECTED, reply, remote=False), None
        if found.what is Becomes.LIST:
            reply = "550 5.2.4 The list has no members"
            return AttemptResult(one.number, Ending.REJECTED, reply, remote=False), None
        # The file that had the list may come to this node yet.
        return self._put_off(claimed, one, "451 4.2.4 This node has no list of that name"), None

    def _put_off(self, claimed: ActiveFork, one: Recipient, reply: str) -> AttemptResult:
        now, since = self._ending(), retry.since(claimed.copy, (one,)) + claimed.not_aged
        if retry.expired(since, now, self._policy):
            return AttemptResult(one.number, Ending.EXPIRED, reply, remote=False)
        late = retry.delay_notice_due(one, since, now, self._policy)
        pause: timedelta = retry.after(one.attempts + 1, self._policy)
        return AttemptResult(one.number, Ending.DEFERRED, reply, pause, remote=False, late=late)

    def _next_hop(self, address: str) -> NextHop:
        """By the routes; without one the recipient is put off, as any other is, until there is one."""
        return next_hop_of(address, self._routes) or NextHop("")
