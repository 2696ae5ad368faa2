"""The stage that repairs exposure, and the one that lets messages go about which everybody was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import structlog

from shadowrelay.core.decisions import Content
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.inquiry import AT_ONCE, Inquiry
from shadowrelay.core.steps import OfferCopy, Step
from shadowrelay.database.content import blocks, stored
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.opening import Opening
from shadowrelay.database.queue import exposed
from shadowrelay.members import Members, seconds
from shadowrelay.primary.refusals import REST, Refusals
from shadowrelay.primary.repairing import Repaired, copy_again
from shadowrelay.running import run

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 16
PAGE = 500  # messages that one look finds: the next one goes on behind them, so none keeps the others waiting
INTERVAL = 0.5  # seconds between looks


class Repair:
    """Gives every exposed message a second copy again. ``refusals``: what members said of some of them."""

    def __init__(self, members: Members) -> None:
        self._members = members
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
        content = await self._members.database.transact(lambda ledger: stored(ledger, message_id))
        if content is None:
            return Repaired(safe=True)  # settled and expired meanwhile

        async def perform(step: Step) -> object:
            if isinstance(step, OfferCopy):
                return await self._members.offer(step, _read(content))
            return await self._members.perform(step)

        try:
            script = copy_again(message_id, candidates.healthy, self._members.clock, lately)
            ended = await run(script, perform)
        except OSError as error:
            log.error("content_unreadable", message=message_id, error=str(error))
            return Repaired(safe=False)
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


async def _read(content: Content) -> AsyncIterator[bytes]:
    async for block in blocks(content):
        yield block


class Reconcile:
    """Concludes what peers were asked: messages are delivered once everybody who may know better answered."""

    def __init__(
        self,
        members: Members,
        inquiry: Inquiry,
        opened: Opening,
        changed: Callable[[], None],
        nudge: Callable[[ServerName], None],
    ) -> None:
        self._members = members
        self._inquiry = inquiry
        long_away = opened.away_for > members.policy.shadow_message_auto_discard_interval
        self._long_away = opened.at if long_away else None
        self._changed = changed
        self._nudge = nudge  # there is something to say to that member: it is no time for a long rest

    async def run(self) -> None:
        """Until cancelled."""
        if self._long_away is not None:
            log.error("away_too_long", consequence="messages that no holder confirms are set aside")
        while True:
            closed, talk_to = await self._members.database.transact(self._conclude)
            if closed:
                self._changed()
            for member in talk_to:
                self._nudge(member)
            if closed < AT_ONCE:
                await asyncio.sleep(INTERVAL)

    def _conclude(self, ledger: SqlLedger) -> tuple[int, list[ServerName]]:
        policy = self._members.policy
        # Where shadow redundancy is disabled nobody is asked, so nobody is waited for.
        reachable = self._members.boundary.reachable() if policy.shadow_redundancy_enabled else frozenset()
        now = self._members.clock()
        closed = self._inquiry.conclude(ledger, reachable, policy, now, seconds(), long_away=self._long_away)
        if closed == AT_ONCE:
            return closed, []
        talk_to = [
            name for name in reachable if ledger.holds_for(name) or self._inquiry.unasked(ledger, name, 1)
        ]
        return closed, talk_to
