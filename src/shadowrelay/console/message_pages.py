"""The pages about messages: those in a state, those that a query or a filter finds, and one message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shadowrelay.admin.guard import RequestRefused
from shadowrelay.console import filters
from shadowrelay.console.asking import Asking
from shadowrelay.console.one_message import found_line, id_looks_whole, listed_line, one_message
from shadowrelay.console.pages import QUEUE_VERBS, PageFrame, given_in
from shadowrelay.console.site import FRAGMENTS
from shadowrelay.console.words import many, number, short
from shadowrelay.core.jobs import Filter
from shadowrelay.database.views import MessageState
from shadowrelay.operator.listing import ListWanted
from shadowrelay.shown.nodes import answering, by_node, total

_TABS = {
    MessageState.QUEUED: "Queued",
    MessageState.EXPOSED: "Exposed",
    MessageState.AT_RISK: "At risk",
    MessageState.ASKING: "Asked about",
    MessageState.IN_DOUBT: "In doubt",
    MessageState.SET_ASIDE: "Wait for you",
    MessageState.DAMAGED: "Damaged",
    MessageState.SHADOW: "Copies for others",
    MessageState.SAFETY_NET: "Safety Net",
}


_COUNTED = {
    MessageState.QUEUED: "queued",
    MessageState.EXPOSED: "exposed",
    MessageState.AT_RISK: "at_risk",
    MessageState.ASKING: "asking",
    MessageState.IN_DOUBT: "in_doubt",
    MessageState.SET_ASIDE: "set_aside",
    MessageState.DAMAGED: "damaged",
    MessageState.SHADOW: "shadow_held",
    MessageState.SAFETY_NET: "safety_net",
}
"""Where the status of a node counts messages in a state."""

_SORTS = (
    ("received", "oldest first"),
    ("-received", "newest first"),
    ("-attempts", "most attempts first"),
    ("reason", "by reason"),
    ("next_hop", "by next hop"),
    ("sender", "by sender"),
    ("recipient", "by recipient"),
    ("subject", "by subject"),
    ("-size", "largest first"),
)
"""How a list is sorted where there is no room for the headings of its columns."""

_BY_TIME = _SORTS[:2]
"""How Safety Net is sorted: it may have millions of messages, and an index has them in the order of time."""

_PARTS = 4  # pages that a search looks through at most, while nothing is found


class MessagePages:
    """Messages in a state, what a query finds, and one message."""

    FIELDS = (
        ("queue", "Next hop", "world"),
        ("sender", "From", "ann@example.org, *@example.org"),
        ("recipient", "To", "bob@example.com, *@example.com"),
        ("subject", "Subject has", ""),
        ("error", "Last reply has", "451"),
        ("older", "Older than", "2h"),
        ("younger", "Younger than", "1d"),
        ("larger", "Larger than", "10MB"),
        ("smaller", "Smaller than", "1MB"),
    )
    A_PAGE = 50

    def __init__(self, frame: PageFrame, asking: Asking) -> None:
        self._frame, self._asking = frame, asking

    def routes(self) -> list[Route]:
        return [
            self._frame.look("/messages", self._list),
            self._frame.look("/messages/{id}", self._show),
        ]

    async def _list(self, request: Request) -> Response:
        names = {name for name, _, _ in self.FIELDS} | {"suspended"}
        given = given_in(request, {"q", "state", "sort", "after", "before", "filtered"} | names)
        wanted = {name: given[name] for name in sorted(names) if given[name]}
        if not given["q"] and not wanted:
            given["state"] = given["state"] or MessageState.QUEUED.value
        shown: dict[str, Any] = {
            "given": given,
            "q": given["q"],
            "tabs": [(state.value, title) for state, title in _TABS.items()],
            "fields": self.FIELDS,
            "filter": {**wanted, "back": str(request.url.path) + "?" + request.url.query},
            "filtered": bool(wanted),
            "all_verbs": QUEUE_VERBS,
            "verbs": QUEUE_VERBS,
            "nodes": [],
            "next": None,
            "previous": None,
            "wrong": "",
            "found_text": "",
            "elsewhere": [],
            "sorts": _BY_TIME if given["state"] == MessageState.SAFETY_NET and not wanted else _SORTS,
            "title": "Messages",
        }
        status = 200
        if given["q"]:
            parts = 1 if FRAGMENTS in request.headers else _PARTS  # while somebody types, each pause asks
            shown |= await self._found(given["q"], given["after"], parts)
        elif wanted:
            try:
                shown |= await self._sorted(given, filters.filter_in(wanted)) | {
                    "empty": "No message matches."
                }
            except RequestRefused as refused:
                status = refused.status
                shown |= {"messages": [], "wrong": refused.sentence, "empty": "The filter is not understood."}
        else:
            shown |= await self._of_state(given)
        return self._frame.show(request, "messages.html", shown, status=status)

    async def _of_state(self, given: Mapping[str, str]) -> dict[str, Any]:
        if given["state"] not in {*MessageState}:
            raise RequestRefused(400, f"state is one of {', '.join(MessageState)}")
        title = _TABS[MessageState(given["state"])]
        found = await self._sorted(given, None) | {"title": title, "empty": f"{title}: none."}
        if not found["messages"]:
            seen = total(await self._asking.members())
            places = [(state, _COUNTED[state]) for state in _TABS]
            found["elsewhere"] = [
                (state.value, _TABS[state], seen.get(count)) for state, count in places if seen.get(count)
            ]
        return found

    async def _sorted(self, given: Mapping[str, str], wanted: Filter | None) -> dict[str, Any]:
        """A page of a list over all nodes. Raises RequestRefused."""
        page = await self._asking.listed(
            ListWanted(
                state=given["state"] or MessageState.QUEUED.value,
                filter=wanted,
                sort=given["sort"] or "received",
                after=given["after"],
                before=given["before"],
                limit=self.A_PAGE,
            )
        )
        count = page["total"]
        counted = many(count, "message matches", "messages match") if wanted else many(count, "message")
        nodes = by_node((one["node"], one["total"]) for one in page["nodes"] if one["total"])
        told = ", ".join(f"{short(name)} {number(some)}" for name, some in nodes.items())
        return {
            "messages": [listed_line(one) for one in page["messages"]],
            "nodes": answering(page["nodes"]),
            "next": page["next"],
            "previous": page["previous"],
            "found_text": f"{counted}: {told}." if count else "",
        }

    async def _found(self, query: str, after: str, parts: int) -> dict[str, Any]:
        """What a search finds. It goes on by itself where nodes have looked at a part, and found nothing:
        ``parts`` times at most.
        """
        found = await self._asking.find(query, after, self.A_PAGE)
        for _ in range(parts):
            if found["messages"] or not found["next"]:
                break
            found = await self._asking.find(query, found["next"], self.A_PAGE)
        messages = [found_line(one) for one in found["messages"]]
        count = many(len(messages), "message")
        return {
            "messages": messages,
            "nodes": answering(found["nodes"]),
            "next": found["next"],
            "found_text": f"{count} on this page, the newest first" if messages else "",
            "empty": "No member that answers has such a message."
            if not found["next"]
            else "No such message so far: there is more to look through.",
        }

    async def _show(self, request: Request) -> Response:
        wanted = request.path_params["id"].lower()
        here = await self._asking.message(wanted)
        id_ = here["id"] if here else wanted
        found = await self._asking.find(f"id:{id_}", "", 2) if id_looks_whole(id_) else {"messages": []}
        traced = await self._asking.trace(id_)
        shown = one_message(id_, here, next(iter(found["messages"]), None), traced)
        if shown is None:
            raise RequestRefused(404, f"No member that answers knows a message that is called {wanted}.")
        shown |= {"nodes": answering(traced["nodes"]), "verbs": QUEUE_VERBS if shown["queued"] else ()}
        return self._frame.show(request, "message.html", shown)
