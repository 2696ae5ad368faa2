"""The stage that gives every exposed message a second copy again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import datetime
from functools import partial
from typing import TypeVar

import structlog

from shadowrelay.core.decisions import Content
from shadowrelay.core.identifiers import FIRST, MessageId, ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.messages import Copy
from shadowrelay.core.ownership import chores
from shadowrelay.core.reception.by_reference import keepers
from shadowrelay.core.reception.redundancy import Concern, OfferAttempt, repaired, reserve_rank
from shadowrelay.core.reception.shadow_servers import Turn
from shadowrelay.core.steps import OfferCopy, Script, Transact
from shadowrelay.core.switching import released
from shadowrelay.core.values import dataclass
from shadowrelay.database.content import ContentDamaged, stored, verified
from shadowrelay.database.examining import Examiner, Finding
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue import exposed, to_release
from shadowrelay.database.transport import StandingRead, TransportDatabase
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.effective_policy import EffectivePolicy
from shadowrelay.members.pool import Members, seconds
from shadowrelay.running import Performer

log = structlog.get_logger(__name__)

T = TypeVar("T")

MOST_AT_ONCE = 64  # offers under way at once: they share commits, which makes repair fast
PAGE = 500  # messages that one look finds; the next look goes on after them, so none blocks the others
INTERVAL = 0.5  # seconds between looks
RELEASE_INTERVAL = 2.0  # the same while redundancy is off: what arrived at the switch may still get a holder
RELEASED_AT_ONCE = 200  # messages in a transaction


@dataclass(frozen=True, slots=True)
class Repaired:
    """Does the message now have a holder, or need none? And the attempts made for it."""

    safe: bool
    attempts: tuple[OfferAttempt, ...] = ()


async def copy_again(
    message_id: MessageId,
    whom: Callable[[Sequence[OfferAttempt]], Turn | None],
    clock: Callable[[], datetime],
    refused: Sequence[OfferAttempt] = (),
) -> Repaired:
    """Give an exposed message a holder.

    ``whom`` chooses the next member from the attempts so far and the earlier ``refused`` ones. Each offer's
    rank is recorded before the offer: if the answer is lost, a possible holder is on record, and is told the
    outcome like any other. A member that has the content, as that of another message, is not sent it.
    """
    attempts: list[OfferAttempt] = []
    while turn := whom([*refused, *attempts]):
        member = turn.to

        def reserve(ledger: Transaction, member: ServerName = member) -> tuple[Copy | None, bool]:
            copy = ledger.apply(reserve_rank(ledger, message_id, member))
            return copy, copy is not None and member in keepers(ledger, copy)

        copy, refers = await Transact(reserve)
        if copy is None or not copy.exposed or copy.damaged:
            return Repaired(copy is not None and not copy.exposed, tuple(attempts))
        attempt = await OfferCopy.of(copy, member, epoch=copy.epoch, rank=copy.ranks_given, refers=refers)
        attempts.append(attempt)

        def record(ledger: Transaction, attempt: OfferAttempt = attempt) -> bool:
            return ledger.apply(repaired(ledger, message_id, attempt, clock()))

        if await Transact(record):
            return Repaired(safe=True)
    return Repaired(safe=False, attempts=tuple(attempts))


class Repair:
    """Gives every exposed message a second copy again. ``refusals``: copies that members refused."""

    def __init__(
        self,
        members: Members,
        database: TransportDatabase,
        boundary: Boundary,
        examiner: Examiner,
        in_force: EffectivePolicy,
        clock: Callable[[], datetime],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._members = members
        self._database = database
        self._boundary = boundary
        self._examiner = examiner
        self._in_force = in_force
        self._clock = clock
        self._changed = changed  # called when there is something to say to the members
        self.wake = asyncio.Event()  # set when shadow redundancy was switched
        self.refusals = Refusals()
        self._found: deque[MessageId] = deque()
        self._looked_at = FIRST  # the next look begins after it
        self._first = StandingRead(database, partial(exposed, after=FIRST, most=PAGE))
        self._looking = asyncio.Lock()
        self._repaired = self._tried = self._asked = 0

    async def run(self) -> None:
        """Until cancelled: repair; while shadow redundancy is off, release the holders instead."""
        while True:
            if not self._in_force.redundancy:
                await self._release()
            elif self._may_begin():
                self._repaired = self._tried = self._asked = 0
                await self._look()
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(MOST_AT_ONCE, len(self._found))):
                        group.create_task(self._work())
                if self._asked:
                    log.info(
                        "exposure_repaired",
                        messages=self._repaired,
                        still_exposed=self._tried - self._repaired,
                        refused=self.refusals.messages,
                    )
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL if self._in_force.redundancy else RELEASE_INTERVAL):
                    await self.wake.wait()
            self.wake.clear()

    async def _release(self) -> None:
        """Tell the holders of every message in the queue that their copies are needed no more."""
        after: MessageId | None = FIRST
        while after is not None and not self._in_force.redundancy:
            found = await self._database.transact(partial(self._to_release, after=after))
            sound = [one for one in found if await self._examiner.look(one) is Finding.SOUND]
            count = await self._database.transact(partial(self._release_these, ids=sound)) if sound else 0
            after = found[-1] if len(found) == RELEASED_AT_ONCE else None
            if count:
                log.info("copies_released", messages=count)
                self._changed()

    def _to_release(self, ledger: SqlLedger, after: MessageId) -> list[MessageId]:
        return [] if chores.held_back(ledger) else to_release(ledger, after, RELEASED_AT_ONCE)

    def _release_these(self, ledger: SqlLedger, ids: Sequence[MessageId]) -> int:
        """Their contents were compared just now: the other copy may be the only good one."""
        if chores.held_back(ledger) or self._in_force.redundancy:
            return 0
        return sum(ledger.apply(released(ledger, one, self._clock())) for one in ids)

    def _may_begin(self) -> bool:
        """Is there a member to ask, and no chore open that may make lost copies count again?"""
        somebody = self._boundary.skipped(seconds()) < set(self._boundary.watches)
        return somebody and not self._database.ledger.chores

    async def _work(self) -> None:
        """Repair one message after the other, while there are any and at least half succeed."""
        while (message_id := await self._next()) is not None:
            self._tried += 1
            ended = await self._copy_again(message_id)
            self._asked += ended is not None
            self._repaired += ended is not None and ended.safe

    async def _next(self) -> MessageId | None:
        async with self._looking:
            goes_well = self._repaired >= self._tried // 2
            if not self._found and self._looked_at != FIRST and goes_well:
                await self._look()
            return self._found.popleft() if self._found else None

    async def _look(self) -> None:
        if self._looked_at == FIRST:
            found = await self._first()
        else:
            found = await self._database.transact(lambda ledger: exposed(ledger, self._looked_at, PAGE))
        self._looked_at = found[-1] if len(found) == PAGE else FIRST
        self._found.extend(found)
        self.refusals.found(found, last=self._looked_at == FIRST)

    async def _copy_again(self, message_id: MessageId) -> Repaired | None:
        """Give one message a holder. None: no member was asked."""
        candidates = self._boundary.candidates(seconds())
        lately = self.refusals.lately(message_id, seconds())
        if candidates.healthy(lately) is None:  # no member to ask, so the content need not be read
            return None

        def script(having: Collection[ServerName]) -> Script[Repaired]:
            whom = partial(candidates.healthy, first=having)
            return copy_again(message_id, whom, self._clock, lately)

        ended = await offered_whole(self._members, self._database, self._examiner, message_id, script)
        if ended is not None:
            self._note(message_id, ended)
        return ended

    def _note(self, message_id: MessageId, ended: Repaired) -> None:
        if ended.safe:
            self.refusals.forget(message_id)
        elif self.refusals.note(message_id, ended.attempts, self._clock(), seconds()):
            log.warning(
                "copy_refused_by_members",
                message=message_id,
                refusals={one.attempt.name: one.attempt.reply for one in self.refusals.of(message_id)},
                asked_again_in=REST,
            )


async def offered_whole(
    members: Members,
    database: TransportDatabase,
    examiner: Examiner,
    message_id: MessageId,
    script: Callable[[Collection[ServerName]], Script[T]],
) -> T | None:
    """Run a script that offers copies of a stored message. It is given the members that have the content.

    The content is compared with its digest while it is read: its end is sent only if all of it is good. None
    if there is nothing to offer, or the content is damaged or unreadable.
    """

    def work(ledger: SqlLedger) -> tuple[Copy | None, Content, Collection[ServerName]]:
        copy = ledger.copy(message_id)
        content = stored(ledger, message_id) or Content()
        return copy, content, keepers(ledger, copy) if copy else ()

    copy, content, having = await database.transact_briefly(work)
    if copy is None or copy.damaged:
        return None
    if copy.digests is None and await examiner.compare(copy, content) is not Finding.SOUND:
        return None

    async def offered(step: OfferCopy) -> OfferAttempt:
        if step.digests is None or not step.digests.content:
            raise TypeError("what has no digest is offered to nobody")
        return await members.offer(step, verified(content, step.digests.content))

    try:
        return await Performer(transact=database.transact_briefly, offer=offered).run(script(having))
    except ContentDamaged as error:
        await examiner.damaged(message_id, str(error))
    except OSError as error:
        log.error("content_unreadable", message=message_id, error=str(error))
    return None


REST = 60.0
"""Seconds after which a member is asked again: it may run another version by then."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A member's refusal of a copy. ``until``, on a clock that counts suspension, it is not asked again."""

    attempt: OfferAttempt
    at: datetime
    until: float


@dataclass(slots=True)
class Refusals:
    """The last refusal of each exposed message by each member, in the memory of this process."""

    rest: float = REST
    _by_message: dict[MessageId, dict[ServerName, Refusal]] = field(default_factory=dict)
    _exposed: set[MessageId] = field(default_factory=set)  # found so far in this round of looks

    @property
    def messages(self) -> int:
        """How many messages at least one member refused."""
        return len(self._by_message)

    def note(
        self, message_id: MessageId, attempts: Sequence[OfferAttempt], at: datetime, clock: float
    ) -> bool:
        """Remember the refusals among these attempts. Did any member refuse this particular copy?"""
        refused = [attempt for attempt in attempts if attempt.concern is Concern.COPY]
        if refused:
            said = self._by_message.setdefault(message_id, {})
            said.update({attempt.name: Refusal(attempt, at, clock + self.rest) for attempt in refused})
        return bool(refused)

    def lately(self, message_id: MessageId, clock: float) -> tuple[OfferAttempt, ...]:
        """The refusals so recent that the member is not asked again yet."""
        return tuple(one.attempt for one in self.of(message_id) if one.until > clock)

    def of(self, message_id: MessageId) -> tuple[Refusal, ...]:
        return tuple(self._by_message.get(message_id, {}).values())

    def forget(self, message_id: MessageId) -> None:
        self._by_message.pop(message_id, None)

    def found(self, exposed: Sequence[MessageId], *, last: bool) -> None:
        """A look found these exposed messages. After the ``last`` look of a round, forget all others."""
        if not self._by_message:
            self._exposed.clear()
            return
        self._exposed.update(exposed)
        if last:
            for message_id in self._by_message.keys() - self._exposed:
                self.forget(message_id)
            self._exposed.clear()
