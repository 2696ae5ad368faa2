"""The stage that repairs exposure, and the one that lets messages go about which everybody was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import chain

import structlog

from shadowrelay.core import chores
from shadowrelay.core.decisions import Content
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.inquiry import AT_ONCE, Inquiry
from shadowrelay.core.steps import OfferCopy, Step
from shadowrelay.database.content import blocks, stored
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.opening import Opening
from shadowrelay.database.queue import exposed
from shadowrelay.members import Members, seconds
from shadowrelay.primary.repairing import copy_again
from shadowrelay.running import run

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 16
PAGE = 500  # messages that one look finds: the next one goes on behind them, so none keeps the others waiting
INTERVAL = 0.5  # seconds between looks


class Repair:
    """Gives every exposed message a second copy again."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._looked_at = MessageId("")

    async def run(self) -> None:
        """Until cancelled; not at all where shadow redundancy is disabled."""
        while self._members.policy.shadow_redundancy_enabled:
            somebody = self._members.boundary.skipped(seconds()) < set(self._members.boundary.watches)
            if (
                somebody and not self._members.database.ledger.chores
            ):  # what is lost may count again in a moment
                found = await self._members.database.transact(
                    lambda ledger: exposed(ledger, self._looked_at, PAGE)
                )
                if found:
                    await self._repair(found)
                self._looked_at = found[-1] if len(found) == PAGE else MessageId("")
            await asyncio.sleep(INTERVAL)

    async def _repair(self, found: list[MessageId]) -> None:
        slots = asyncio.Semaphore(MOST_AT_ONCE)

        async def one(message_id: MessageId) -> bool:
            async with slots:
                return await self._copy_again(message_id)

        repaired = await asyncio.gather(*(one(message_id) for message_id in found))
        log.info("exposure_repaired", messages=sum(repaired), still_exposed=len(found) - sum(repaired))

    async def _copy_again(self, message_id: MessageId) -> bool:
        candidates = self._members.boundary.candidates(seconds())
        if (first := next(candidates, None)) is None:  # nobody to ask: the content need not be read
            return False
        content = await self._members.database.transact(lambda ledger: stored(ledger, message_id))
        if content is None:
            return True  # settled and expired meanwhile

        async def perform(step: Step) -> object:
            if isinstance(step, OfferCopy):
                return await self._members.offer(step, _read(content))
            return await self._members.perform(step)

        try:
            return await run(copy_again(message_id, chain([first], candidates), self._members.clock), perform)
        except OSError as error:
            log.error("content_unreadable", message=message_id, error=str(error))
            return False


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
        if chores.held_back(ledger):
            return 0, []
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
