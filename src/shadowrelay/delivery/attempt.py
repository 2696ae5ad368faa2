"""One delivery attempt at a next hop: the session, the server, and the result for each recipient."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import field
from datetime import datetime, timedelta
from functools import partial

import structlog

from shadowrelay.core.delivery import retry
from shadowrelay.core.delivery.hosts import Group, Host, HostGroup, Standing, next_try
from shadowrelay.core.delivery.mx import DomainRefused
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Hop
from shadowrelay.core.delivery.shaping import Lane
from shadowrelay.core.events.reports import is_derived
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Copy, Recipient, TlsWish
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.routing import Route, next_hop_of
from shadowrelay.core.steps import Sent
from shadowrelay.core.unread import next_look, pause_after, waits_for_operator
from shadowrelay.core.values import dataclass, replace
from shadowrelay.database.content import ContentDamaged, source
from shadowrelay.database.examining import Examiner, Finding
from shadowrelay.database.queue import FRONT, ActiveFork, QueuePlace
from shadowrelay.delivery.hosts import Hosts, Search
from shadowrelay.delivery.shaping import LaneRoom, NoRoom, Shaping
from shadowrelay.smtp.sending.hop import NOT_VERIFIED
from shadowrelay.smtp.sending.session import (
    ConnectionFailed,
    DeliveryResult,
    DeliverySession,
    NextHopServer,
    RecipientResult,
    Unfit,
    Withdrawn,
)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Outbound:
    """A next hop as this process knows it: its sessions, and what failed when no host of it was left.

    ``server``: what its hosts have in common; None if the settings do not know it. ``on``: sessions in use,
    by host. ``known``: the hosts of each group at the last attempt.

    ``probes``: workers that began after it failed. Earlier workers may wait minutes for a reply, and must not
    hold up the mail if the hop is back. ``let_in``: a session was opened since there was none. Until then
    only one session is tried, so that a wrong password is not refused in many sessions at once.
    """

    server: NextHopServer | None
    workers: int = 0
    probes: set[asyncio.Task[None]] = field(default_factory=set)
    failures: int = 0
    retry_at: datetime | None = None
    last_error: str = ""
    failing_since: datetime | None = None  # the first of ``failures``
    let_in: bool = False
    status: str = ""  # of ``last_error`` (RFC 3463)
    busy: set[DeliverySession] = field(default_factory=set)  # sessions that send, or are about to
    idle: list[tuple[DeliverySession, float]] = field(default_factory=list)
    on: Counter[Host] = field(default_factory=Counter)
    known: dict[Group, tuple[Host, ...]] = field(default_factory=dict)
    fewer: int = 0
    fewer_until: float = 0.0  # on the loop's clock
    late_from: QueuePlace = FRONT  # where the next look for late mail goes on
    late_at: float = 0.0  # when that look is due, on the loop's clock
    held_back_until: float = 0.0  # on the loop's clock: none of its hosts took more, as they are shaped

    def places(self, now: float, policy: Policy) -> int:
        """How many workers the hop may have: fewer for a while after it turned away one of several."""
        return self.fewer if now < self.fewer_until else policy.max_per_domain_outbound_connections

    def turned_away(self, now: float, policy: Policy) -> None:
        """The hop refused a session to one of several workers."""
        self.fewer = max(1, min(self.places(now, policy), self.workers) - 1)
        self.fewer_until = now + policy.queue_glitch_retry_interval.total_seconds()

    @property
    def probed(self) -> bool:
        """Must one session go first? The next hop failed, or wants a login and no session is logged in."""
        logged_in = self.let_in and (self.workers or self.idle)
        return bool(self.failures or (self.server and self.server.login and not logged_in))

    def resting(self, now: datetime) -> bool:
        """Has the hop failed, and must not be tried yet?"""
        return self.retry_at is not None and now < self.retry_at

    def idle_for(self, server: NextHopServer) -> DeliverySession | None:
        """An idle session with that server, the one used last; it is not idle any more."""
        for index in range(len(self.idle) - 1, -1, -1):
            if self.idle[index][0].server == server:
                return self.idle.pop(index)[0]
        return None

    def idle_in(self, lane: str) -> DeliverySession | None:
        """An idle session of that lane, the one that waits longest; it is not idle any more."""
        for index, (session, _) in enumerate(self.idle):
            if session.lane == lane:
                del self.idle[index]
                return session
        return None

    @property
    def about_to(self) -> int:
        """How many workers have no session yet."""
        return self.workers - len(self.busy)

    @property
    def quiet(self) -> bool:
        """Has it neither work nor sessions?"""
        return not (self.workers or self.idle or self.busy or self.probes)

    def restored(self) -> None:
        """The hop took mail again: forget its failures."""
        self.failures, self.retry_at, self.last_error = 0, None, ""
        self.failing_since = None
        self.probes.clear()


def room_of(name: NextHop, outbound: Outbound, hosts: Hosts, shaping: Shaping) -> LaneRoom | None:
    """What shaping leaves to a next hop now; None: it does not limit it."""
    known = hosts.known(name, outbound.known)
    return shaping.room(name, known, [session for session, _ in outbound.idle])


HELD = 1.0
"""Seconds until a next hop is looked at again whose hosts took less than it seemed."""

_WAITS = (Ending.DEFERRED, Ending.IN_DOUBT, Ending.UNREADABLE)  # the recipient is not settled


class OutOfTime(Exception):
    """The message expired while the next hop was being reached."""


class Overtaken(Exception):
    """While the next hop was being reached, this node lost the right to send the fork."""

    def __init__(self, session: DeliverySession | None) -> None:
        super().__init__("somebody else may own the message by now")
        self.session = session  # left open for the next message


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends forks.

    ``still_ours`` is called after connecting, and again before the content is sent: either step can take
    minutes, and another member may own the message by then.
    """

    _still_ours: Callable[[ActiveFork], Awaitable[bool]]
    _examiner: Examiner
    _hosts: Hosts
    _routes: Sequence[Route]
    _policy: Policy
    _clock: Callable[[], datetime]
    _ending: Callable[[], datetime]  # what would have ended by then has ended
    _shaping: Shaping
    _close: Callable[[DeliverySession], asyncio.Task[None]]  # in the background

    async def send(
        self, claimed: ActiveFork, outbound: Outbound, heard: Callable[[Sent], Awaitable[None]]
    ) -> tuple[Sent, DeliverySession | None]:
        """Make one attempt. Returns its result and the session that is left. Failures raise no exception.

        ``heard`` gets results of recipients that are answered while others still wait; the returned result
        lacks them. Neither session nor result: this worker gets no session, and the fork stays due.
        """
        groups = self._hosts.ways(claimed.next_hop)
        if not groups:
            claimed, groups = self._rerouted(claimed)
        hop = self._hop(groups)
        if retry.expired(claimed.aging_since, self._ending(), self._policy):
            match await self._examiner.compare(claimed.copy, claimed.content):
                case Finding.DAMAGED:
                    return Sent((), hop), None  # a damaged message waits for a good copy, whatever its age
                case Finding.UNREADABLE:
                    return self._unreadable(claimed, hop, "its content cannot be read"), None
            hops = f"451 {outbound.status} {outbound.last_error}" if outbound.last_error else ""
            return Sent(
                tuple(
                    AttemptResult(r.number, Ending.EXPIRED, expired_reply(r, hops), remote=False)
                    for r in claimed.recipients
                ),
                hop,
            ), None
        if not groups:
            return self.all_deferred(claimed, hop, "451 4.4.4 No route to that domain", 1), None
        claimed = _of_one_host(claimed)
        if waits_for_operator(claimed.recipients[0], self._policy):
            return self._all_wait(claimed, hop), None
        if outbound.retry_at is not None and outbound.resting(self._clock()):
            reply = f"451 {outbound.status} {outbound.last_error}"
            return self.all_deferred(claimed, hop, reply, outbound.failures), None
        late = self._shaping.shapes and any(self._late(claimed, one) for one in claimed.recipients)
        if late and (why := self._held_back(claimed, outbound)):
            return self.all_deferred(claimed, hop, why, claimed.recipients[0].attempts), None
        most = outbound.places(asyncio.get_running_loop().time(), self._policy)
        search = Search(self._hosts, groups, outbound.on, most, self._hosts.servers)
        search.avoided = self._hosts.avoided(claimed.copy.id)
        search.only = _took(claimed)
        envelope = claimed.copy.envelope
        requires, search.waives = envelope.tls is TlsWish.REQUIRED, envelope.tls is TlsWish.WAIVED
        try:
            try:
                return await self._by_hosts(claimed, outbound, search, hop, heard, requires=requires)
            except Unfit as unfit:
                if not may_leave_without(claimed.copy):
                    log.info("no_host_is_fit", message=claimed.copy.id, reply=str(unfit))
                    return self._refused(claimed, hop, str(unfit)), None
            again = replace(search, tried=[], unfit=None)
            return await self._by_hosts(claimed, outbound, again, hop, heard, requires=False)
        except OutOfTime:
            return Sent((), hop), None  # the fork is still due, and will expire without a session
        except Overtaken as overtaken:
            log.info("delivery_overtaken", message=claimed.copy.id, next_hop=claimed.next_hop)
            return Sent((), hop), overtaken.session
        except DomainRefused as refused:
            log.info("domain_refused", next_hop=claimed.next_hop, reply=str(refused))
            return self._refused(claimed, hop, str(refused)), None
        except ContentDamaged as error:
            return Sent((), hop, damaged=str(error)), None
        except OSError as error:
            log.error("content_unreadable", message=claimed.copy.id, error=str(error))
            return self._unreadable(claimed, hop, str(error.strerror)), None

    async def _by_hosts(
        self,
        claimed: ActiveFork,
        outbound: Outbound,
        search: Search,
        hop: Hop,
        heard: Callable[[Sent], Awaitable[None]],
        *,
        requires: bool,
    ) -> tuple[Sent, DeliverySession | None]:
        """Try one host after the other, until one answers for the message. ``requires``: with REQUIRETLS
        alone.

        What a host says about the message is its answer. But a host that ends the session by 421, and takes
        nothing, leaves it to the next one; it does not rest, since the message may be the reason.

        Raises Unfit, if every host was asked, and none may have the message.
        """
        told: set[int] = set()
        answer: Sent | None = None
        loop = asyncio.get_running_loop()
        while (found := await search.next()) is not None:
            host, group = found
            lane = self._shaping.lane(claimed.next_hop, host.name) if self._shaping.shapes else None
            server = search.server(host)
            hop = Hop(server=str(host), inside=server.inside, mailbox=server.protocol == "lmtp")
            strict = requires and not server.is_final
            asked = server.requiring(found=not isinstance(group, HostGroup)) if strict else server
            if asked is None:
                search.unfit = search.unfit or NOT_VERIFIED
                continue

            async def tell(part: DeliveryResult, hop: Hop = hop) -> None:
                told.update(one.number for one in part.results)
                await heard(self._sent(claimed, hop, part, frozenset()))

            trying, began = self._hosts.begin(host), loop.time()
            outbound.on[host] += 1
            try:
                session, result = await self._attempt(
                    claimed, outbound, asked, group, lane, tell, requiretls=strict
                )
            except NoRoom:
                search.held_back = True
                continue
            except Unfit as unfit:
                search.unfit = unfit.reply
                continue
            except ConnectionFailed as failed:
                self._host_failed(lane, host, failed, search, stricter=asked is not server)
                continue
            finally:
                outbound.on[host] -= 1
                self._hosts.end(host, trying=trying)
            self._hosts.answered(host, began, loop.time())
            if lane is not None:
                self._shaped(lane, result)
            if outbound.failures:
                log.info("next_hop_restored", next_hop=claimed.next_hop, failures=outbound.failures)
            outbound.restored()
            outbound.known = search.found
            answer = self._sent(claimed, hop, result, told)
            if told or session.alive or not sent_away(result):
                return answer, session
            session.abort()
        knew, outbound.known = outbound.known, search.found
        return answer or self._none_left(claimed, outbound, hop, search, known=bool(knew)), None

    def _none_left(
        self, claimed: ActiveFork, outbound: Outbound, hop: Hop, search: Search, *, known: bool
    ) -> Sent:
        """No host has answered for the message. ``known``: its hosts were known before. Raises Unfit."""
        if search.held_back and search.unfit is None:
            # Its hosts were known, and it seemed that there was room.
            outbound.held_back_until = asyncio.get_running_loop().time() + HELD if known else 0.0
            return Sent((), hop)
        if search.unfit is not None:
            now = self._clock()
            resting = any(end > now for end in search.rests())
            if not (search.held_back or search.crowded or search.passed_by or search.last or resting):
                raise Unfit(search.unfit)
            status = search.unfit.enhanced.replace("5", "4", 1) if search.unfit.enhanced else ""
            reply = f"450 {status} {search.unfit.lines[0]}; other hosts cannot be asked now"
            return self.all_deferred(claimed, hop, reply, claimed.recipients[0].attempts + 1)
        if search.passed_by:  # other mail has a host: the next hop does not rest
            why = search.why()
            reply = f"451 {why.status} {why.step}: {why.error}"
            return self.all_deferred(claimed, hop, reply, claimed.recipients[0].attempts + 1)
        if search.crowded and outbound.workers > 1:
            outbound.turned_away(asyncio.get_running_loop().time(), self._policy)
            log.info("next_hop_wants_fewer_sessions", next_hop=claimed.next_hop, most=outbound.fewer)
            return Sent((), hop)
        return self._hop_failed(claimed, outbound, hop, search)

    def _host_failed(
        self,
        lane: Lane | None,
        host: Host,
        failed: ConnectionFailed,
        search: Search,
        *,
        stricter: bool,
    ) -> None:
        """The host rests, unless it only asked for less. ``stricter``: other mail need not verify it."""
        if stricter and failed.unverified:
            search.unfit = search.unfit or NOT_VERIFIED
        elif stricter and failed.step == "tls":  # this message waits: neither host nor next hop rests
            search.last = Standing(step="tls", error=failed.reply or failed.error, status="4.7.5")
            search.passed_by = True
        elif lane is not None and self._shaping.heard(lane, failed.reply):
            search.held_back = True
        elif failed.turned_away and self._hosts.turned_away(host):
            search.crowded = True
        else:
            search.last = self._hosts.failed(host, failed, several=search.several)

    def _shaped(self, lane: Lane, result: DeliveryResult) -> None:
        """What the answers of a host mean for what it gets next."""
        if any(one.ending in (Ending.ACCEPTED, Ending.DUPLICATE) for one in result.results):
            self._shaping.taken(lane)
        for one in result.results:
            if one.remote and one.ending is Ending.DEFERRED:
                self._shaping.heard(lane, one.reply)

    def _held_back(self, claimed: ActiveFork, outbound: Outbound) -> str:
        """Why nothing is sent to any host of the next hop now, as a reply; '' if it is."""
        room = room_of(claimed.next_hop, outbound, self._hosts, self._shaping)
        return f"451 4.7.1 Held back: {room.held_back}" if room and room.held_back else ""

    def _sent(self, claimed: ActiveFork, hop: Hop, result: DeliveryResult, but: Set[int]) -> Sent:
        """The result of the next hop's answers, without the recipients in ``but``."""
        tried = {recipient.number: recipient for recipient in claimed.recipients}
        results = []
        for one in result.results:
            if one.number in but:
                continue
            pause, late = timedelta(0), False
            if one.ending in _WAITS:
                pause = self._pause(claimed, tried[one.number], one, result)
                late = self._late(claimed, tried[one.number])
            results.append(
                AttemptResult(one.number, one.ending, one.reply, pause, remote=one.remote, late=late)
            )
        hop = replace(hop, tracks=result.tracks) if result.tracks else hop
        return Sent(tuple(results), hop, result.dsn_offered)

    def _pause(
        self, claimed: ActiveFork, tried: Recipient, one: RecipientResult, result: DeliveryResult
    ) -> timedelta:
        if one.number in result.overflow:
            return timedelta(0)
        if one.ending is not Ending.UNREADABLE:
            return retry.after(tried.attempts + 1, self._policy)
        tries = 1 + (tried.unread.tries if tried.unread else 0)
        pause = pause_after(tries, self._policy)
        log.warning(
            "answer_unreadable",
            message=claimed.copy.id,
            next_hop=claimed.next_hop,
            recipient=one.number,
            said=one.reply,
            tries=tries,
            retry_in="when an operator lets it go on" if pause is None else pause.total_seconds(),
        )
        return self._wait(claimed, tried) if pause is None else pause

    def _wait(self, claimed: ActiveFork, recipient: Recipient) -> timedelta:
        """How long to wait for an operator, until the recipient is looked at again."""
        now = self._clock()
        at = next_look(recipient, claimed.aging_since, now, self._policy)
        return max(at - now, self._policy.queue_glitch_retry_interval)

    def _all_wait(self, claimed: ActiveFork, hop: Hop) -> Sent:
        """Nothing is sent until an operator lets the message go on."""
        results = [
            AttemptResult(
                one.number,
                Ending.DEFERRED,
                one.last_reply,
                self._wait(claimed, one),
                remote=False,
                late=self._late(claimed, one),
            )
            for one in claimed.recipients
        ]
        return Sent(tuple(results), hop)

    async def _attempt(
        self,
        claimed: ActiveFork,
        outbound: Outbound,
        server: NextHopServer,
        group: Group,
        lane: Lane | None,
        heard: Callable[[DeliveryResult], Awaitable[None]],
        *,
        requiretls: bool,
    ) -> tuple[DeliverySession, DeliveryResult]:
        """Deliver in an idle session, or in a new one. An idle session that is dead is replaced at once.

        Raises ContentDamaged; then the end of the content was not sent. Raises NoRoom. Raises Unfit.
        """
        content, digests, envelope = claimed.content, claimed.copy.digests, claimed.copy.envelope
        if digests is None or digests.content is None:
            raise ContentDamaged("nobody can say what it has to be")
        digest = digests.content
        octets = source(content, digest)
        while True:
            session = outbound.idle_for(server) if outbound.idle else None
            connected = session is not None and session.alive
            if session is not None and not connected:
                session.abort()
            elif session is not None and lane is not None and session.lane != lane.key:
                self._close(session)  # from before these settings: it counts elsewhere, or nowhere
                connected = False
            if session is None or not connected:
                # What the sender asks for may be more than the domain's policy, or less.
                session = self._hosts.session(server, group, noted=envelope.tls is None)
            if lane is not None and not connected:
                await self._make_place(lane, outbound, session)
            counted = 0.0
            outbound.busy.add(session)
            try:
                if not connected:
                    await self._connect(session, claimed, outbound)
                counted = self._count(lane, outbound, session) if lane is not None else 0.0
                return session, await session.deliver(
                    envelope,
                    claimed.recipients,
                    octets,
                    message_id=claimed.copy.id,
                    wanted=partial(self._still_ours, claimed),
                    heard=heard,
                    afresh=lambda: source(content, digest),
                    requiretls=requiretls,
                )
            except Unfit:
                self._not_sent(lane, counted)
                self._close(session)
                raise
            except Withdrawn:
                session.abort()
                raise Overtaken(None) from None
            except (Overtaken, NoRoom):  # its session waits for other mail
                raise
            except ConnectionFailed as failed:
                self._not_sent(lane, counted)
                if not failed.reused:
                    self._close(session)
                    raise
                session.abort()  # the hop has ended it
                if lane is not None and self._shaping.heard(lane, failed.reply):
                    raise NoRoom from None
                octets = source(content, digest)
            except BaseException:  # the connection is gone, and has no place in its lane any more
                session.abort()
                raise
            finally:
                outbound.busy.discard(session)

    def _not_sent(self, lane: Lane | None, counted: float) -> None:
        if lane is not None and counted:
            self._shaping.unsent(lane, counted)

    async def _make_place(self, lane: Lane, outbound: Outbound, session: DeliverySession) -> None:
        """Count a new session. Raises NoRoom; then it does not count.

        A session of ours that is idle at another host makes room. Its place is free when it has ended; a hop
        that is slow to say goodbye is not waited for.
        """
        if self._shaping.held_back(lane):
            raise NoRoom
        while not self._shaping.connect(lane, session):
            if (spare := outbound.idle_in(lane.key)) is None:
                raise NoRoom
            closing = self._close(spare)
            if not (await asyncio.wait({closing}, timeout=HELD))[0]:
                raise NoRoom

    def _count(self, lane: Lane, outbound: Outbound, session: DeliverySession) -> float:
        """Count the message to be sent; returns until when it counts. Raises NoRoom: it has to wait."""
        if until := self._shaping.message(lane):
            return until
        outbound.idle.append((session, asyncio.get_running_loop().time()))
        raise NoRoom

    async def _connect(self, session: DeliverySession, claimed: ActiveFork, outbound: Outbound) -> None:
        """Connect, until the message expires at the latest: a silent next hop must not delay its DSN."""
        left = retry.expires_at(claimed.aging_since, self._policy) - self._ending()
        try:
            async with asyncio.timeout(left.total_seconds()):
                await session.connect()
        except TimeoutError:
            session.abort()
            raise OutOfTime from None
        outbound.let_in = True
        if not await self._still_ours(claimed):
            raise Overtaken(session)

    def _hop_failed(self, claimed: ActiveFork, outbound: Outbound, hop: Hop, search: Search) -> Sent:
        """No host is left: the next hop rests, with all its mail, until one of them may be tried again.

        A session that fails while the hop rests began before, and counts as no further failure.
        """
        now, why = self._clock(), search.why()
        if outbound.retry_at is None or outbound.retry_at <= now:
            outbound.failures += 1
            outbound.failing_since = outbound.failing_since or now
            pause = retry.after(outbound.failures, self._policy)
            outbound.retry_at = next_try(search.rests(), now, pause)
        outbound.last_error = f"{why.step}: {why.error}"
        log.warning(
            "next_hop_failed",
            next_hop=claimed.next_hop,
            server=hop.server,
            step=why.step,
            error=why.error,
            failures=outbound.failures,
            retry_in=(outbound.retry_at - now).total_seconds(),
        )
        outbound.status = why.status
        reply = f"451 {outbound.status} {outbound.last_error}"
        return self.all_deferred(claimed, hop, reply, outbound.failures)

    def _refused(self, claimed: ActiveFork, hop: Hop, reply: str) -> Sent:
        """Fail all recipients: the DNS says that nobody takes their mail."""
        return Sent(
            tuple(AttemptResult(r.number, Ending.REJECTED, reply, remote=False) for r in claimed.recipients),
            hop,
        )

    def _hop(self, groups: tuple[Group, ...]) -> Hop:
        """The next hop before a host is chosen: its only host, if there is but one."""
        hosts = [host for group in groups if isinstance(group, HostGroup) for host in group.hosts]
        server = self._hosts.servers[hosts[0].route] if hosts else None
        return Hop(
            server=str(hosts[0]) if len(hosts) == len(groups) == 1 else "",
            inside=bool(server and server.inside),
            mailbox=bool(server and server.protocol == "lmtp"),
        )

    def all_deferred(self, claimed: ActiveFork, hop: Hop, reply: str, failures: int) -> Sent:
        """Defer all recipients: none of them was tried to the end."""
        pause = retry.after(failures, self._policy)
        return Sent(
            tuple(
                AttemptResult(
                    r.number, Ending.DEFERRED, reply, pause, remote=False, late=self._late(claimed, r)
                )
                for r in claimed.recipients
            ),
            hop,
        )

    def _unreadable(self, claimed: ActiveFork, hop: Hop, why: str) -> Sent:
        """Defer all recipients, because the content cannot be read for now."""
        reply = f"451 4.3.0 Local error: {why}"
        return self.all_deferred(claimed, hop, reply, claimed.recipients[0].attempts + 1)

    def _late(self, claimed: ActiveFork, recipient: Recipient) -> bool:
        return retry.delay_notice_due(recipient, claimed.aging_since, self._ending(), self._policy)

    def _rerouted(self, claimed: ActiveFork) -> tuple[ActiveFork, tuple[Group, ...]]:
        """Route a fork by domain, if its next hop is not in the settings (another member named it, or the
        settings changed).

        Recipients with another next hop than the first one stay due, for another attempt.
        """
        hops = [next_hop_of(recipient.address, self._routes) for recipient in claimed.recipients]
        alike = [one for one, hop in zip(claimed.recipients, hops, strict=True) if hop == hops[0]]
        groups = self._hosts.ways(hops[0]) if hops[0] else ()
        return replace(claimed, recipients=tuple(alike)), groups


def may_leave_without(copy: Copy) -> bool:
    """May the message leave without REQUIRETLS if no host is fit? A report of ours may: it has no body, and
    lost it would tell nobody (RFC 8689 5). What is made of another message, such as a journal copy, has its
    content; and what else has the null sender may have anything in it.
    """
    return not copy.envelope.sender and is_derived(copy.id) and copy.content_of is None


def _took(claimed: ActiveFork) -> str:
    """The host that took the content, and whose answer could not be read; '' if there is none."""
    unread = claimed.recipients[0].unread
    return unread.host if unread else ""


def _of_one_host(claimed: ActiveFork) -> ActiveFork:
    """The fork with the recipients that stand as its first one does. The others stay due.

    So a host that may have the message for some of them gets it for these alone.
    """
    first = claimed.recipients[0].unread
    if len(claimed.recipients) == 1 or all(one.unread == first for one in claimed.recipients):
        return claimed
    return replace(claimed, recipients=tuple(one for one in claimed.recipients if one.unread == first))


_CODES = re.compile(r"[45]\d\d(?: [45]\.\d{1,3}\.\d{1,3})?(?= |$)", re.ASCII)


def expired_reply(recipient: Recipient, why: str) -> str:
    """The reply of an expired recipient: its last one, or else ``why`` its mail waits, with the codes of the
    actual problem if that is known.

    RFC 3463 3.5 wants *delivery time expired* only if nothing else is known.
    """
    last = recipient.last_reply or why
    told = "Message expired in the queue"
    if recipient.unread is not None:
        told += ", and may have been delivered"
    codes = _CODES.match(last)
    return f"{codes[0]} {told}; last error: {last}" if codes else f"451 4.4.7 {told}"


def sent_away(result: DeliveryResult) -> bool:
    """Did the host end the session by 421, and take nothing?"""
    return all(
        one.ending is Ending.DEFERRED and one.remote and one.reply.startswith("421") for one in result.results
    )
