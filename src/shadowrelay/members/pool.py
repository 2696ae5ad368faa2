"""Pools of greeted sessions with the other members, and the steps performed in them.

The steps of scripts performed here are offers of copies, greetings and questions.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TypeVar

import structlog

from shadowrelay import measures
from shadowrelay.core.greeting import greet
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.members.conversation import Answered, Greeting, met
from shadowrelay.core.operating import ActAnswer
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.redundancy import Concern, Leg, OfferAttempt
from shadowrelay.core.spans import within
from shadowrelay.core.steps import Ask, Greet, OfferCopy, Operate, Unanswered
from shadowrelay.core.values import dataclass, replace
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.members.boundary import A_MOMENT, Boundary
from shadowrelay.node_clock import NodeClock
from shadowrelay.running import Performer
from shadowrelay.smtp.members.client import (
    NO_ANSWER,
    MemberAddress,
    MemberConnection,
    MemberFailed,
    MemberGone,
)
from shadowrelay.smtp.members.offer import OutgoingOffer, may_refer

log = structlog.get_logger(__name__)

T = TypeVar("T")

IDLE_SESSIONS = 128  # kept per member; more are opened when needed, and closed afterwards
GOODBYE = 1.0  # seconds for the replies to QUIT when the node stops
EARLY_SESSIONS = 128  # per member, for messages without content yet: any client can begin one and then wait


def seconds() -> float:
    """The seconds of a clock that counts suspension."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class _Try:
    """A try to reach a spent member. ``reaching``: its result is how it failed."""

    began: float
    reaching: asyncio.Task[MemberFailed | None]


class Members:
    """Every other member of the boundary, as this node reaches them."""

    def __init__(
        self,
        database: TransportDatabase,
        boundary: Boundary,
        addresses: Mapping[ServerName, MemberAddress],
        policy: Policy,
        clock: NodeClock,
    ) -> None:
        self._database = database
        self._boundary = boundary
        self._clock = clock
        self.addresses = addresses
        self.early: Counter[ServerName] = Counter()  # sessions for messages without content yet
        self.copied = measures.Histogram()  # offers of copies of new mail, until the member's acknowledgement
        self._idle: dict[ServerName, list[MemberConnection]] = {name: [] for name in addresses}
        self._tries: dict[ServerName, _Try] = {}  # the last one for each spent member
        self._policy = policy

    @property
    def _timeout(self) -> float:
        return self._policy.shadow_attempt_timeout.total_seconds()

    def take(self, addresses: Mapping[ServerName, MemberAddress]) -> None:
        """The members are reached there from now on. Sessions under way go on, and then end."""
        moved = [name for name in self._idle if not self._leads_there(name, addresses.get(name))]
        self.addresses = addresses
        for name in addresses:
            self._idle.setdefault(name, [])
        for name in moved:
            self._distrust(name)

    async def dial(self, name: ServerName, timeout: float) -> MemberConnection:
        """Connect to a member. Raises MemberFailed."""
        address = self.addresses.get(name)
        if address is None:
            raise MemberFailed("connect", "it is no member any more")
        return await MemberConnection.dial(address, self._boundary.own.name, timeout)

    def _leads_there(self, name: ServerName, address: MemberAddress | None) -> bool:
        """Is the member reached at that address? A session outlives the certificates with which it began."""
        now = self.addresses.get(name)
        return now is not None and (now is address or (address is not None and now.at == address.at))

    def pooled(self, name: ServerName) -> MemberConnection | None:
        """An idle greeted session from the pool; None if there is none."""
        idle = self._idle.get(name, [])
        while idle:
            session = idle.pop()
            if session.usable:
                return session
            session.abort()
        return None

    async def acquire(self, name: ServerName) -> MemberConnection:
        """A greeted session, from the pool or newly opened. Raises MemberFailed."""
        if session := self.pooled(name):
            return session
        session = await self.dial(name, self._timeout)
        try:
            await self.greet(session, name)
        except BaseException:
            session.abort()
            raise
        return session

    async def greet(self, session: MemberConnection, name: ServerName) -> Greeting:
        """Send XSHADOW, and store the member's greeting before anything else is said. Raises MemberFailed."""
        asked_at = seconds()

        async def introduced(step: Greet) -> Greeting:
            return await self.introduced(session, step)

        performer = Performer(transact=self._database.transact, greet=introduced)
        theirs = await performer.run(greet(name, self._clock, lambda: self._boundary.silent(name)))
        if isinstance(theirs, Unanswered):
            raise MemberFailed(theirs.step, theirs.error)
        self._boundary.answered(name, asked_at)
        return theirs

    async def introduced(self, session: MemberConnection, step: Greet) -> Greeting:
        """Greet in a session. What the member's wall clock says is noted. Raises MemberFailed."""
        ours = self._clock.read()
        theirs = await session.greet(replace(step.greeting, time=ours.wall))
        self._boundary.greeted(theirs.name)
        if theirs.time is not None and (voice := self._boundary.voice_of(theirs.name)):
            self._clock.heard(voice, theirs.time, ours.boot)
        return theirs

    def time_is_old(self, name: ServerName) -> bool:
        """Is it long ago that the member told what its wall clock says?"""
        voice = self._boundary.voice_of(name)
        return voice is not None and self._clock.told_before(voice, self._policy.shadow_heartbeat_frequency)

    async def meet(self, theirs: Greeting) -> None:
        """Store the greeting of a member that called; its lineage may be broken."""
        silent = self._boundary.silent(theirs.name)
        self._boundary.greeted(theirs.name)
        now = self._clock()
        await self._database.transact(lambda ledger: met(ledger, theirs, now, after_silence=silent))

    def release(self, name: ServerName, session: MemberConnection) -> None:
        """Give a session back after a complete exchange."""
        idle = self._idle.get(name, [])
        if session.usable and self._leads_there(name, session.address) and len(idle) < IDLE_SESSIONS:
            idle.append(session)
        else:
            session.abort()

    async def acquire_for_copy(self, name: ServerName, *, needed: bool = True) -> MemberConnection:
        """As ``acquire``, for an offer: a member that failed lately gets little time. Raises MemberFailed.

        ``needed``: False for a message that may do without the copy. While the member is unheard of, such
        messages share one try to reach it, which goes on beside them.
        """
        at = seconds()
        if not needed and self._boundary.unheard_of(name, at):
            await self._tried(name, at)
        try:
            async with asyncio.timeout(self._boundary.patience(name, at)):
                return await self.acquire(name)
        except TimeoutError:
            raise MemberFailed("connect", NO_ANSWER) from None

    async def _tried(self, name: ServerName, at: float) -> None:
        """Wait until the member is reached, by a try that is under way or that begins here; no longer than
        the first moment of the try. Raises MemberFailed.
        """
        known = self._tries.get(name)
        if known is None or known.reaching.done():
            known = self._tries[name] = _Try(at, asyncio.create_task(self._reach(name)))
        await asyncio.wait({known.reaching}, timeout=max(0, known.began + A_MOMENT - at))
        failed = known.reaching.result() if known.reaching.done() else MemberFailed("connect", NO_ANSWER)
        if failed is not None:
            raise failed

    async def _reach(self, name: ServerName) -> MemberFailed | None:
        """Open a session for the pool: by its greeting the member is no longer spent."""
        try:
            self.release(name, await self.acquire_for_copy(name))
        except MemberFailed as failed:
            return failed
        return None

    async def offer(
        self, step: OfferCopy, content: AsyncIterable[bytes], *, needed: bool = True
    ) -> OfferAttempt:
        """Offer a copy in a session of its own. A failure of the member is a result, not an exception.

        A member that has the content is sent it only if it asks for it, and then at once. ``needed``: as for
        ``acquire_for_copy``.
        """
        pooled = self.pooled(step.to)
        try:
            session = pooled or await self.acquire_for_copy(step.to, needed=needed)
        except MemberFailed as failed:
            return self.unreachable(step, failed)
        offering = self.offering(session, step)
        digest = step.digests.content if step.digests else None
        if may_refer(session.version, step):
            attempt = await offering.refer(digest)
            if offering.send_it:
                log.info("content_not_referred_to", message=step.message_id, member=step.to)
                offering = self.offering(session, replace(step, refers=False))
                attempt = await offering.send(content, digest)
        else:
            attempt = await offering.send(content, digest)
        if attempt.concern is Concern.SESSION and pooled is None:
            attempt = replace(attempt, concern=Concern.MEMBER)  # the session was new, so the member failed
        return self.offered(session, offering, attempt)

    def offering(self, session: MemberConnection, step: OfferCopy) -> OutgoingOffer:
        """An offer of a copy, to be made in that session."""
        ends = self._clock.endings()  # the holder is told the age that the message certainly has
        now = ends.now - within(ends.spans, step.received_at, ends.now)
        return OutgoingOffer(session, step, self._database.lineage.mark, now)

    def offered(
        self, session: MemberConnection, offering: OutgoingOffer, attempt: OfferAttempt
    ) -> OfferAttempt:
        """An offer ended: return its session to the pool, and remember what it shows about the member."""
        self.release(attempt.name, session)
        self._boundary.attempted(attempt, seconds())
        if attempt.leg is not Leg.ACKNOWLEDGED:
            if attempt.concern is not Concern.COPY and session.closed:
                self._distrust(attempt.name)
            log.warning(
                "shadow_copy_not_taken",
                message=offering.step.message_id,
                member=attempt.name,
                leg=attempt.leg.value,
                concern=attempt.concern.value,
                reply=attempt.reply,
            )
        return attempt

    def unreachable(self, step: OfferCopy, failed: MemberFailed) -> OfferAttempt:
        attempt = OfferAttempt(step.to, Leg.REFUSED, step.rank, str(failed))
        self._boundary.attempted(attempt, seconds())
        log.warning("shadow_server_unreachable", member=step.to, step=failed.step, error=failed.error)
        return attempt

    async def lost(self, step: OfferCopy) -> OfferAttempt:
        """The result of an offer that ran out of time: the member's known database may hold a copy."""
        known = await self._database.transact(lambda ledger: ledger.member(step.to))
        database_id = known.lineage.database_id if known and known.lineage else None
        attempt = OfferAttempt(step.to, Leg.LOST, step.rank, NO_ANSWER, database_id)
        self._boundary.attempted(attempt, seconds())
        return attempt

    def _distrust(self, name: ServerName) -> None:
        """Drop the idle sessions with a member, because one broke: the others may be no better."""
        idle = self._idle.get(name, [])
        while idle:
            idle.pop().abort()

    async def ask(self, step: Ask, timeout: float | None = None) -> Answered | Unanswered:
        """Send one XQDISCARD in a session from the pool, within ``timeout`` seconds."""

        async def asked(session: MemberConnection) -> tuple[Answered, tuple[str, ...]] | Unanswered:
            if step.query.wanted and session.version == 1:
                return Unanswered("xqdiscard", "a member of an older version cannot give its copy")
            return await session.ask(step.query)

        said = await self._exchanged(step.to, "xqdiscard", asked, timeout)
        if isinstance(said, Unanswered):
            return said
        answered, bad = said
        for line in bad:
            log.error("discard_line_skipped", member=step.to, line=line[:200])
        return answered

    async def operate(self, step: Operate, timeout: float | None = None) -> ActAnswer | Unanswered:
        """Send one XOPERATE in a session from the pool, within ``timeout`` seconds."""
        return await self._exchanged(step.to, "xoperate", lambda session: session.operate(step.act), timeout)

    async def _exchanged(
        self,
        name: ServerName,
        verb: str,
        exchange: Callable[[MemberConnection], Awaitable[T]],
        timeout: float | None,
    ) -> T | Unanswered:
        """One exchange in a session from the pool. A verb that is sent twice does no more than once."""
        try:
            async with asyncio.timeout(timeout):
                session = await self.acquire(name)
                try:
                    said = await exchange(session)
                except MemberGone:  # perhaps only this session broke
                    self._distrust(name)
                    session = await self.acquire(name)
                    said = await exchange(session)
        except MemberFailed as failed:
            return Unanswered(failed.step, failed.error)
        except TimeoutError:
            return Unanswered(verb, NO_ANSWER)
        self.release(name, session)
        return said

    async def close(self) -> None:
        """Send QUIT on all idle sessions at once, and wait only a moment: a frozen member never answers."""
        for each in self._tries.values():
            each.reaching.cancel()
        found = [session for sessions in self._idle.values() for session in sessions]
        for sessions in self._idle.values():
            sessions.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE):
                await asyncio.gather(*(session.close() for session in found))
