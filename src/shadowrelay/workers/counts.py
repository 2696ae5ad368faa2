"""Tells the other nodes how many workers this node has, and takes what they say of themselves.

The first worker of a node speaks for it, and for no other node. What it says is durable at the listener
before its workers are in the boundary, and counts before what the settings file of the listener says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import structlog

from shadowrelay.core.identifiers import Incarnation, RequestId, ServerName
from shadowrelay.core.operating import Act, Scope, Told
from shadowrelay.core.steps import Operate, Unanswered
from shadowrelay.core.workers import MOST, node_of
from shadowrelay.database import node_workers
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.ids import mint
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.telling import Telling, incarnations
from shadowrelay.operator.acts import Action, ActRefused
from shadowrelay.operator.asking import AskMember

log = structlog.get_logger(__name__)

WORKERS = "workers"
"""The action of XOPERATE that says how many workers the caller's node has. Whoever is a member may."""

LOOK = 1.0
"""Seconds between two looks for members that have to be told, and for workers that may leave."""

AGAIN = 300.0
"""Seconds after which a member is told again: its database may have been replaced."""

PATIENCE = 10.0


class MembershipView(Protocol):
    """The members of this node. ``counts``: the workers of each node that said how many it has; ``turn`` is
    held while members are taken.
    """

    counts: dict[ServerName, int]
    turn: asyncio.Lock

    def renew(self) -> None: ...

    def may_leave(self) -> bool: ...


@dataclass(slots=True, kw_only=True)
class ClusterWorkers:
    """What one process says and hears. ``count``: how many workers its node has; ``ask``: asks members."""

    name: ServerName
    clock: Callable[[], datetime]
    database: TransportDatabase
    boundary: Boundary
    membership: MembershipView
    ask: AskMember
    count: Callable[[], int]
    _telling: Telling[int] = field(default_factory=lambda: Telling(AGAIN))

    def actions(self) -> dict[str, Action]:
        """What members may ask of this node."""
        return {WORKERS: Action(Scope.NONE, self._heard, quiet=True)}

    async def begin(self) -> None:
        """Read what is kept, before anybody is talked to."""
        kept = await self.database.transact(node_workers.kept)
        kept.pop(node_of(self.name), None)  # its settings say so
        self.membership.counts = kept
        if kept:
            self.membership.renew()

    async def run(self) -> None:
        """Until cancelled: the first worker tells the other nodes; workers leave that were waited for."""
        if self.membership.counts:  # only now, after the opening, all is counted that is held for them
            async with self.membership.turn:
                self.membership.renew()
        while True:
            if self.name == node_of(self.name):
                await self._tell()
            if self.membership.may_leave():
                async with self.membership.turn:
                    self.membership.renew()
            await asyncio.sleep(LOOK)

    async def _heard(self, member: ServerName, act: Act) -> Told:
        """A member says how many workers its node has. Raises ActRefused."""
        node, count = act.arguments.get("node"), act.arguments.get("workers")
        if node != member or node_of(member) != member or member == node_of(self.name):
            raise ActRefused(
                "the first worker of a node says how many workers that node has, and nobody else"
            )
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST:
            raise ActRefused(f"workers is a number from 1 to {MOST}")
        async with self.membership.turn:
            if self.membership.counts.get(member) != count:
                await self.database.transact(lambda ledger: node_workers.keep(ledger, member, count))
                self.membership.counts[member] = count
                log.warning("workers_announced", node=member, workers=count)
                self.membership.renew()
        return {"workers": count}

    async def _tell(self) -> None:
        """Tell each member of another node that can be reached and was not told lately."""
        at, count, own = asyncio.get_running_loop().time(), self.count(), node_of(self.name)
        reachable = {name for name in self.boundary.reachable() if node_of(name) != own}
        runs = incarnations(self.database.ledger.known, reachable)
        due = self._telling.due(runs, count, at)
        await asyncio.gather(*(self._say(name, count, runs[name], at) for name in due))

    async def _say(self, name: ServerName, count: int, run: Incarnation | None, at: float) -> None:
        act = Act(
            job=RequestId(mint(self.clock())),
            action=WORKERS,
            scope=Scope.NONE,
            operator="",
            reason="the number of workers of a node",
            arguments={"node": self.name, "workers": count},
        )
        answer = await self.ask(Operate(name, act), PATIENCE)
        if isinstance(answer, Unanswered):
            return
        if answer.refused:
            log.info("workers_not_taken", member=name, why=answer.refused)
        self._telling.told(name, count, run, at)
