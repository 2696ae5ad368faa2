"""Empties a worker that leaves its node for good: it ends once it owns nothing and holds nothing.

Its queue is handed over as at ``drain``, to other machines. Siblings take it only where none can be reached;
each message is copied to them first. What the worker holds for others it cannot give away: it asks each owner
to make another copy, and keeps its own until the owner says that it is not needed any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import structlog

from shadowrelay.core.decisions import Part
from shadowrelay.core.identifiers import RequestId, ServerName
from shadowrelay.core.operating import Act, Scope, Told
from shadowrelay.core.ownership.handover import Remains
from shadowrelay.core.ownership.leaving import holder_leaves
from shadowrelay.core.steps import Operate
from shadowrelay.core.workers import node_of
from shadowrelay.database import views
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.ids import mint
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.pool import seconds
from shadowrelay.operator.acts import Action
from shadowrelay.operator.asking import AskMember
from shadowrelay.operator.redirect import Redirecting, RedirectRefused
from shadowrelay.workers.worker import EMPTY, WorkerPlace

log = structlog.get_logger(__name__)

LEAVES = "leaves"
"""The action of XOPERATE with which a member asks for other copies than its own. It takes no scope: it is
about the copies of the member that asks, and these stay until others count.
"""

INTERVAL = 1.0
"""Seconds between two looks at what is left."""

ALONE_FOR = 15.0
"""Seconds without another machine until siblings take the queue."""

PATIENCE = 10.0
_AT_ONCE = 200  # messages in a transaction


@dataclass(slots=True, kw_only=True)
class Leaving:
    """One worker's. ``ask``: asks members; ``drain`` begins to hand the queue over, and ``remains`` says what
    is left; ``sessions``: of senders, under way; ``repair`` wakes the repair.
    """

    name: ServerName
    clock: Callable[[], datetime]
    database: TransportDatabase
    boundary: Boundary
    ask: AskMember
    redirecting: Redirecting
    drain: Callable[[], Awaitable[Remains]]
    remains: Callable[[], Awaitable[Remains]]
    sessions: Callable[[], int]
    repair: Callable[[], None]
    _alone_since: float | None = None
    _walking: set[ServerName] = field(default_factory=set)  # for whose copies the queue is being walked

    def actions(self) -> dict[str, Action]:
        """What members may ask of this node."""
        return {LEAVES: Action(Scope.NONE, self._holder_leaves, quiet=True)}

    async def run(self, worker: WorkerPlace | None) -> None:
        """Until cancelled. Once the supervisor says that this worker leaves: empty it, and say when it is."""
        lifeline = worker.lifeline if worker else None
        if lifeline is None:
            return
        await lifeline.leave.wait()
        before = None
        while True:
            # Siblings get all new connections at once. Again each time: an operator may have ended the drain,
            # and a drain that found nobody to take the queue is over.
            await self.drain()
            # First what is under way: what ends meanwhile is queued then, or held. A copy that a member is
            # still sending was begun before the drain, and will be acknowledged.
            under_way = self.sessions() + self.database.in_hand.taken
            remains = await self.remains()
            left = await self._left(remains, under_way)
            if left != before:
                log.info("worker_is_emptied", left=left)
            before = left
            if not left:
                lifeline.tell(EMPTY)
            await self._to_a_sibling(left)
            await self._ask_owners(remains)
            await asyncio.sleep(INTERVAL)

    async def _left(self, remains: Remains, under_way: int) -> Mapping[str, int]:
        """What this worker still has, of each kind."""
        events = await self.database.transact(self._events)
        found = {
            "arriving": max(under_way, remains.arriving),
            "queued": remains.queued,
            "set_aside": remains.set_aside,
            "held": sum(remains.held_for.values()),
            "handed_over_not_taken": sum(remains.awaited.values()),
            "with_hops": sum(remains.hops.values()),
            "events_not_fetched": events,
        }
        return {name: count for name, count in found.items() if count}

    def _events(self, ledger: SqlLedger) -> int:
        """The events that members have yet to hear. Those of a member that has left nobody will ask for."""
        members = (one for one in ledger.members() if one.name in self.boundary.watches)
        databases = {one.lineage.database_id for one in members if one.lineage}
        waiting = views.snapshot(ledger).events
        return sum(count for addressee, count in waiting.items() if addressee in databases)

    async def _to_a_sibling(self, left: Mapping[str, int]) -> None:
        """Redirect the queue to a sibling, as long as no other machine can be reached."""
        boundary, at = self.boundary, seconds()
        reachable, elsewhere = boundary.reachable(), boundary.elsewhere()
        if reachable & elsewhere:
            self._alone_since = None
            await self.redirecting.end()
            return
        self._alone_since = self._alone_since or at
        waited = not elsewhere or at - self._alone_since >= ALONE_FOR
        if not left.get("queued") or not waited or self.redirecting.running:
            return
        own = node_of(self.name)
        for sibling in sorted(name for name in reachable if node_of(name) == own):
            with suppress(RedirectRefused):  # it leaves too, or has just gone
                await self.redirecting.begin(sibling)
                return

    async def _ask_owners(self, remains: Remains) -> None:
        owners = [name for name, count in remains.held_for.items() if count and name in remains.reachable]
        await asyncio.gather(*map(self._ask, owners))

    async def _ask(self, owner: ServerName) -> None:
        act = Act(
            job=RequestId(mint(self.clock())),
            action=LEAVES,
            scope=Scope.READ,
            operator="",
            reason="this member leaves",
            arguments={},
        )
        await self.ask(Operate(owner, act), PATIENCE)  # without an answer: asked again

    async def _holder_leaves(self, member: ServerName, act: Act) -> Told:
        """The copies that the member holds for this node count no more: the repair makes others. If this node
        dies meanwhile, the member still has its own.
        """
        del act
        self.boundary.leaves(member, seconds())
        if member in self._walking:  # it asks each second, and a long queue takes longer
            return {}
        self._walking.add(member)
        now, part = self.clock(), Part(most=_AT_ONCE)
        try:
            while (rest := await self.database.transact(partial(_leaves, member, now, part))) is not None:
                part = rest
        finally:
            self._walking.discard(member)
        self.repair()
        return {}


def _leaves(member: ServerName, now: datetime, part: Part, ledger: SqlLedger) -> Part | None:
    return holder_leaves(ledger, member, now, part)
