"""The link to each other member: heartbeat, poll and questions, and promotion when it fails for too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import field
from datetime import datetime, timedelta
from functools import partial

import structlog

from shadowrelay.core.decisions import Part
from shadowrelay.core.greeting import greet
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.members.claims import Sighting, sighting_of
from shadowrelay.core.members.conversation import Answered, Greeting, Query, ask, told
from shadowrelay.core.members.forecast import Forecast
from shadowrelay.core.members.questions import Speaker
from shadowrelay.core.members.second_opinion import Others
from shadowrelay.core.messages import Reason
from shadowrelay.core.ownership import heartbeat
from shadowrelay.core.ownership.heartbeat import Alarm
from shadowrelay.core.policy import Policy
from shadowrelay.core.steps import Ask, Greet, Transact, Unanswered
from shadowrelay.core.values import dataclass
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.inquiry import AT_ONCE, Inquiry
from shadowrelay.members.pool import Members, seconds
from shadowrelay.running import Performer
from shadowrelay.smtp.members.client import MemberConnection, MemberFailed

log = structlog.get_logger(__name__)

NO_SESSION = Unanswered("connect", "there is no session")

MOST_PATIENCE = 10.0  # seconds a heartbeat may take; less where heartbeats are more frequent


Clock = Callable[[], datetime]


async def poll(member: Greeting, inquiry: Inquiry, policy: Policy, clock: Clock) -> Unanswered | None:
    """Fetch events and ask about copies, until there is nothing more to fetch or ask. None: all went well."""
    more = True
    while more:
        query = await Transact(lambda ledger: ask(ledger, member.name, inquiry, clock(), member.version))
        answered = await Ask(member.name, query)
        if isinstance(answered, Unanswered):
            return answered
        speaker = Speaker(member.name, member.lineage.database_id, answered.mark, member.version)

        def apply(
            ledger: Transaction,
            query: Query = query,
            answered: Answered = answered,
            speaker: Speaker = speaker,
        ) -> bool:
            return told(ledger, speaker, query, answered.lines, inquiry, policy, clock())

        more = await Transact(apply)
    return None


@dataclass(frozen=True, slots=True)
class Consequence:
    """The consequence of a failed heartbeat: how many promotions became pending, or why none may.

    ``seen_by``: a member that had contact with the silent one. ``alone``: no other machine answered.
    """

    promoting: int = 0
    seen_by: ServerName | None = None
    alone: bool = False


NOTHING = Consequence()


async def unreachable(
    member: ServerName,
    alarms: Collection[Alarm],
    others: Others,
    silent: Callable[[], bool],
    clock: Clock,
) -> Consequence:
    """Apply what follows when a member cannot be reached. Repeating it at each heartbeat changes nothing new.

    Before a promotion by time, the other members are asked whether they had contact with the silent one. If
    no other machine answers, this node may be the one that is cut off. In a boundary of two, time decides.
    ``silent`` is called again before each write: is the member still out of reach?
    """

    def work(ledger: Transaction) -> tuple[Sighting | None, Part | None]:
        rest = heartbeat.lose_holder(ledger, member, first) if Alarm.HOLDER_LOST in alarms else None
        return (sighting_of(ledger, member) if Alarm.PROMOTE in alarms else None), rest

    def lose(ledger: Transaction, part: Part) -> Part | None:
        return heartbeat.lose_holder(ledger, member, part) if silent() else None

    first = Part(most=AT_ONCE)
    sighting, rest = await Transact(work) if alarms else (None, None)
    while rest:
        rest = await Transact(partial(lose, part=rest))
    if sighting is None:
        return NOTHING
    opinions: set[ServerName] = set()
    for other in sorted(others.members):
        answered = await Ask(other, Query(0, sighting=sighting))
        if isinstance(answered, Answered):
            opinions.add(other)
            if answered.seen == member:
                return Consequence(seen_by=other)
    if others.none_of(opinions) and Alarm.PROMOTE_ALONE not in alarms:
        return Consequence(alone=True)

    def promote(ledger: Transaction, part: Part) -> tuple[int, Part | None]:
        if not silent():
            return 0, None
        return heartbeat.take_over(ledger, member, Reason.HEARTBEAT_LOST, clock(), part)

    promoting, rest = 0, first
    while rest:
        more, rest = await Transact(partial(promote, part=rest))
        promoting += more
    return Consequence(promoting)


@dataclass(slots=True)
class Link:
    """The conversation with one member, for as long as the node runs.

    For the admin API, ``step`` and ``error`` describe the last failure; ``failing_since`` is when failures
    began.
    """

    name: ServerName
    members: Members
    database: TransportDatabase
    boundary: Boundary
    inquiry: Inquiry
    policy: Policy
    clock: Clock
    changed: Callable[[], None]  # the member told something: the queue may have work
    step: str = ""
    error: str = ""
    failing_since: datetime | None = None
    contact_at: datetime | None = None
    opinion: Consequence = NOTHING  # of its last failed heartbeat
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    _holding: bool = False  # this node held a copy for the member at the last contact
    _idle: bool = False
    _session: MemberConnection | None = None
    _greeting: Greeting | None = None

    async def run(self) -> None:
        """Talk until cancelled."""
        try:
            while True:
                began = seconds()
                failure = await self._talk()
                if failure is not None and self._session is not None:
                    # An idle session may just have been closed: a fresh session decides.
                    self._drop()
                    began = seconds()
                    failure = await self._talk()
                if failure is None:
                    await self._succeeded(began)
                else:
                    self._drop()
                    await self._failed(failure)
                busy = failure is None and (self._holding or await self._questions())
                pause = self.policy.discard_poll_interval if busy else self.policy.shadow_heartbeat_frequency
                self._idle = failure is None and not busy
                await self._rest(pause.total_seconds())
        finally:
            self._drop()

    def nudge(self) -> None:
        """There is a question, or a copy is held: an idle link does not wait for its next heartbeat."""
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
            except MemberFailed as failed:
                return Unanswered(failed.step, failed.error)
        # XSHADOW again is the heartbeat of an idle pair, and tells the time to one that is not idle.
        if fresh or self._greeting is None or not self._holding or self.members.time_is_old(self.name):
            silent = self.boundary.silent
            greeting = await self._performer().run(
                greet(self.name, self.clock, lambda: fresh or silent(self.name))
            )
            if isinstance(greeting, Unanswered):
                return greeting
            self._greeting = greeting
        if self._greeting is None:
            return Unanswered("xshadow", "not greeted")
        return await self._performer().run(poll(self._greeting, self.inquiry, self.policy, self.clock))

    def _performer(self) -> Performer:
        return Performer(transact=self.database.transact, greet=self._greet, ask=self._ask)

    async def _greet(self, step: Greet) -> Greeting | Unanswered:
        if self._session is None:
            return NO_SESSION
        try:
            return await self.members.introduced(self._session, step)
        except MemberFailed as failed:
            return Unanswered(failed.step, failed.error)

    async def _ask(self, step: Ask) -> Answered | Unanswered:
        if step.to != self.name:  # a second opinion
            return await self.members.ask(step, self._patience())
        if self._session is None:
            return NO_SESSION
        asked_at = seconds()
        try:
            answered, bad = await self._session.ask(step.query)
        except MemberFailed as failed:
            return Unanswered(failed.step, failed.error)
        # Talking about a long queue may take longer than the resubmit time span: note each answer.
        self.boundary.answered(self.name, asked_at)
        for line in bad:
            log.error("discard_line_skipped", member=self.name, line=line[:200])
        return answered

    async def _succeeded(self, asked_at: float) -> None:
        watch = self.boundary.watches[self.name]
        if not watch.reachable:
            log.warning(
                "heartbeat_restored", member=self.name, failures=watch.failures, was=watch.error or self.error
            )
        self.boundary.answered(self.name, asked_at)
        self.contact_at = self.clock()
        self.step = self.error = ""
        self.failing_since = None
        self.opinion = NOTHING
        self._holding = await self.database.transact_briefly(lambda ledger: ledger.holds_for(self.name))
        self.changed()

    async def _failed(self, failure: Unanswered) -> None:
        self.step, self.error = failure.step, failure.error
        self.failing_since = self.failing_since or self.clock()
        alarms = self.boundary.failed(self.name, seconds(), f"{failure.step}: {failure.error}")
        log.warning(
            "heartbeat_failed",
            member=self.name,
            step=failure.step,
            error=failure.error,
            since=self.failing_since.isoformat(timespec="seconds"),
            failures=self.boundary.watches[self.name].failures,
            next=str(self.forecast()),
        )
        calls = set(alarms)
        if self.database.ledger.tally.holds_none(self.name):  # no heartbeat reads a long queue for nothing
            calls.discard(Alarm.HOLDER_LOST)
        came = await self._performer().run(
            unreachable(
                self.name,
                calls,
                self.boundary.others(self.name),
                lambda: not self.boundary.watches[self.name].reachable,
                self.clock,
            )
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

    def forecast(self) -> Forecast:
        """What will happen if the member stays away."""
        policy, boundary = self.policy, self.boundary
        watch, tally = boundary.watches[self.name], self.database.ledger.tally
        silence = seconds() - (watch.failing_since or seconds())
        return Forecast(
            losing_in=max(0, policy.holder_loss_heartbeats - watch.failures),
            promoting_in=policy.shadow_resubmit_time_span - timedelta(seconds=silence),
            held_for_it=tally.held_for(self.name),
            seen_by=self.opinion.seen_by,
            cut_off=boundary.others(self.name).none_of(boundary.reachable()),
        )

    async def _questions(self) -> bool:
        """Is there a question for this member?"""
        return await self.database.transact(lambda ledger: self.inquiry.has_questions(ledger, self.name))

    def _patience(self) -> float:
        frequency = self.policy.shadow_heartbeat_frequency.total_seconds()
        return min(MOST_PATIENCE, max(1.0, frequency))

    def _drop(self) -> None:
        self._greeting = None
        if self._session is not None:
            self._session.abort()
            self._session = None
