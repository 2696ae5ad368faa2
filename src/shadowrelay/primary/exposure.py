"""The stage that repairs exposure, and the one that lets messages go about which everybody was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import structlog

from shadowrelay.core.decisions import Content
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.inquiry import AT_ONCE, Inquiry
from shadowrelay.core.steps import OfferCopy, Script, Step
from shadowrelay.database.content import ContentDamaged, stored, verified
from shadowrelay.database.examining import Examiner, Finding
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue import exposed
from shadowrelay.members import Members, seconds
from shadowrelay.primary.refusals import REST, Refusals
from shadowrelay.primary.repairing import Repaired, copy_again
from shadowrelay.running import run

log = structlog.get_logger(__name__)

T = TypeVar("T")

MOST_AT_ONCE = 16
PAGE = 500  # messages that one look finds: the next one goes on behind them, so none keeps the others waiting
INTERVAL = 0.5  # seconds between looks


class Repair:
    """Gives every exposed message a second copy again. ``refusals``: what members said of some of them."""

    def __init__(self, members: Members, examiner: Examiner) -> None:
        self._members = members
        self._examiner = examiner
        self._looked_at = MessageId("")
        self.refusals = Refusals()

    async def run(self) -> None:
        """Until cancelled; not at all where shadow redundancy is disabled."""
        while self._members.policy.shadow_redundancy_enabled:
            if self._members.boundary.skipped(seconds()) < set(self._members.boundary.watches):
                found = await self._members.database.transact(
                    lambda ledger: exposed(ledger, self._looked_at, PAGE)
                )
                if found:
                    await self._repair(found)
                self._looked_at = found[-1] if len(found) == PAGE else MessageId("")
                self.refusals.found(found, last=not self._looked_at)
            await asyncio.sleep(INTERVAL)

    async def _repair(self, found: list[MessageId]) -> None:
        slots = asyncio.Semaphore(MOST_AT_ONCE)

        async def one(message_id: MessageId) -> Repaired | None:
            async with slots:
                return await self._copy_again(message_id)

        ended = await asyncio.gather(*(one(message_id) for message_id in found))
        if any(ended):
            safe = sum(one is not None and one.safe for one in ended)
            log.info(
                "exposure_repaired",
                messages=safe,
                still_exposed=len(found) - safe,
                refused=self.refusals.messages,
            )

    async def _copy_again(self, message_id: MessageId) -> Repaired | None:
        """None: nobody was asked."""
        candidates = self._members.boundary.candidates(seconds())
        lately = self.refusals.lately(message_id, seconds())
        if candidates.healthy(lately) is None:  # nobody to ask: the content need not be read
            return None
        script = copy_again(message_id, candidates.healthy, self._members.clock, lately)
        ended = await offered_whole(self._members, self._examiner, message_id, script)
        if ended is not None:
            self._note(message_id, ended)
        return ended

    def _note(self, message_id: MessageId, ended: Repaired) -> None:
        if ended.safe:
            self.refusals.forget(message_id)
        elif self.refusals.note(message_id, ended.attempts, self._members.clock(), seconds()):
            log.warning(
                "copy_refused_by_members",
                message=message_id,
                refusals={one.attempt.name: one.attempt.reply for one in self.refusals.of(message_id)},
                asked_again_in=REST,
            )


async def offered_whole(
    members: Members, examiner: Examiner, message_id: MessageId, script: Script[T]
) -> T | None:
    """Run a script that offers copies of a stored message. Its content is compared as it is read: the last of
    it leaves only if all is as it was accepted. None if there is nothing to be offered, or it is not.
    """
    copy, content = await members.database.transact(
        lambda ledger: (ledger.copy(message_id), stored(ledger, message_id) or Content())
    )
    if copy is None or copy.damaged:
        return None
    if copy.digests is None and await examiner.compare(copy, content) is not Finding.SOUND:
        return None

    async def perform(step: Step) -> object:
        if isinstance(step, OfferCopy) and step.digests and step.digests.content:
            return await members.offer(step, verified(content, step.digests.content))
        return await members.perform(step)

    try:
        return await run(script, perform)
    except ContentDamaged as error:
        await examiner.damaged(message_id, str(error))
    except OSError as error:
        log.error("content_unreadable", message=message_id, error=str(error))
    return None


class Reconcile:
    """Concludes what peers were asked: messages are delivered once everybody who may know better answered."""

    def __init__(
        self,
        members: Members,
        inquiry: Inquiry,
        examiner: Examiner,
        changed: Callable[[], None],
        nudge: Callable[[ServerName], None],
    ) -> None:
        self._members = members
        self._inquiry = inquiry
        self._examiner = examiner
        self._changed = changed
        self._nudge = nudge  # there is something to say to that member: it is no time for a long rest

    async def run(self) -> None:
        """Until cancelled."""
        if self._inquiry.long_away is not None:
            log.error("away_too_long", consequence="messages that no holder confirms are set aside")
        while True:
            closed, talk_to = await self._members.database.transact(self._conclude)
            if closed:
                self._changed()
            for member in talk_to:
                self._nudge(member)
            compared = await self._compare()
            if closed < AT_ONCE and not compared:
                await asyncio.sleep(INTERVAL)

    async def _compare(self) -> bool:
        """Read the copies that are to be promoted: a damaged one never is. True if some may be now."""
        unread, self._inquiry.unread = self._inquiry.unread, set()
        before = len(self._inquiry.sound)
        slots = asyncio.Semaphore(MOST_AT_ONCE)

        async def one(message_id: MessageId) -> None:
            async with slots:
                if await self._examiner.look(message_id) is Finding.SOUND:
                    self._inquiry.sound.add(message_id)

        await asyncio.gather(*(one(message_id) for message_id in unread))
        return len(self._inquiry.sound) > before

    def _conclude(self, ledger: SqlLedger) -> tuple[int, list[ServerName]]:
        policy = self._members.policy
        # Where shadow redundancy is disabled nobody is asked, so nobody is waited for.
        reachable = self._members.boundary.reachable() if policy.shadow_redundancy_enabled else frozenset()
        now = self._members.clock()
        closed = self._inquiry.conclude(ledger, reachable, policy, now, seconds())
        if closed == AT_ONCE:
            return closed, []
        talk_to = [
            name for name in reachable if ledger.holds_for(name) or self._inquiry.has_questions(ledger, name)
        ]
        return closed, talk_to
