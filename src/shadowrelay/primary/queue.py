"""The delivery queue: takes what is due out of the database, one worker per session with a next hop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import structlog

from shadowrelay.core import heartbeat, retry
from shadowrelay.core.delivery import Ending, Hop, Result, settle
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.policy import Policy
from shadowrelay.core.routing import Route, route_for
from shadowrelay.core.steps import SendOn, Sent, Step, Transact, WriteReports
from shadowrelay.database.content import blocks
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue import Claim, claim, due_hops, unclaim
from shadowrelay.database.transport import DatabaseFailed
from shadowrelay.members import Members, seconds
from shadowrelay.primary.delivering import deliver
from shadowrelay.primary.reporting import Reporter
from shadowrelay.running import run
from shadowrelay.smtp.send import ConnectionFailed, DeliveryResult, DeliverySession, NextHopServer

log = structlog.get_logger(__name__)

T = TypeVar("T")

IDLE = 1.0  # seconds between looks at the queue when nothing wakes us


@dataclass(slots=True)
class Outbound:
    """A next hop as this process knows it: its sessions, and how it has failed."""

    server: NextHopServer | None
    workers: int = 0
    failures: int = 0
    retry_at: datetime | None = None
    last_error: str = ""
    idle: list[tuple[DeliverySession, float]] = field(default_factory=list)


def _settled(claimed: Claim, work: Callable[[SqlLedger], T], ledger: SqlLedger) -> T:
    """The outcome and the end of the claim, in one transaction."""
    unclaim(ledger, claimed.copy.id, claimed.next_hop)
    return work(ledger)


class Queue:
    """The stage. ``wake`` says that there may be something to send."""

    def __init__(
        self,
        members: Members,
        servers: Mapping[NextHop, NextHopServer],
        routes: tuple[Route, ...],
        reporter: Reporter,
        policy: Policy,
        clock: Callable[[], datetime],
    ) -> None:
        self.wake = asyncio.Event()
        self.hops = {name: Outbound(server) for name, server in servers.items()}
        self._members = members
        self._database = members.database
        self._routes = routes
        self._reporter = reporter
        self._policy = policy
        self._clock = clock
        self._workers: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def run(self) -> None:
        """Send until ``stop``."""
        while not self._stopping:
            self.wake.clear()
            pause = await self._dispatch()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self.wake.wait()

    async def stop(self) -> None:
        """Begin nothing new; what is under way may finish."""
        self._stopping = True
        self.wake.set()
        if self._workers:
            await asyncio.gather(*self._workers, return_exceptions=True)
        for outbound in self.hops.values():
            while outbound.idle:
                await outbound.idle.pop()[0].close()

    async def _dispatch(self) -> float:
        """Start workers where mail is due. Returns seconds until there may be more to do."""
        now = self._clock()
        pause = IDLE
        for name, due in await self._database.transact(due_hops):
            outbound = self.hops.setdefault(name, Outbound(None))
            at = max(due, outbound.retry_at or due)
            if at > now:
                pause = min(pause, (at - now).total_seconds())
                continue
            free = self._policy.max_per_domain_outbound_connections - outbound.workers
            free = min(free, self._policy.max_outbound_connections - len(self._workers))
            if outbound.failures:
                free = min(free, 1 - outbound.workers)  # one session probes a hop that failed
            for _ in range(max(0, free)):
                if not await self._start(name, outbound):
                    break
        await self._close_idle()
        return max(pause, 0.01)

    async def _next(self, name: NextHop) -> Claim | None:
        now, cut_off = self._clock(), self._members.boundary.cut_off(seconds())

        def work(ledger: SqlLedger) -> list[Claim]:
            for member in cut_off:  # frozen, or alone for long: others may own by now what we think is ours
                heartbeat.cut_off(ledger, member, now)
            return claim(ledger, name, now, 1)

        claims = await self._database.transact(work)
        return claims[0] if claims else None

    async def _start(self, name: NextHop, outbound: Outbound) -> bool:
        claimed = await self._next(name)
        if claimed is None:
            return False
        worker = asyncio.create_task(self._work(name, outbound, claimed))
        outbound.workers += 1
        self._workers.add(worker)
        worker.add_done_callback(lambda task: self._ended(task, outbound))
        return True

    def _ended(self, worker: asyncio.Task[None], outbound: Outbound) -> None:
        outbound.workers -= 1
        self._workers.discard(worker)
        self.wake.set()
        if not worker.cancelled() and (error := worker.exception()) is not None:
            log.error("delivery_failed", exc_info=error)

    async def _work(self, name: NextHop, outbound: Outbound, claimed: Claim | None) -> None:
        """Send one fork after the other while there are any that are due."""
        session: DeliverySession | None = None
        try:
            while claimed is not None:
                session = await self._deliver(claimed, outbound, session)
                claimed = None
                if not self._stopping and not outbound.failures:
                    claimed = await self._next(name)
        finally:
            if session is not None:
                if session.alive and session.server is outbound.server and not self._stopping:
                    outbound.idle.append((session, asyncio.get_running_loop().time()))
                else:
                    await session.close()

    async def _deliver(
        self, claimed: Claim, outbound: Outbound, session: DeliverySession | None
    ) -> DeliverySession | None:
        held = [session]

        async def perform(step: Step) -> object:
            match step:
                case SendOn():
                    sent, held[0] = await self._send(claimed, outbound, held[0])
                    return sent
                case WriteReports():
                    return await self._reporter.write(step, claimed.content)
                case Transact(work):
                    return await self._database.transact(partial(_settled, claimed, work))
                case _:
                    raise TypeError(f"{type(step).__name__} is no step of a delivery")

        try:
            await run(deliver(claimed.copy, claimed.next_hop, claimed.recipients, self._clock), perform)
        except DatabaseFailed:
            raise
        except Exception:
            log.exception("delivery_failed", message=claimed.copy.id)
            await self._put_off(claimed)
        return held[0]

    async def _put_off(self, claimed: Claim) -> None:
        """After a mistake of our own: the fork is given back, and tried again like any that failed."""
        failures = 1 + max(recipient.attempts for recipient in claimed.recipients)
        hop = Hop(server="", inside=False, mailbox=False)
        sent = self._all_deferred(claimed, hop, "451 4.3.0 Local error in processing", failures)
        await self._database.transact(
            partial(
                _settled,
                claimed,
                lambda ledger: ledger.apply(
                    settle(ledger, claimed.copy.id, sent.results, (), hop, self._clock())
                ),
            )
        )

    async def _send(
        self, claimed: Claim, outbound: Outbound, session: DeliverySession | None
    ) -> tuple[Sent, DeliverySession | None]:
        server = outbound.server
        if server is None:
            claimed, server = self._rerouted(claimed)
        hop = Hop(
            server=f"{server.host}:{server.port}" if server else "",
            inside=bool(server and server.inside),
            mailbox=bool(server and server.protocol == "lmtp"),
        )
        if retry.expired(claimed.copy.received_at, self._clock(), self._policy):
            last = claimed.recipients[0].last_reply or outbound.last_error
            reply = f"554 5.4.7 Message expired in the queue; last error: {last}"
            return Sent(
                tuple(Result(r.number, Ending.EXPIRED, reply, remote=False) for r in claimed.recipients), hop
            ), session
        if server is None:
            return self._all_deferred(claimed, hop, "451 4.4.4 No route to that domain", 1), session
        try:
            session, result = await self._attempt(claimed, outbound, server, session)
        except ConnectionFailed as failed:
            return self._hop_failed(claimed, outbound, hop, failed), None
        except OSError as error:
            log.exception("content_unreadable", message=claimed.copy.id)
            reply = f"451 4.3.0 Local error: {error.strerror}"
            return self._all_deferred(claimed, hop, reply, claimed.recipients[0].attempts + 1), None
        if outbound.failures:
            log.info("next_hop_restored", next_hop=claimed.next_hop, failures=outbound.failures)
        outbound.failures, outbound.retry_at, outbound.last_error = 0, None, ""
        attempts = {recipient.number: recipient.attempts for recipient in claimed.recipients}
        results = tuple(
            Result(
                one.number,
                Ending[one.outcome.name],
                one.reply,
                timedelta(0)
                if one.number in result.overflow
                else retry.after(attempts[one.number] + 1, self._policy),
                remote=one.remote,
            )
            for one in result.results
        )
        return Sent(results, hop, result.dsn_offered), session

    async def _attempt(
        self,
        claimed: Claim,
        outbound: Outbound,
        server: NextHopServer,
        session: DeliverySession | None,
    ) -> tuple[DeliverySession, DeliveryResult]:
        """Deliver in the session at hand, an idle one, or a new one; a dead idle one is replaced at once."""
        content = claimed.content
        while True:
            if session is None and outbound.idle and server is outbound.server:
                session = outbound.idle.pop()[0]
            if session is not None and session.server is not server:
                await session.close()
            if session is None or not session.alive:
                session = DeliverySession(server)
                await session.connect()
            source = content.data if content.data is not None else blocks(content)
            try:
                envelope = claimed.copy.envelope
                return session, await session.deliver(envelope, claimed.recipients, source)
            except ConnectionFailed as failed:
                await session.close()
                if not failed.reused:
                    raise
                session = None

    def _hop_failed(self, claimed: Claim, outbound: Outbound, hop: Hop, failed: ConnectionFailed) -> Sent:
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
        reply = f"451 4.4.1 {outbound.last_error}"
        return self._all_deferred(claimed, hop, reply, outbound.failures)

    def _all_deferred(self, claimed: Claim, hop: Hop, reply: str, failures: int) -> Sent:
        pause = retry.after(failures, self._policy)
        return Sent(
            tuple(Result(r.number, Ending.DEFERRED, reply, pause, remote=False) for r in claimed.recipients),
            hop,
        )

    def _rerouted(self, claimed: Claim) -> tuple[Claim, NextHopServer | None]:
        """A next hop that another member named, or that the settings no longer have: by domain.

        Recipients of another route than the first one's stay due, for another attempt.
        """
        routes = [route_for(recipient.address, self._routes) for recipient in claimed.recipients]
        alike = [one for one, route in zip(claimed.recipients, routes, strict=True) if route == routes[0]]
        outbound = self.hops.get(routes[0].name) if routes[0] else None
        return replace(claimed, recipients=tuple(alike)), outbound.server if outbound else None

    async def _close_idle(self) -> None:
        limit = asyncio.get_running_loop().time() - self._policy.queue_max_idle_time.total_seconds()
        for outbound in self.hops.values():
            old = [session for session, since in outbound.idle if since < limit or not session.alive]
            outbound.idle = [item for item in outbound.idle if item[0] not in old]
            for session in old:
                await session.close()
