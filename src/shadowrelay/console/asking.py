"""What the console asks: all members by the operator's view, and this node of what only it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shadowrelay.admin import render_messages
from shadowrelay.admin.guard import RequestRefused
from shadowrelay.admin.node import RunningNode
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.operating import Told
from shadowrelay.database import views
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.operator.acts import ActRefused
from shadowrelay.operator.view import View
from shadowrelay.shown import nodes


@contextmanager
def _refusing() -> Iterator[None]:
    """A look that says nothing sensible is the fault of who asks."""
    try:
        yield
    except ActRefused as refused:
        raise RequestRefused(400, str(refused)) from refused


@dataclass(frozen=True, slots=True)
class Asking:
    """One node's. Entries of members have ``node``, ``answers`` and ``why``, and what the member says."""

    node: RunningNode
    clock: Callable[[], datetime]

    @property
    def _view(self) -> View:
        return self.node.hand.view

    async def members(self) -> Sequence[Told]:
        """The ``status`` of each node: its workers are one."""
        return nodes.statuses((await self._view.status())["nodes"])

    async def queues(self) -> Sequence[Told]:
        """The ``queues``, ``shadow_queues`` and ``hop_shadow_queues`` of each node."""
        return nodes.queues((await self._view.queues())["nodes"])

    async def queue(self, hop: str) -> Sequence[Told]:
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

    async def page(self, state: views.MessageState, after: str, most: int) -> tuple[list[Told], str | None]:
        """Messages of this node in a state, and where the next page begins."""
        found = await self.node.database.transact(lambda ledger: views.page(ledger, state, after, most + 1))
        shown: list[Told] = [
            {**render_messages.summary(one), "to": to_of(one), "node": self.node.name} for one in found
        ]
        return shown[:most], shown[most - 1]["id"] if len(shown) > most else None

    async def message(self, wanted: str) -> Told | None:
        """All that this node knows of one message, by its id or the beginning of it; None if nothing."""

        def find(ledger: SqlLedger) -> views.MessageView | None:
            view = views.message(ledger, MessageId(wanted))
            like = [] if view or len(wanted) < 4 else views.messages_like(ledger, wanted)
            return view or (views.message(ledger, like[0]) if len(like) == 1 else None)

        view = await self.node.database.transact(find)
        if view is None:
            return None
        return render_messages.message(view, self.node.hop, self.node.refusals(view.id), self.clock())


def to_of(item: Any) -> str:
    """The recipients of a message in one line."""
    recipients = getattr(item, "recipients", ())
    if not recipients:
        return "–"
    more = f" and {len(recipients) - 1} more" if len(recipients) > 1 else ""
    return f"{recipients[0].address}{more}"
