"""Asks before an attempt whether what this node claimed is still its own to send."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import structlog

from shadowrelay.core.decisions import Part
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.ownership import chores, heartbeat
from shadowrelay.database.queue import ActiveFork, may_be_sent
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.inquiry import AT_ONCE
from shadowrelay.members.pool import seconds
from shadowrelay.members.suspended import Suspended

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class StillOurs:
    """The question that every attempt asks, and what a silence before it leads to."""

    database: TransportDatabase
    boundary: Boundary
    suspended: Suspended
    clock: Callable[[], datetime]
    _noting: asyncio.Lock = field(default_factory=asyncio.Lock)  # while consequences of silence are stored

    async def __call__(self, claimed: ActiveFork) -> bool:
        """May this fork, claimed some time ago, be sent now?

        It may not after a silence in which members may have promoted their copies, nor if they told us that
        they did or that the fork is delivered, nor if an operator suspended it or its queue. Every attempt
        asks this. If nothing has happened to the message since the claim, memory gives the answer.
        """
        await self.note_silence()
        if chores.held_back(self.database.ledger) or self.suspended(claimed.next_hop):
            return False
        if self.database.ledger.undisturbed(claimed.copy.id):
            return True

        now = self.clock()
        return await self.database.transact_briefly(lambda ledger: may_be_sent(ledger, claimed, now))

    async def note_silence(self) -> None:
        """If this node was frozen or cut off for long, members may own our messages by now: mark them.

        This goes part by part. Until it is complete, nothing is claimed or sent.
        """
        boundary = self.boundary
        while boundary.cut_off(seconds()):
            async with self._noting:
                for member in boundary.cut_off(seconds()):
                    await self._ask_about_what_it_holds(member)

    async def _ask_about_what_it_holds(self, member: ServerName) -> None:
        boundary = self.boundary
        part: Part | None = Part(most=AT_ONCE)
        while part is not None:
            at = seconds()
            note = partial(heartbeat.cut_off, name=member, at_hand=boundary.at_hand(at), now=self.clock())
            part = await self.database.transact(partial(note, part=part))
        boundary.noted(member, at)
        log.warning("cut_off_from_holder", member=member)
