"""The stage that concludes open questions: it promotes copies, and releases messages for delivery."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

import structlog

from shadowrelay.core.identifiers import FIRST, MessageId, ServerName
from shadowrelay.core.ownership import chores
from shadowrelay.core.policy import Policy
from shadowrelay.database.examining import Examiner, Finding
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.transport import StandingRead, TransportDatabase
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.inquiry import AT_ONCE, Inquiry
from shadowrelay.members.pool import seconds

log = structlog.get_logger(__name__)

INTERVAL = 0.5  # seconds between looks
MOST_AT_ONCE = 64  # contents that are read side by side


class Reconcile:
    """Concludes a question about a message once every member that can be reached has answered."""

    def __init__(
        self,
        database: TransportDatabase,
        boundary: Boundary,
        inquiry: Inquiry,
        examiner: Examiner,
        changed: Callable[[], None],
        nudge: Callable[[ServerName], None],
        policy: Policy,
        clock: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._boundary = boundary
        self._policy = policy
        self._clock = clock
        self._inquiry = inquiry
        self._examiner = examiner
        self._changed = changed
        self._nudge = nudge  # tells the link to that member that there is something to ask

    async def run(self) -> None:
        """Until cancelled."""
        told = False
        occupied = StandingRead(self._database, self._occupied, lambda: frozenset(self._boundary.watches))
        while True:
            if not told and self._inquiry.forgotten(self._inquiry.returned):
                told = True
                log.error("away_too_long", consequence="messages that no holder confirms are set aside")
            if self._inquiry.idle and not await occupied():
                await asyncio.sleep(INTERVAL)
                continue
            closed, talk_to = await self._database.transact(self._conclude)
            if closed:
                self._changed()
            for member in talk_to:
                self._nudge(member)
            compared = await self._compare()
            if closed < AT_ONCE and not compared:
                await asyncio.sleep(INTERVAL)

    async def _compare(self) -> bool:
        """Compare the contents of copies to be promoted; damaged ones never are. True if some are sound."""
        unread, self._inquiry.unread = self._inquiry.unread, set()
        before = len(self._inquiry.sound)
        slots = asyncio.Semaphore(MOST_AT_ONCE)

        async def one(message_id: MessageId) -> None:
            async with slots:
                if await self._examiner.look(message_id) is Finding.SOUND:
                    self._inquiry.sound.add(message_id)

        await asyncio.gather(*(one(message_id) for message_id in unread))
        return len(self._inquiry.sound) > before

    def _occupied(self, ledger: SqlLedger) -> bool:
        """Is there an open question, or a copy held for a member?"""
        return bool(ledger.open_questions(FIRST, 1)) or any(map(ledger.holds_for, self._boundary.watches))

    def _conclude(self, ledger: SqlLedger) -> tuple[int, list[ServerName]]:
        if chores.held_back(ledger):
            return 0, []
        reachable = self._boundary.reachable()
        now = self._clock()
        closed = self._inquiry.conclude(ledger, reachable, self._policy, now, seconds())
        if closed == AT_ONCE:
            return closed, []
        talk_to = [
            name
            for name in sorted(reachable)
            if ledger.holds_for(name) or self._inquiry.has_questions(ledger, name)
        ]
        return closed, talk_to
