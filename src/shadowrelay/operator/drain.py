"""Empties a node, at an operator's request or before a stop: hands over mail that is not delivered soon.

It empties only the queue. Copies held for other members stay: their owners make new copies when this node is
gone, or count these again when it is back.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any

import structlog

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.ownership import chores
from shadowrelay.core.ownership.handover import Remains, hand_over
from shadowrelay.core.values import dataclass, replace
from shadowrelay.database import views
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue import awaited, to_hand_over
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.effective_policy import EffectivePolicy
from shadowrelay.members.pool import seconds
from shadowrelay.smtp.receiving.connector import Connector

log = structlog.get_logger(__name__)

INTERVAL = 0.25  # seconds between passes
PATIENCE = 3.0  # seconds to deliver due messages here before these are handed over too
AT_ONCE = 200  # messages in a transaction


@dataclass(slots=True)
class Drain:
    """Hands over the queue of one node."""

    database: TransportDatabase
    boundary: Boundary
    in_force: EffectivePolicy
    clock: Callable[[], datetime]
    changed: Callable[[], None]  # called when there is something to say to the members
    _given: Counter[ServerName] = field(default_factory=Counter)

    async def run(self, until: float, arriving: Callable[[], bool]) -> Remains:
        """Work until nothing is left, no member can take it, or it is ``until`` on the loop's clock.

        While mail is ``arriving``, the work is not done.
        """
        self._given.clear()
        loop = asyncio.get_running_loop()
        patient = min(loop.time() + PATIENCE, (loop.time() + until) / 2)
        while True:
            remains = await self._pass(deliverable_too=loop.time() >= patient)
            alone = remains.reachable.isdisjoint(self.boundary.elsewhere()) and loop.time() >= patient
            done = (alone or not remains.waits) and not arriving()
            if done or loop.time() >= until:
                return remains
            await asyncio.sleep(INTERVAL)

    async def remains(self) -> Remains:
        """What is left now."""
        return await self.database.transact(self._remains)

    async def _pass(self, *, deliverable_too: bool) -> Remains:
        now, reachable = self.clock(), self._takers()
        due_after = None if deliverable_too else now

        def work(ledger: SqlLedger) -> Counter[ServerName]:
            given: Counter[ServerName] = Counter()
            may = reachable and not chores.held_back(ledger)
            for message_id in to_hand_over(ledger, due_after, AT_ONCE) if may else ():
                copy = ledger.copy(message_id)
                if copy and (to := ledger.apply(hand_over(ledger, copy, reachable, now))):
                    given[to] += 1
            return given

        given = await self.database.transact(work)
        if given:
            self._given.update(given)
            log.info("queue_handed_over", to=dict(given))
            self.changed()
        return await self.remains()

    def _takers(self) -> frozenset[ServerName]:
        """Reachable members on other machines that did not just refuse a copy, as a drained member does."""
        if not self.in_force.redundancy:
            return frozenset()
        return (self.boundary.reachable() & self.boundary.elsewhere()) - self.boundary.skipped(seconds())

    def _remains(self, ledger: SqlLedger) -> Remains:
        seen = views.snapshot(ledger)
        return Remains(
            queued=seen.counts.queued + seen.counts.arriving,
            exposed=seen.counts.exposed,
            set_aside=seen.counts.set_aside,
            held_for=seen.held_for,
            held_by=seen.held_by,
            handed_over=dict(self._given),
            awaited=awaited(ledger),
            reachable=self.boundary.reachable(),
            hops=seen.hops,
        )


@dataclass(frozen=True, slots=True)
class DrainOrder:
    """Who ordered something, and when. A node that does it by itself has no name."""

    operator: str = ""
    at: datetime | None = None


class Draining:
    """Drains a node in the background. ``active``: it takes no mail and no copies, and empties its queue.
    ``ordered``: who had it begin, or end.
    """

    def __init__(self, drain: Drain, patience: float) -> None:
        self.active = False
        self.ordered = DrainOrder()
        self._drain = drain
        self.patience = patience  # seconds for sessions to finish
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing: Sequence[Connector] = ()

    async def remains(self) -> Remains:
        left = await self._drain.remains()
        return replace(left, arriving=sum(connector.sessions for connector in self._closing))

    async def begin(self, connectors: Sequence[Connector], operator: str = "") -> Remains:
        """Begin to drain, in the background until ``end`` or ``finish``. Idempotent."""
        if not self.active:
            self._order(operator, active=True)
            log.warning("drain_begins", operator=operator)
        if not self._tasks:
            self._start(self._empty(connectors, math.inf))
        return await self.remains()

    async def end(self, connectors: Sequence[Connector], operator: str = "") -> Remains:
        """Take mail and copies again. Messages that were handed over stay where they are."""
        await self._cancel()
        if self.active:
            self._order(operator, active=False)
        self._closing = ()
        for connector in connectors:
            await connector.admit()
        log.warning("drain_ends", operator=operator)
        return await self.remains()

    async def finish(self, connectors: Sequence[Connector], until: float) -> None:
        """Drain for a stop: work until nothing is left, or it is ``until`` on the loop's clock."""
        await self._cancel()
        if not self.active:
            self._order("", active=True)
        await self._empty(connectors, until)

    def _order(self, operator: str, *, active: bool) -> None:
        self.active, self.ordered = active, DrainOrder(operator, self._drain.clock() if operator else None)

    async def _empty(self, connectors: Sequence[Connector], until: float) -> None:
        """Let sessions finish; deliver or hand over what they bring, like the rest."""
        self._closing = connectors
        async with asyncio.TaskGroup() as group:
            sessions = [group.create_task(one.refuse(self.patience)) for one in connectors]
            await self._drain.run(until, lambda: not all(session.done() for session in sessions))

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("drain_failed", exc_info=error)

    async def _cancel(self) -> None:
        for task in (tasks := tuple(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
