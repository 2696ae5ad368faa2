"""What the console asks: all members by the operator's view, and this node of what only it has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

from shadowrelay.admin.guard import NO_SUCH_QUEUE, RequestRefused
from shadowrelay.admin.node import RunningNode
from shadowrelay.console.words import sentence
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.operating import Told
from shadowrelay.core.values import replace
from shadowrelay.operator import view
from shadowrelay.operator.acts import ActRefused
from shadowrelay.operator.listing import ListWanted
from shadowrelay.operator.queue_names import NoSuchQueue
from shadowrelay.operator.view import NoSuchMessage, View
from shadowrelay.shown import nodes
from shadowrelay.shown.fold import fold
from shadowrelay.shown.messages import ListAnswer
from shadowrelay.shown.nodes import NodeLook
from shadowrelay.shown.status import DrainEntry, RatesLook

_LEAST = 4  # letters of an id that may stand for it


@contextmanager
def _refusing() -> Iterator[None]:
    """A malformed query, or a name that is no queue's, is the client's error."""
    try:
        yield
    except NoSuchQueue as unknown:
        raise RequestRefused(NO_SUCH_QUEUE, sentence(str(unknown))) from unknown
    except ActRefused as refused:
        raise RequestRefused(400, str(refused)) from refused


@dataclass(frozen=True, slots=True)
class Asking:
    """One node's. Entries of members have ``node``, ``answers`` and ``why``, and what the member says."""

    node: RunningNode
    clock: Callable[[], datetime]

    @property
    def _view(self) -> View:
        return self.node.services.view

    async def members(self) -> Sequence[Told]:
        """The ``status`` of each node: its workers are one."""
        return nodes.statuses((await self._view.status())["nodes"])

    async def queues(self) -> Sequence[Told]:
        """The ``queues``, ``shadow_queues`` and ``hop_shadow_queues`` of each node."""
        return nodes.queues((await self._view.queues())["nodes"])

    async def tls(self) -> Sequence[Told]:
        """What became of TLS with next hops, at each node."""
        return nodes.tls((await self._view.tls())["nodes"])

    async def queue_named(self, given: str) -> NextHop:
        """The queue of that name, in its one spelling. Raises RequestRefused."""
        with _refusing():
            return await self.node.services.queue_names.named(given)

    async def queue(self, hop: NextHop) -> Sequence[Told]:
        """What each node knows of one next hop; ``queue`` is None if it has no mail for it. Raises
        RequestRefused.
        """
        with _refusing():
            return nodes.queue((await self._view.queue(hop))["nodes"])

    async def find(self, query: str, after: str, most: int) -> Told:
        """The messages that a query finds at all members. Raises RequestRefused."""
        with _refusing():
            return await self._view.find(query, after=after, limit=most)

    async def trace(self, id_: str) -> Told:
        """The life of a message by the tracking logs of all members. Raises RequestRefused."""
        with _refusing():
            return await self._view.trace(id_)

    def nodes(self) -> Sequence[str]:
        """The names of all nodes, this one first."""
        return self._view.nodes()

    async def one_node(self, node: str) -> tuple[Told, DrainEntry, NodeLook]:
        """The entry of a node with its ``status``, what is left on all of its workers, and what it has."""
        entries, left, seen = await asyncio.gather(
            self._view.of_node(node, view.STATUS, {}, "status"),
            self._view.of_node(node, view.DRAIN, {}),
            self._view.of_node(node, view.NODE, {}),
        )
        (entry,) = nodes.statuses(entries)
        answering = [one for one in left if one["answers"] and not one["why"]]
        remains = fold(DrainEntry, answering, node, silent=len(left) - len(answering))
        has = fold(NodeLook, [one for one in seen if one["answers"]], node)
        return entry, remains, has

    async def rates(self) -> tuple[RatesLook, Sequence[Told]]:
        """What came in the last minutes at this node, and which of its workers say so."""
        entries = await self._view.workers(view.RATES, {})
        return fold(RatesLook, [one for one in entries if one["answers"]]), entries

    async def listed(self, wanted: ListWanted) -> ListAnswer:
        """A page of the messages of all members. Raises RequestRefused."""
        with _refusing():
            if wanted.filter is not None:
                named = await self.node.services.queue_names.in_filter(wanted.filter)
                wanted = replace(wanted, filter=named)
            return await self._view.listed(wanted)

    async def message(self, wanted: str) -> Told | None:
        """All that is known of one message where most is known; None if no node that answers knows it. Raises
        RequestRefused if several messages begin so.
        """
        if len(wanted) < _LEAST:
            return None
        with _refusing(), suppress(NoSuchMessage):
            return await self._view.message(wanted)
        return None
