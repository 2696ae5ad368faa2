"""What this node sees of itself, as JSON: for its own API, and for members that show all nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from importlib.metadata import version as installed
from typing import TypeVar

from shadowrelay.admin import render
from shadowrelay.admin.node import RunningNode
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.operating import Told
from shadowrelay.database import views
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue_views import Queues, QueueView, ShadowQueues, hop_queues
from shadowrelay.operator import view
from shadowrelay.operator.acts import ActRefused
from shadowrelay.operator.view import Json

T = TypeVar("T")

_LONG = 0.2
"""Seconds: queues that take longer to count are kept for a while."""

_KEPT_FOR = 4
"""Times what the counting took."""


class Looking:
    """One node's looks at itself. ``seconds``: a monotonic clock."""

    def __init__(
        self, node: RunningNode, clock: Callable[[], datetime], seconds: Callable[[], float]
    ) -> None:
        self.node = node
        self.clock = clock
        self._seconds = seconds
        self._version = installed("shadowrelay")
        self._counted: tuple[float, list[QueueView]] | None = None  # until when it may be shown

    async def _ask(self, work: Callable[[SqlLedger], T]) -> T:
        return await self.node.database.transact(work)

    async def status(self) -> Json:
        seen = await self._ask(views.snapshot)
        return render.status(self.node, seen, self._version, self.clock())

    async def queues(self) -> Json:
        """The queues of this node, and the shadow queues of hops."""
        now = self.clock()
        shown = [
            render.queue(self.node.name, queue, self.node.hop(queue.next_hop), now)
            for queue in await self._queues(now)
        ]
        policy = self.node.policy
        hops = [
            render.hop_queue(self.node.name, queue, self.node.hop_watch(queue.hop), policy)
            for queue in await self._ask(hop_queues)
        ]
        return {"queues": shown, "hop_shadow_queues": hops}

    async def shadow_queues(self) -> Json:
        """The copies that this node holds for others."""
        found = ShadowQueues()
        while not await self._ask(found.read):
            pass
        seen = await self._ask(views.snapshot)
        peers = {peer["name"]: peer for peer in render.peers(self.node, seen)}
        shown = [
            render.shadow_queue(self.node.name, queue, peers.get(queue.primary)) for queue in found.result()
        ]
        return {"shadow_queues": shown}

    async def queue(self, name: NextHop) -> Json:
        """All that this node knows of one next hop. ``queue`` is None if it has no mail for it."""
        now, hop = self.clock(), self.node.hop(name)
        found = next((one for one in await self._queues(now) if one.next_hop == name), None)
        return {
            "queue": found and render.queue(self.node.name, found, hop, now),
            **render.next_hop(hop, now),
        }

    async def _queues(self, now: datetime) -> list[QueueView]:
        """The queues. Those of a million messages take a while to count, and are shown again for a while."""
        began = self._seconds()
        if self._counted and began < self._counted[0]:
            return self._counted[1]
        counting = Queues(now)
        while not await self._ask(counting.read):
            pass
        found, took = list(counting.result()), self._seconds() - began
        self._counted = (began + (1 + _KEPT_FOR) * took, found) if took > _LONG else None
        return found

    def looks(self) -> Mapping[str, view.Look]:
        """What members may ask for."""
        return {view.STATUS: self._look_status, view.QUEUES: self._look_queues, view.QUEUE: self._look_queue}

    async def _look_status(self, told: Told) -> Json:
        del told
        return await self.status()

    async def _look_queues(self, told: Told) -> Json:
        del told
        return {**await self.queues(), **await self.shadow_queues()}

    async def _look_queue(self, told: Told) -> Json:
        return await self.queue(NextHop(_text(told, "next_hop")))


def _text(told: Told, key: str) -> str:
    found = told.get(key)
    if not isinstance(found, str):
        raise ActRefused(f"{key} is no text")
    return found
