"""Tells the other nodes how many workers this node has, and takes what they say of themselves.

The first worker of a node speaks for it, and for no other node. What it says is durable at the listener
before its workers are in the boundary, and counts before what the settings file of the listener says.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from shadowrelay.core.identifiers import Incarnation, RequestId, ServerName
from shadowrelay.core.operating import Act, Scope, Told
from shadowrelay.core.steps import Operate, Unanswered
from shadowrelay.core.workers import MOST, node_of
from shadowrelay.database import node_workers
from shadowrelay.members.sharing import incarnations
from shadowrelay.operator.acts import Action, ActRefused
from shadowrelay.service.minting import mint
from shadowrelay.service.telling import Telling

if TYPE_CHECKING:
    from shadowrelay.service.node import Node

log = structlog.get_logger(__name__)

WORKERS = "workers"
"""The action of XOPERATE that says how many workers the caller's node has. Whoever is a member may."""

LOOK = 1.0
"""Seconds between two looks for members that have to be told, and for workers that may leave."""

AGAIN = 300.0
"""Seconds after which a member is told again: its database may have been replaced."""

PATIENCE = 10.0


class WorkerCounts:
    """One node's."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._telling = Telling[int](AGAIN)

    def actions(self) -> dict[str, Action]:
        """What members may ask of this node."""
        return {WORKERS: Action(Scope.NONE, self._heard, quiet=True)}

    @property
    def count(self) -> int:
        """How many workers this node has: those that are members, and this one."""
        own = node_of(self._node.name)
        return 1 + sum(node_of(ServerName(one.name)) == own for one in self._node.settings.members)

    async def begin(self) -> None:
        """Read what is kept, before anybody is talked to."""
        kept = await self._node.database.transact(node_workers.kept)
        kept.pop(node_of(self._node.name), None)  # its settings say so
        self._node.membership.counts = kept
        if kept:
            self._node.membership.renew()

    async def run(self) -> None:
        """Until cancelled: the first worker tells the other nodes; workers leave that were waited for."""
        if self._node.membership.counts:  # only now, after the opening, all is counted that is held for them
            async with self._node.membership.turn:
                self._node.membership.renew()
        while True:
            if self._node.name == node_of(self._node.name):
                await self._tell()
            if self._node.membership.may_leave():
                async with self._node.membership.turn:
                    self._node.membership.renew()
            await asyncio.sleep(LOOK)

    async def _heard(self, member: ServerName, act: Act) -> Told:
        """A member says how many workers its node has. Raises ActRefused."""
        node, count = act.arguments.get("node"), act.arguments.get("workers")
        if node != member or node_of(member) != member or member == node_of(self._node.name):
            raise ActRefused(
                "the first worker of a node says how many workers that node has, and nobody else"
            )
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST:
            raise ActRefused(f"workers is a number from 1 to {MOST}")
        membership = self._node.membership
        async with membership.turn:
            if membership.counts.get(member) != count:
                await self._node.database.transact(lambda ledger: node_workers.keep(ledger, member, count))
                membership.counts[member] = count
                log.warning("workers_announced", node=member, workers=count)
                self._node.membership.renew()
        return {"workers": count}

    async def _tell(self) -> None:
        """Tell each member of another node that can be reached and was not told lately."""
        at, count, own = asyncio.get_running_loop().time(), self.count, node_of(self._node.name)
        reachable = {name for name in self._node.boundary.reachable() if node_of(name) != own}
        runs = incarnations(self._node.database.ledger.known, reachable)
        due = self._telling.due(runs, count, at)
        await asyncio.gather(*(self._say(name, count, runs[name], at) for name in due))

    async def _say(self, name: ServerName, count: int, run: Incarnation | None, at: float) -> None:
        act = Act(
            job=RequestId(mint(self._node.clock())),
            action=WORKERS,
            scope=Scope.NONE,
            operator="",
            reason="the number of workers of a node",
            arguments={"node": self._node.name, "workers": count},
        )
        answer = await self._node.members.operate(Operate(name, act), PATIENCE)
        if isinstance(answer, Unanswered):
            return
        if answer.refused:
            log.info("workers_not_taken", member=name, why=answer.refused)
        self._telling.told(name, count, run, at)
