"""The stage that repairs exposure, and the one that lets messages go about which everybody was asked."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import chain

import structlog

from shadowrelay.core import chores
from shadowrelay.core.decisions import Content
from shadowrelay.core.identifiers import FIRST, MessageId, ServerName
from shadowrelay.core.inquiry import AT_ONCE, Inquiry
from shadowrelay.core.steps import OfferCopy, Step, Transact
from shadowrelay.database.content import blocks, stored
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.opening import Opening
from shadowrelay.database.queue import exposed
from shadowrelay.members import Members, seconds
from shadowrelay.primary.repairing import copy_again
from shadowrelay.running import run

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 64  # offers under way: what their commits share is what makes it quick
PAGE = 500  # messages that one look finds: the next one goes on behind them, so none keeps the others waiting
INTERVAL = 0.5  # seconds between looks


class Repair:
    """Gives every exposed message a second copy again."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._found: deque[MessageId] = deque()
        self._looked_at = FIRST  # the next look is behind it
        self._looking = asyncio.Lock()
        self._repaired = self._tried = 0

    async def run(self) -> None:
        """Until cancelled; not at all where shadow redundancy is disabled."""
        while self._members.policy.shadow_redundancy_enabled:
            if self._may_begin():
                self._repaired = self._tried = 0
                await self._look()
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(MOST_AT_ONCE, len(self._found))):
                        group.create_task(self._work())
                if self._tried:
                    left = self._tried - self._repaired
                    log.info("exposure_repaired", messages=self._repaired, still_exposed=left)
            await asyncio.sleep(INTERVAL)

    def _may_begin(self) -> bool:
        """Is there anybody to hold a copy? And will nothing that is lost count again in a moment?"""
        somebody = self._members.boundary.skipped(seconds()) < set(self._members.boundary.watches)
        return somebody and not self._members.database.ledger.chores

    async def _work(self) -> None:
        """One message after the other, as long as there are any and it goes well."""
        while (message_id := await self._next()) is not None:
            self._tried += 1
            self._repaired += await self._copy_again(message_id)

    async def _next(self) -> MessageId | None:
        async with self._looking:
            goes_well = self._repaired >= self._tried // 2
            if not self._found and self._looked_at != FIRST and goes_well:
                await self._look()
            return self._found.popleft() if self._found else None

    async def _look(self) -> None:
        found = await self._members.database.transact(lambda ledger: exposed(ledger, self._looked_at, PAGE))
        self._looked_at = found[-1] if len(found) == PAGE else FIRST
        self._found.extend(found)

    async def _copy_again(self, message_id: MessageId) -> bool:
        candidates = self._members.boundary.candidates(seconds())
        if (first := next(candidates, None)) is None:  # nobody to ask: the content need not be read
            return False
        content: Content | None = None

        async def perform(step: Step) -> object:
            nonlocal content
            match step:
                case OfferCopy() if content is not None:
                    return await self._members.offer(step, _read(content))
                case Transact(work):
                    # Both of them are about one message: brief. The first one finds its content too.
                    result, found = await self._members.database.transact_briefly(
                        lambda ledger: (work(ledger), content or stored(ledger, message_id))
                    )
                    content = found
                    return result
                case _:
                    raise TypeError(f"{type(step).__name__} is no step of a repair")

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
