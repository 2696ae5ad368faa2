"""The extra hop: mail for a destination on this node's machine is delivered by a member on another one.

Exchange 2010 does so where Hub Transport and Mailbox server share a server: otherwise the delivered message
and its copy in Safety Net would be lost with one machine. Before the attempt the ownership of the message
moves, as in a handover. If nobody elsewhere takes it, this node delivers it all the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import structlog

from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.messages import Copy, HolderState
from shadowrelay.database.queue import ActiveFork, being_sent
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.giving import BEING_SENT, Giving, HandoverResult
from shadowrelay.members.pool import seconds

log = structlog.get_logger(__name__)

PATIENCE = 1.0  # seconds for a member to say whether it takes mail
BELIEVED = 1.0  # seconds for which its answer counts
OTHER_FORKS = 2.0  # seconds to wait for attempts of the message's other forks
LOOK = 0.05  # seconds between two looks at them

TAKEN, ALONE = "taken", "alone"


class ExtraHop:
    """Decides which member delivers. ``counts``: messages for this machine, by TAKEN (another member delivers
    it) and ALONE (this node does, because nobody elsewhere takes it).
    """

    def __init__(
        self,
        machines: Mapping[NextHop, str],
        giving: Giving,
        boundary: Boundary,
    ) -> None:
        self._giving = giving
        self._boundary = boundary
        self.stand(machines)
        self._said: dict[ServerName, tuple[float, str]] = {}
        self.counts: Counter[str] = Counter({TAKEN: 0, ALONE: 0})

    def stand(self, machines: Mapping[NextHop, str]) -> None:
        """The next hops stand on these machines from now on."""
        own = self._boundary.own.host
        self._here = frozenset(name for name, machine in machines.items() if machine == own)

    def wanted(self, claimed: ActiveFork) -> bool:
        """Is the destination of this fork on our machine?

        A message that we took over from a member that can be reached stays: two nodes whose settings
        contradict each other would pass it to and fro.
        """
        if not self._here or NextHop(claimed.next_hop.partition("/")[0]) not in self._here:
            return False
        return claimed.copy.former_owner not in self._boundary.reachable()

    async def take(self, claimed: ActiveFork) -> bool:
        """Hand the message of this fork over to a member on another machine. False: deliver it here."""
        copy, why = claimed.copy, "no member on another machine can be reached"
        if not (enabled := self._giving.enabled()):
            why = "shadow redundancy is off"
        for to in self._candidates(copy) if enabled else ():
            if refusal := await self._asked(to):
                why = refusal
                continue
            given = await self._give(claimed, to)
            if given.handed:
                self.counts[TAKEN] += 1
                log.info("extra_hop", message=copy.id, next_hop=claimed.next_hop, by=to)
                self._giving.changed()
                return True
            why = f"{to}: {given.stays or 'not ours any more'} {given.reply}".rstrip()
            if not given.member:
                break
        self.counts[ALONE] += 1
        log.warning("no_extra_hop", message=copy.id, next_hop=claimed.next_hop, why=why)
        return False

    def _candidates(self, copy: Copy) -> list[ServerName]:
        """Members on other machines that can be reached: those of our site first (Exchange 2010 stays within
        the site), and among these those with a copy.
        """
        boundary = self._boundary
        names = (boundary.reachable() & boundary.elsewhere()) - boundary.skipped(seconds())
        holding = [one.name for one in copy.holders if one.state is HolderState.HOLDING]
        near = {place.name for place in boundary.places if place.site == boundary.own.site}
        return sorted(names, key=lambda name: (name not in near, name not in holding, name))

    async def _asked(self, to: ServerName) -> str:
        """Why that member takes no mail now; its answer counts for a moment."""
        at, why = self._said.get(to, (-BELIEVED, ""))
        if seconds() - at >= BELIEVED:
            why = await self._giving.unwilling(to, PATIENCE)
            self._said[to] = seconds(), why
        return why

    async def _give(self, claimed: ActiveFork, to: ServerName) -> HandoverResult:
        """Give it, once no other fork of the message is under way, or it was so for too long."""
        message_id, hop = claimed.copy.id, claimed.next_hop

        def other_forks(ledger: Any, message_id: MessageId) -> bool:
            return being_sent(ledger, message_id, but=hop)

        loop = asyncio.get_running_loop()
        until = loop.time() + OTHER_FORKS
        while True:
            given = await self._giving.give(message_id, to, other_forks) or HandoverResult()
            if given.stays != BEING_SENT or loop.time() >= until:
                return given
            await asyncio.sleep(LOOK)
