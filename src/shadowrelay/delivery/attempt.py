"""One delivery attempt at a next hop: the session, the server, and the result for each recipient."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import field
from datetime import datetime, timedelta
from functools import partial

import structlog

from shadowrelay.core.delivery import retry
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Hop
from shadowrelay.core.events.reports import ReportKind
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Recipient
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.routing import Route, route_for
from shadowrelay.core.steps import Sent
from shadowrelay.core.values import dataclass, replace
from shadowrelay.database.content import ContentDamaged, source
from shadowrelay.database.examining import Examiner, Finding
from shadowrelay.database.queue import FRONT, ActiveFork, QueuePlace
from shadowrelay.smtp.sending.session import (
    ConnectionFailed,
    DeliveryResult,
    DeliverySession,
    NextHopServer,
    Withdrawn,
)
from shadowrelay.smtp.sending.tracked import HopTalk
from shadowrelay.wire.report_fields import status

log = structlog.get_logger(__name__)

_CODES = re.compile(r"[45]\d\d(?: [45]\.\d{1,3}\.\d{1,3})?(?= |$)", re.ASCII)


@dataclass(slots=True)
class Outbound:
    """A next hop as this process knows it: its sessions and its failures.

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
    let_in: bool = False
    status: str = ""  # of ``last_error`` (RFC 3463)
    busy: set[DeliverySession] = field(default_factory=set)  # sessions that send, or are about to
    idle: list[tuple[DeliverySession, float]] = field(default_factory=list)
    fewer: int = 0
    fewer_until: float = 0.0  # on the loop's clock
    late_from: QueuePlace = FRONT  # where the next look for late mail goes on
    late_at: float = 0.0  # when that look is due, on the loop's clock

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

    def restored(self) -> None:
        """The hop took mail again: forget its failures."""
        self.failures, self.retry_at, self.last_error = 0, None, ""
        self.probes.clear()


def _status(failed: ConnectionFailed) -> str:
    """The status of a failure that defers all mail of a next hop: from its reply, or else from the step that
    failed (RFC 3463 3.5, 3.8).
    """
    if failed.reply:
        return "4" + status(ReportKind.FAILED, failed.reply)[1:]
    if failed.step in {"tls", "auth"}:
        return "4.7.0"
    return "4.4.1" if failed.step == "connect" else "4.4.2"


def _expired(last: str) -> str:
    """The last reply of an expired recipient, with the codes of the actual problem if it is known.

    RFC 3463 3.5 wants *delivery time expired* only if nothing else is known.
    """
    codes = _CODES.match(last)
    if codes is None:
        return "451 4.4.7 Message expired in the queue"
    return f"{codes[0]} Message expired in the queue; last error: {last}"


class OutOfTime(Exception):
    """The message expired while the next hop was being reached."""


class Overtaken(Exception):
    """While the next hop was being reached, this node lost the right to send the fork."""

    def __init__(self, session: DeliverySession | None) -> None:
        super().__init__("somebody else may own the message by now")
        self.session = session  # left open for the next message


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends forks. ``hops``: the queue's next hops, by name.

    ``still_ours`` is called after connecting, and again before the content is sent: either step can take
    minutes, and another member may own the message by then.
    """

    _still_ours: Callable[[ActiveFork], Awaitable[bool]]
    _examiner: Examiner
    _hops: Mapping[NextHop, Outbound]
    _routes: tuple[Route, ...]
    _policy: Policy
    _clock: Callable[[], datetime]
    _talk: HopTalk | None = None  # with hops that track our messages

    async def send(
        self, claimed: ActiveFork, outbound: Outbound, heard: Callable[[Sent], Awaitable[None]]
    ) -> tuple[Sent, DeliverySession | None]:
        """Make one attempt. Returns its result and the session that is left. Failures raise no exception.

        ``heard`` gets results of recipients that are answered while others still wait; the returned result
        lacks them. Neither session nor result: this worker gets no session, and the fork stays due.
        """
        server = outbound.server
        if server is None:
            claimed, server = self._rerouted(claimed)
        hop = Hop(
            server=f"{server.host}:{server.port}" if server else "",
            inside=bool(server and server.inside),
            mailbox=bool(server and server.protocol == "lmtp"),
        )
        if retry.expired(claimed.copy.received_at, self._clock(), self._policy):
            match await self._examiner.compare(claimed.copy, claimed.content):
                case Finding.DAMAGED:
                    return Sent((), hop), None  # a damaged message waits for a good copy, whatever its age
                case Finding.UNREADABLE:
                    return self._unreadable(claimed, hop, "its content cannot be read"), None
            hops = f"451 {outbound.status} {outbound.last_error}" if outbound.last_error else ""
            return Sent(
                tuple(
                    AttemptResult(r.number, Ending.EXPIRED, _expired(r.last_reply or hops), remote=False)
                    for r in claimed.recipients
                ),
                hop,
            ), None
        if server is None:
            return self.all_deferred(claimed, hop, "451 4.4.4 No route to that domain", 1), None
        if outbound.resting(self._clock()):
            reply = f"451 {outbound.status} {outbound.last_error}"
            return self.all_deferred(claimed, hop, reply, outbound.failures), None
        told: set[int] = set()

        async def tell(answer: DeliveryResult) -> None:
            told.update(one.number for one in answer.results)
            await heard(self._sent(claimed, hop, answer, frozenset()))

        try:
            session, result = await self._attempt(claimed, outbound, server, tell)
        except OutOfTime:
            return Sent((), hop), None  # the fork is still due, and will expire without a session
        except Overtaken as overtaken:
            log.info("delivery_overtaken", message=claimed.copy.id, next_hop=claimed.next_hop)
            return Sent((), hop), overtaken.session
        except ConnectionFailed as failed:
            if failed.turned_away and outbound.workers > 1:
                outbound.turned_away(asyncio.get_running_loop().time(), self._policy)
                log.info("next_hop_wants_fewer_sessions", next_hop=claimed.next_hop, most=outbound.fewer)
                return Sent((), hop), None
            return self._hop_failed(claimed, outbound, hop, failed), None
        except ContentDamaged as error:
            return Sent((), hop, damaged=str(error)), None
        except OSError as error:
            log.error("content_unreadable", message=claimed.copy.id, error=str(error))
            return self._unreadable(claimed, hop, str(error.strerror)), None
        if outbound.failures:
            log.info("next_hop_restored", next_hop=claimed.next_hop, failures=outbound.failures)
        outbound.restored()
        return self._sent(claimed, hop, result, told), session

    def _sent(self, claimed: ActiveFork, hop: Hop, result: DeliveryResult, but: Set[int]) -> Sent:
        """The result of the next hop's answers, without the recipients in ``but``."""
        tried = {recipient.number: recipient for recipient in claimed.recipients}
        results = tuple(
            AttemptResult(
                one.number,
                one.ending,
                one.reply,
                timedelta(0)
                if one.number in result.overflow
                else retry.after(tried[one.number].attempts + 1, self._policy),
                remote=one.remote,
                late=self._late(claimed, tried[one.number]),
            )
            for one in result.results
            if one.number not in but
        )
        return Sent(results, replace(hop, tracks=result.tracks), result.dsn_offered)

    async def _attempt(
        self,
        claimed: ActiveFork,
        outbound: Outbound,
        server: NextHopServer,
        heard: Callable[[DeliveryResult], Awaitable[None]],
    ) -> tuple[DeliverySession, DeliveryResult]:
        """Deliver in an idle session, or in a new one. An idle session that is dead is replaced at once.

        Raises ContentDamaged; then the end of the content was not sent.
        """
        content, digests = claimed.content, claimed.copy.digests
        if digests is None or digests.content is None:
            raise ContentDamaged("nobody can say what it has to be")
        octets = source(content, digests.content)
        while True:
            session = outbound.idle.pop()[0] if outbound.idle and server is outbound.server else None
            connected = session is not None and session.alive
            session = session if session is not None and connected else DeliverySession(server, self._talk)
            outbound.busy.add(session)
            try:
                if not connected:
                    await self._connect(session, claimed, outbound)
                envelope = claimed.copy.envelope
                wanted = partial(self._still_ours, claimed)
                return session, await session.deliver(
                    envelope,
                    claimed.recipients,
                    octets,
                    message_id=claimed.copy.id,
                    wanted=wanted,
                    heard=heard,
                )
            except Withdrawn:
                raise Overtaken(None) from None
            except ConnectionFailed as failed:
                await session.close()
                if not failed.reused:
                    raise
                octets = source(content, digests.content)
            finally:
                outbound.busy.discard(session)

    async def _connect(self, session: DeliverySession, claimed: ActiveFork, outbound: Outbound) -> None:
        """Connect, until the message expires at the latest: a silent next hop must not delay its DSN."""
        left = retry.expires_at(claimed.copy.received_at, self._policy) - self._clock()
        try:
            async with asyncio.timeout(left.total_seconds()):
                await session.connect()
        except TimeoutError:
            session.abort()
            raise OutOfTime from None
        outbound.let_in = True
        if not await self._still_ours(claimed):
            raise Overtaken(session)

    def _hop_failed(
        self, claimed: ActiveFork, outbound: Outbound, hop: Hop, failed: ConnectionFailed
    ) -> Sent:
        """The hop cannot be reached: it rests, with all its mail, in the documented retry order.

        A session that fails while the hop rests began before, and counts as no further failure.
        """
        now = self._clock()
        if outbound.retry_at is None or outbound.retry_at <= now:
            outbound.failures += 1
            outbound.retry_at = now + retry.after(outbound.failures, self._policy)
        pause = outbound.retry_at - now
        outbound.last_error = f"{failed.step}: {failed.reply or failed.error}"
        log.warning(
            "next_hop_failed",
            next_hop=claimed.next_hop,
            server=hop.server,
            step=failed.step,
            error=failed.reply or failed.error,
            failures=outbound.failures,
            retry_in=pause.total_seconds(),
        )
        outbound.status = _status(failed)
        reply = f"451 {outbound.status} {outbound.last_error}"
        return self.all_deferred(claimed, hop, reply, outbound.failures)

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
        return retry.delay_notice_due(recipient, claimed.copy.received_at, self._clock(), self._policy)

    def _rerouted(self, claimed: ActiveFork) -> tuple[ActiveFork, NextHopServer | None]:
        """Route a fork by domain, if its next hop is not in the settings (another member named it, or the
        settings changed).

        Recipients with another route than the first one stay due, for another attempt.
        """
        routes = [route_for(recipient.address, self._routes) for recipient in claimed.recipients]
        alike = [one for one, route in zip(claimed.recipients, routes, strict=True) if route == routes[0]]
        outbound = self._hops.get(routes[0].name) if routes[0] else None
        return replace(claimed, recipients=tuple(alike)), outbound.server if outbound else None
