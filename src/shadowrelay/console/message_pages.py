"""The pages about messages: those in a state, those that a query or a filter finds, and one message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shadowrelay.admin.body import session_of
from shadowrelay.admin.guard import RequestRefused
from shadowrelay.console.asking import Asking
from shadowrelay.console.one_message import found_line, id_looks_whole, one_message, state_line
from shadowrelay.console.pages import QUEUE_VERBS, PageFrame, given_in
from shadowrelay.console.words import many
from shadowrelay.core.operating import Told
from shadowrelay.database.views import MessageState
from shadowrelay.shown.nodes import node_name

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

    def __init__(
        self,
        frame: PageFrame,
        asking: Asking,
        matching: Callable[[Mapping[str, str], str], Awaitable[tuple[Sequence[Told], str]]],
    ) -> None:
        """``matching``: a sample of the messages that a filter matches, and how many these are, for an
        operator. Raises RequestRefused.
        """
        self._frame, self._asking, self._matching = frame, asking, matching

    def routes(self) -> list[Route]:
        return [
            self._frame.look("/messages", self._list),
            self._frame.look("/messages/{id}", self._show),
        ]

    async def _list(self, request: Request) -> Response:
        names = {name for name, _, _ in self.FIELDS} | {"suspended"}
        given = given_in(request, {"q", "state", "after", "filtered"} | names)
        wanted = {name: given[name] for name in sorted(names) if given[name]}
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
            "wrong": "",
            "found_text": "",
            "title": "Messages",
        }
        status = 200
        if given["q"]:
            shown |= await self._found(given["q"], given["after"])
        elif wanted:
            try:
                sample, told = await self._matching(wanted, session_of(request).operator)
                shown |= {"messages": sample, "found_text": told, "empty": "No message matches."}
            except RequestRefused as refused:
                status = refused.status
                shown |= {"messages": [], "wrong": refused.sentence, "empty": "The filter is not understood."}
        else:
            shown |= await self._of_state(given)
        return self._frame.show(request, "messages.html", shown, status=status)

    async def _of_state(self, given: dict[str, str]) -> dict[str, Any]:
        given["state"] = given["state"] or MessageState.QUEUED.value
        if given["state"] not in {*MessageState}:
            raise RequestRefused(400, f"state is one of {', '.join(MessageState)}")
        state = MessageState(given["state"])
        page, workers = await self._asking.page(state, given["after"].lower(), self.A_PAGE)
        found = [state_line(one) for one in page["messages"]]
        node = node_name(self._asking.node.name)
        return {
            "messages": found,
            "nodes": workers,
            "next": page["next"],
            "title": f"{_TABS[state]} at {node}",
            "found_text": f"At {node}; a search asks all members." if found else "",
            "empty": "There is no such message here.",
        }

    async def _found(self, query: str, after: str) -> dict[str, Any]:
        found = await self._asking.find(query, after, self.A_PAGE)
        messages = [found_line(one) for one in found["messages"]]
        return {
            "messages": messages,
            "nodes": found["nodes"],
            "next": found["next"],
            "found_text": many(len(messages), "message") + " on this page" if messages else "",
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
            raise RequestRefused(404, f"No member that answers knows a message {wanted}.")
        shown |= {"nodes": traced["nodes"], "verbs": QUEUE_VERBS if shown["queued"] else ()}
        return self._frame.show(request, "message.html", shown)
