"""One attempt at a next hop: which session, which server, and what its answer means for each recipient."""

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
from shadowrelay.wire.report_fields import status

log = structlog.get_logger(__name__)

_CODES = re.compile(r"[45]\d\d(?: [45]\.\d{1,3}\.\d{1,3})?(?= |$)", re.ASCII)


@dataclass(slots=True)
class Outbound:
    """A next hop as this process knows it: its sessions, and how it has failed.

    ``probes``: workers that were begun since it failed. Those of before may wait for a reply for minutes, and
    are no reason to keep the mail of a hop that is back. ``let_in``: a session was opened since there was
    none. Before that, a wrong password would be refused in as many sessions as there is mail for.
    """

    server: NextHopServer | None
    workers: int = 0
    probes: set[asyncio.Task[None]] = field(default_factory=set)
    failures: int = 0
    retry_at: datetime | None = None
    last_error: str = ""
    let_in: bool = False
    status: str = ""  # of that error, as RFC 3463 has it
    busy: set[DeliverySession] = field(default_factory=set)  # those that send, or are about to
    idle: list[tuple[DeliverySession, float]] = field(default_factory=list)
    fewer: int = 0
    fewer_until: float = 0.0  # of the loop's time
    late_from: QueuePlace = FRONT  # where the next look for mail that is late goes on
    late_at: float = 0.0  # when it is due, of the loop's time

    def places(self, now: float, policy: Policy) -> int:
        """How many workers it may have: fewer for a while after it turned one of several away."""
        return self.fewer if now < self.fewer_until else policy.max_per_domain_outbound_connections

    def turned_away(self, now: float, policy: Policy) -> None:
        """It took no session of one of several workers."""
        self.fewer = max(1, min(self.places(now, policy), self.workers) - 1)
        self.fewer_until = now + policy.queue_glitch_retry_interval.total_seconds()

    @property
    def probed(self) -> bool:
        """One session goes first: the next hop failed, or wants a login and nobody is logged in."""
        logged_in = self.let_in and (self.workers or self.idle)
        return bool(self.failures or (self.server and self.server.login and not logged_in))

    def resting(self, now: datetime) -> bool:
        """It failed, and is not to be tried yet."""
        return self.retry_at is not None and now < self.retry_at

    def restored(self) -> None:
        """It took mail."""
        self.failures, self.retry_at, self.last_error = 0, None, ""
        self.probes.clear()


def _status(failed: ConnectionFailed) -> str:
    """The status of a failure that defers all mail of a next hop: what its own reply says, else what went
    wrong with the connection (RFC 3463 3.5, 3.8).
    """
    if failed.reply:
        return "4" + status(ReportKind.FAILED, failed.reply)[1:]
    if failed.step in {"tls", "auth"}:
        return "4.7.0"
    return "4.4.1" if failed.step == "connect" else "4.4.2"


def _expired(last: str) -> str:
    """What a recipient is told at the end, with the codes of the actual problem, if any is known: that the
    time is over is what RFC 3463 3.5 wants to hear only if there is nothing else to say.
    """
    codes = _CODES.match(last)
    if codes is None:
        return "451 4.4.7 Message expired in the queue"
    return f"{codes[0]} Message expired in the queue; last error: {last}"


class OutOfTime(Exception):
    """While the next hop was being reached, the message expired."""


class Overtaken(Exception):
    """While the next hop was being reached, the fork ceased to be this node's to send."""

    def __init__(self, session: DeliverySession | None) -> None:
        super().__init__("somebody else may own the message by now")
        self.session = session  # to go on with


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends forks. ``hops`` are the queue's own, by name.

    ``still_ours`` is asked after a connection was made, and before the content leaves: either can have taken
    minutes, and others may own the message by then.
    """

    _still_ours: Callable[[ActiveFork], Awaitable[bool]]
    _examiner: Examiner
    _hops: Mapping[NextHop, Outbound]
    _routes: tuple[Route, ...]
    _policy: Policy
    _clock: Callable[[], datetime]

    async def send(
        self, claimed: ActiveFork, outbound: Outbound, heard: Callable[[Sent], Awaitable[None]]
    ) -> tuple[Sent, DeliverySession | None]:
        """One attempt, and the session that is left of it. What goes wrong is a result, not an exception.
        ``heard`` is told of recipients that are answered for while others wait; the result lacks them.

        Neither session nor result: there is none for this worker, and the fork stays due for the others.
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
                    return Sent((), hop), None  # it waits for a good copy, whatever its age
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
            return Sent((), hop), None  # it is still due, and will be given up without a session
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
        """What the answers of a next hop come to."""
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
        return Sent(results, hop, result.dsn_offered)

    async def _attempt(
        self,
        claimed: ActiveFork,
        outbound: Outbound,
        server: NextHopServer,
        heard: Callable[[DeliveryResult], Awaitable[None]],
    ) -> tuple[DeliverySession, DeliveryResult]:
        """Deliver in an idle session, or in a new one; a dead idle one is replaced at once.

        Raises ContentDamaged: then the end of the content did not leave.
        """
        content, digests = claimed.content, claimed.copy.digests
        if digests is None or digests.content is None:
            raise ContentDamaged("nobody can say what it has to be")
        octets = source(content, digests.content)
        while True:
            session = outbound.idle.pop()[0] if outbound.idle and server is outbound.server else None
            connected = session is not None and session.alive
            session = session if session is not None and connected else DeliverySession(server)
            outbound.busy.add(session)
            try:
                if not connected:
                    await self._connect(session, claimed, outbound)
                envelope = claimed.copy.envelope
                wanted = partial(self._still_ours, claimed)
                return session, await session.deliver(
                    envelope, claimed.recipients, octets, wanted=wanted, heard=heard
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
        """Until the message expires at most: its sender does not wait for a next hop that says nothing."""
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
        """The hop cannot be reached: it rests, in the documented retry order, and with it all its mail.

        Sessions that fail while it rests already began before, and are no further failure.
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
        """No recipient was tried to the end: all of them later."""
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
        """For now: it may be readable when it is tried again."""
        reply = f"451 4.3.0 Local error: {why}"
        return self.all_deferred(claimed, hop, reply, claimed.recipients[0].attempts + 1)

    def _late(self, claimed: ActiveFork, recipient: Recipient) -> bool:
        return retry.delay_notice_due(recipient, claimed.copy.received_at, self._clock(), self._policy)

    def _rerouted(self, claimed: ActiveFork) -> tuple[ActiveFork, NextHopServer | None]:
        """A next hop that another member named, or that the settings no longer have: by domain.

        Recipients of another route than the first one's stay due, for another attempt.
        """
        routes = [route_for(recipient.address, self._routes) for recipient in claimed.recipients]
        alike = [one for one, route in zip(claimed.recipients, routes, strict=True) if route == routes[0]]
        outbound = self._hops.get(routes[0].name) if routes[0] else None
        return replace(claimed, recipients=tuple(alike)), outbound.server if outbound else None
