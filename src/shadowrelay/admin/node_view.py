"""What this node sees of itself, as JSON: for its own API, and for members that show all nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from shadowrelay import __version__
from shadowrelay.admin import render
from shadowrelay.admin.guard import MOST_PER_PAGE
from shadowrelay.admin.node import RunningNode
from shadowrelay.core.filtering import in_queue
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.jobs import Filter
from shadowrelay.core.members.damage import needed
from shadowrelay.core.operating import Told
from shadowrelay.core.ownership.handover import Remains
from shadowrelay.core.values import replace
from shadowrelay.database import message_list, search, views
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue_views import Queues, QueueView, ShadowQueues, hop_queues
from shadowrelay.operator import tracing, view
from shadowrelay.operator.acts import ActRefused
from shadowrelay.operator.view import Json
from shadowrelay.shown.fold import fold
from shadowrelay.shown.messages import MessageAnswer, MessagesPage
from shadowrelay.shown.nodes import NodeLook
from shadowrelay.shown.queues import HopLook
from shadowrelay.shown.rendering import rendered
from shadowrelay.shown.status import DrainEntry, RatesLook, StatusEntry
from shadowrelay.shown.tls import TlsEntry, TlsLook
from shadowrelay.wire.json_fields import is_text
from shadowrelay.wire.records import record_from
from shadowrelay.wire.xshadow import Malformed

T = TypeVar("T")

_LONG = 0.2
"""Seconds: queues that take longer to count are kept for a while."""

_KEPT_FOR = 4
"""Times what the counting took."""


class NodeView:
    """One node's looks at itself. ``seconds``: a monotonic clock."""

    def __init__(
        self, node: RunningNode, clock: Callable[[], datetime], seconds: Callable[[], float]
    ) -> None:
        self.node = node
        self.clock = clock
        self._seconds = seconds
        self._version = __version__
        self._counted: tuple[float, list[QueueView]] | None = None  # until when it may be shown

    async def _ask(self, work: Callable[[SqlLedger], T]) -> T:
        return await self.node.database.transact(work)

    async def status(self) -> StatusEntry:
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

    async def queue(self, name: NextHop) -> HopLook:
        """All that this node knows of one next hop; of a route whose hosts the DNS has, of all its next hops
        that have mail. ``queue`` is None if there is no mail for it.
        """
        now = self.clock()
        found = [one for one in await self._queues(now) if in_queue(name, one.next_hop)]
        looks = [self._look(one.next_hop, one, now) for one in found] or [self._look(name, None, now)]
        if len(found) < 2:
            return looks[0]
        whole = fold(HopLook, looks)
        if queue := whole["queue"]:
            queue |= {"next_hop": name, "identity": f"{self.node.name}\\{name}"}
        return whole

    def _look(self, name: NextHop, found: QueueView | None, now: datetime) -> HopLook:
        hop = self.node.hop(name)
        shown = render.queue(self.node.name, found, hop, now) if found else None
        return render.hop_look(hop, self.node.recent(name), shown, now)

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

    async def drain(self, left: Remains) -> DrainEntry:
        """What is left, and how much of it is here alone."""
        found = render.at_risk(self.node, await self._ask(views.snapshot), self.clock())
        return render.drain(self.node, left, sum(one.messages for one in found))

    async def find(self, wanted: search.SearchFor, after: MessageId, most: int) -> Json:
        """A page of the messages that match, newest first. ``until``: all ids from this one on were looked
        at; None: all.
        """
        page = await search.search(self._ask, wanted, after, most, self._seconds)
        return {"by": wanted.by.value, "until": page.until, **await self.known(page.found)}

    async def known(self, ids: Sequence[MessageId]) -> Json:
        """What this node knows of some messages."""
        found = await self._ask(lambda ledger: search.known(ledger, ids))
        now = self.clock()
        return {"messages": [render.known(one, self.node.hop, now) for one in found]}

    async def listed(self, wanted: message_list.ListOf) -> Json:
        """A page of a sorted list, one message more if there are more, and how many there are."""
        now = self.clock()
        if wanted.state is views.MessageState.AT_RISK:
            wanted = replace(wanted, **await self._away())
        if wanted.simple:
            page = await self._ask(lambda ledger: message_list.by_index(ledger, wanted))
        elif wanted.in_safety_net:
            raise ActRefused("Safety Net is sorted by received alone")
        else:
            read = self.node.database.read
            page = await read(lambda readers: message_list.sorted_page(readers, wanted, now))
        known = {one["id"]: one for one in (await self.known([id_ for _, id_ in page.rows]))["messages"]}
        rows = [{**known[id_], "place": [value, id_]} for value, id_ in page.rows if id_ in known]
        return {"total": page.total, "messages": rows}

    async def messages(self, state: views.MessageState, after: str, most: int) -> MessagesPage:
        """A page of the messages in a state."""
        away = await self._away() if state is views.MessageState.AT_RISK else {}
        found = await self._ask(lambda ledger: views.page(ledger, state, after, most + 1, **away))
        shown = [render.summary(item) for item in found]
        return {"messages": shown[:most], "next": shown[most - 1]["id"] if len(shown) > most else None}

    async def _away(self) -> dict[str, Any]:
        """The owners and holders that are away, whose mail is at risk."""
        seen = await self._ask(views.snapshot)
        gone = render.away_members(self.node, seen, self.clock())
        holders = [one.name for one in gone] if any(seen.held_by.get(one.name) for one in gone) else []
        return {"owners": tuple(one.name for one in gone if not one.seen_by), "holders": tuple(holders)}

    async def message(self, wanted: str) -> MessageAnswer | list[MessageId]:
        """All that this node knows of a message, by its id or the beginning of it. Else what it may be."""

        def find(ledger: SqlLedger) -> tuple[views.MessageView | None, list[MessageId]]:
            if view := views.message(ledger, MessageId(wanted)):
                return view, [view.id]
            like = views.messages_like(ledger, wanted)
            return (views.message(ledger, like[0]) if len(like) == 1 else None), like

        view, like = await self._ask(find)
        if view is None:
            return like
        refusals = self.node.refusals(view.id)
        shown = render.message(view, self.node.hop, refusals, self.clock())
        rows, copy = view.damaged, view.copy
        waits = needed(copy) if copy else bool(rows and not rows.set_aside)
        shown["waits_for"] = sorted(self.node.waits_for(view.id)) if waits else []
        if copy and copy.damaged:
            shown["found_at"], shown["why"] = await self.node.damage_in_log(view.id) or (None, None)
        return shown

    def looks(self) -> Mapping[str, view.OwnLook]:
        """What members may ask for."""
        return {
            view.STATUS: self._look_status,
            view.QUEUES: self._look_queues,
            view.QUEUE: self._look_queue,
            view.FIND: self._look_find,
            view.TRACE: self._look_trace,
            view.DRAIN: self._look_drain,
            view.RATES: self._look_rates,
            view.LIST: self._look_list,
            view.NODE: self._look_node,
            view.TLS: self._look_tls,
            view.MESSAGES: self._look_messages,
            view.MESSAGE: self._look_message,
        }

    async def _look_status(self, told: Told) -> StatusEntry:
        del told
        return await self.status()

    async def _look_queues(self, told: Told) -> Json:
        del told
        return {**await self.queues(), **await self.shadow_queues()}

    async def _look_queue(self, told: Told) -> HopLook:
        return await self.queue(NextHop(_text(told, "next_hop")))

    async def _look_find(self, told: Told) -> Json:
        if "ids" in told:
            return await self.known([MessageId(one) for one in _texts(told, "ids", view.MOST_IDS)])
        after = _text(told, "after") if "after" in told else search.LAST
        return await self.find(_query(_text(told, "query")), MessageId(after), _number(told, "limit"))

    async def _look_drain(self, told: Told) -> DrainEntry:
        del told
        return await self.drain(await self.node.remains())

    async def _look_rates(self, told: Told) -> RatesLook:
        del told
        return self.node.services.rates.seen()

    async def _look_list(self, told: Told) -> Json:
        return await self.listed(_list_of(told))

    async def _look_node(self, told: Told) -> NodeLook:
        del told
        return render.node(self.node)

    async def _look_tls(self, told: Told) -> TlsLook:
        del told
        return {"results": [rendered(TlsEntry, one) for one in self.node.tls_results.seen()]}

    async def _look_messages(self, told: Told) -> Mapping[str, object]:
        """A page of the messages in a state, each with its first ``addresses``."""
        state = _text(told, "state")
        if state not in {*views.MessageState}:
            raise ActRefused(f"state is one of {', '.join(views.MessageState)}")
        after = _text(told, "after") if "after" in told else ""
        page = await self.messages(views.MessageState(state), after, _number(told, "limit"))
        known = await self.known([MessageId(one["id"]) for one in page["messages"]])
        addresses = {one["id"]: one["addresses"] for one in known["messages"]}
        rows = [{**one, "addresses": addresses.get(one["id"])} for one in page["messages"]]
        return {"messages": rows, "next": page["next"]}

    async def _look_message(self, told: Told) -> Mapping[str, object]:
        """Empty if this node knows no message that is called so; ``like``: those that it may be."""
        found = await self.message(_text(told, "id"))
        return ({"like": found} if found else {}) if isinstance(found, list) else found

    async def _look_trace(self, told: Told) -> Json:
        id_ = MessageId(_text(told, "id"))
        older = _text(told, "older") if "older" in told else ""
        events, following = await self.node.trace(id_, older, tracing.MOST)
        return {"events": events, "older": following}


def _query(text: str) -> search.SearchFor:
    try:
        return search.query(text)
    except ValueError as error:
        raise ActRefused(str(error)) from None


def _list_of(told: Told) -> message_list.ListOf:
    """What list a member wants. Raises ActRefused."""
    state, sort = _text(told, "state"), _text(told, "sort")
    by = sort.removeprefix("-")
    if state not in {*views.MessageState}:
        raise ActRefused(f"state is one of {', '.join(views.MessageState)}")
    if by not in {*message_list.SortBy}:
        raise ActRefused(f"sort is one of {', '.join(message_list.SortBy)}, with - before it to turn it")
    try:
        wanted = record_from(Filter, told["filter"]) if "filter" in told else None
    except Malformed as error:
        raise ActRefused(str(error)) from error
    return message_list.ListOf(
        state=views.MessageState(state),
        filter=wanted,
        by=message_list.SortBy(by),
        down=sort.startswith("-"),
        after=_place(told, "after"),
        before=_place(told, "before"),
        most=_number(told, "limit"),
    )


def _place(told: Told, key: str) -> message_list.ListPlace | None:
    if key not in told:
        return None
    found = told[key]
    numbers = ("size", "attempts")
    kind = int if _text(told, "sort").removeprefix("-") in numbers else str
    if not isinstance(found, list) or len(found) != 2 or type(found[0]) is not kind or not is_text(found[1]):
        raise ActRefused(f"{key} is no place in this list")
    return found[0], MessageId(found[1])


def _number(told: Told, key: str) -> int:
    found = told.get(key)
    if not isinstance(found, int) or not 1 <= found <= MOST_PER_PAGE:
        raise ActRefused(f"{key} is no number from 1 to {MOST_PER_PAGE}")
    return found


def _text(told: Told, key: str) -> str:
    (found,) = _texts({key: [told.get(key)]}, key, 1)
    return found


def _texts(told: Told, key: str, most: int) -> list[str]:
    found = told.get(key)
    if not isinstance(found, list) or len(found) > most or not all(isinstance(one, str) for one in found):
        raise ActRefused(f"{key}: text is wanted, {most} at most")
    if not all(map(is_text, found)):
        raise ActRefused(f"{key} is no Unicode text, or has a NUL")  # the database would not take it
    return found
