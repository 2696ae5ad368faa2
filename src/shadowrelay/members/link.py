"""A link to each other member: heartbeat, poll, questions – and promotion when it fails for too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import field
from datetime import UTC, datetime

import structlog

from shadowrelay.core.conversation import Greeting
from shadowrelay.core.greeting import greet
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.steps import Ask, Greet, Step, Transact, Unanswered
from shadowrelay.core.values import dataclass
from shadowrelay.members.inquiry import Inquiry
from shadowrelay.members.pool import Members, seconds
from shadowrelay.members.talking import NOTHING, Consequence, poll, unreachable
from shadowrelay.running import run
from shadowrelay.smtp.peer_client import PeerConnection, PeerFailed

log = structlog.get_logger(__name__)

MOST_PATIENCE = 10.0  # seconds a heartbeat may take; less where heartbeats are more frequent


@dataclass(slots=True)
class Link:
    """The talk with one member, for as long as the node runs.

    ``step`` and ``error`` tell of the last failure and ``failing_since`` when it began, for the admin API.
    """

    name: ServerName
    members: Members
    inquiry: Inquiry
    changed: Callable[[], None]  # something was learnt: the queue may have work
    step: str = ""
    error: str = ""
    failing_since: datetime | None = None
    contact_at: datetime | None = None
    held: int = 0  # copies we hold for it, counted when it fails
    opinion: Consequence = NOTHING  # what came of its last failed heartbeat
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    _holding: bool = False  # a copy at least, at the last contact
    _idle: bool = False
    _session: PeerConnection | None = None
    _greeting: Greeting | None = None

    async def run(self) -> None:
        """Talk until cancelled."""
        policy = self.members.policy
        try:
            while True:
                began = seconds()
                failure = await self._talk()
                if failure is not None and self._session is not None:
                    # A session that was idle may only have been closed: a fresh one decides.
                    self._drop()
                    began = seconds()
                    failure = await self._talk()
                if failure is None:
                    await self._succeeded(began)
                else:
                    self._drop()
                    await self._failed(failure)
                busy = failure is None and (self._holding or await self._questions())
                pause = policy.discard_poll_interval if busy else policy.shadow_heartbeat_frequency
                self._idle = failure is None and not busy
                await self._rest(pause.total_seconds())
        finally:
            self._drop()

    def nudge(self) -> None:
        """There is something to ask, or a copy is held: an idle pair does not wait for its next heartbeat."""
        if self._idle:
            self._idle = False
            self.wake.set()

    async def _rest(self, pause: float) -> None:
        try:
            async with asyncio.timeout(pause):
                await self.wake.wait()
        except TimeoutError:
            return
        self.wake.clear()

    async def _talk(self) -> Unanswered | None:
        fresh = self._session is None
        if fresh:
            try:
                self._session = await self.members.dial(self.name, self._patience())
            except PeerFailed as failed:
                return Unanswered(failed.step, failed.error)
        if (
            fresh or self._greeting is None or not self._holding
        ):  # XSHADOW again is the heartbeat of an idle pair
            silent = self.members.boundary.silent
            greeting = await run(
                greet(self.name, self.members.clock, lambda: fresh or silent(self.name)), self._perform
            )
            if isinstance(greeting, Unanswered):
                return greeting
            self._greeting = greeting
        if self._greeting is None:
            return Unanswered("xshadow", "not greeted")
        return await run(
            poll(self._greeting, self.inquiry, self.members.policy, self.members.clock), self._perform
        )

    async def _perform(self, step: Step) -> object:
        session = self._session
        try:
            match step:
                case Transact(work):
                    return await self.members.database.transact(work)
                case Greet(_, greeting) if session is not None:
                    theirs = await session.greet(greeting)
                    self.members.boundary.greeted(theirs.name)
                    return theirs
                case Ask(to, _) if to != self.name:  # a second opinion
                    return await self.members.ask(step, self._patience())
                case Ask(_, query) if session is not None:
                    asked_at = seconds()
                    answered, bad = await session.ask(query)
                    # A talk about a long queue takes longer than the time span may be.
                    self.members.boundary.answered(self.name, asked_at)
                    for line in bad:
                        log.error("discard_line_skipped", member=self.name, line=line[:200])
                    return answered
                case _:
                    raise TypeError(f"{type(step).__name__} is no step of this talk")
        except PeerFailed as failed:
            return Unanswered(failed.step, failed.error)

    async def _succeeded(self, asked_at: float) -> None:
        watch = self.members.boundary.watches[self.name]
        if not watch.reachable:
            log.warning(
                "heartbeat_restored", member=self.name, failures=watch.failures, was=watch.error or self.error
            )
        self.members.boundary.answered(self.name, asked_at)
        self.contact_at = datetime.now(UTC)
        self.step = self.error = ""
        self.failing_since = None
        self.opinion = NOTHING
        self._holding = await self.members.database.transact_briefly(
            lambda ledger: ledger.holds_for(self.name)
        )
        self.changed()

    async def _failed(self, failure: Unanswered) -> None:
        self.step, self.error = failure.step, failure.error
        self.failing_since = self.failing_since or datetime.now(UTC)
        boundary = self.members.boundary
        self.held = self.members.database.ledger.tally.held_for(self.name)
        alarms = boundary.failed(self.name, seconds(), f"{failure.step}: {failure.error}")
        log.warning(
            "heartbeat_failed",
            member=self.name,
            step=failure.step,
            error=failure.error,
            since=self.failing_since.isoformat(timespec="seconds"),
            failures=boundary.watches[self.name].failures,
            next=self.outlook(),
        )
        came = await run(
            unreachable(
                self.name,
                alarms,
                boundary.others(self.name),
                lambda: not boundary.watches[self.name].reachable,
                self.members.clock,
            ),
            self._perform,
        )
        self.opinion = came
        if came.promoting:
            log.warning("promotion_pending", member=self.name, messages=came.promoting)
        elif came.seen_by:
            log.warning("promotion_waits", member=self.name, seen_by=came.seen_by)
        elif came.alone:
            log.error("promotion_waits", member=self.name, reason="no other machine answers")
        if alarms:
            self.changed()

    def outlook(self) -> str:
        """What happens next while the member stays away."""
        policy, watch = self.members.policy, self.members.boundary.watches[self.name]
        if watch.failing_since is None:
            return "nothing to do"
        left = watch.failing_since + policy.shadow_resubmit_time_span.total_seconds() - seconds()
        parts = []
        if watch.failures < policy.holder_loss_heartbeats:
            more = policy.holder_loss_heartbeats - watch.failures
            parts.append(f"after {more} more failures copies it holds for us are made elsewhere")
        else:
            parts.append("copies it holds for us are made elsewhere")
        if not self.held:
            parts.append("nothing is held for it")
        elif self.opinion.seen_by:
            parts.append(
                f"messages we hold for it are not promoted: {self.opinion.seen_by} is in contact with it"
            )
        elif self.opinion.alone:
            parts.append(
                "messages we hold for it are not promoted: no other machine answers, this node may be cut off"
            )
        elif left > 0:
            parts.append(f"the {self.held} messages we hold for it are promoted in {left:.0f} s")
        else:
            parts.append("messages we held for it are promoted")
        return "; ".join(parts)

    async def _questions(self) -> bool:
        """Is there something to ask this member about?"""
        return await self.members.database.transact(
            lambda ledger: self.inquiry.has_questions(ledger, self.name)
        )

    def _patience(self) -> float:
        frequency = self.members.policy.shadow_heartbeat_frequency.total_seconds()
        return min(MOST_PATIENCE, max(1.0, frequency))

    def _drop(self) -> None:
        self._greeting = None
        if self._session is not None:
            self._session.abort()
            self._session = None
