"""The pages of the console that look. Each answers a GET, and its address says all that it shows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from shadowrelay.admin.access import cookie_name
from shadowrelay.admin.answering import Answers
from shadowrelay.admin.body import session_of
from shadowrelay.admin.guard import RequestRefused
from shadowrelay.admin.sessions import local_path
from shadowrelay.console import picture
from shadowrelay.console.asking import Asking
from shadowrelay.console.charts import charts
from shadowrelay.console.rates import Rates
from shadowrelay.console.safety import judge
from shadowrelay.console.site import HEADERS, Site
from shadowrelay.console.verdict import AuditVerdict
from shadowrelay.console.words import many
from shadowrelay.core.operating import Scope, Told
from shadowrelay.database.views import MessageState

_QUEUES_A_PAGE = 50
_SORTS = {"next_hop", "status", "messages", "exposed", "oldest"}
_TABS = {
    MessageState.QUEUED: "Queued",
    MessageState.EXPOSED: "Exposed",
    MessageState.ASKING: "Asked about",
    MessageState.IN_DOUBT: "In doubt",
    MessageState.SET_ASIDE: "Wait for you",
    MessageState.DAMAGED: "Damaged",
    MessageState.SHADOW: "Copies for others",
    MessageState.SAFETY_NET: "Safety Net",
}
QUEUE_VERBS = ("retry", "suspend", "resume", "remove", "bounce")

Page = Callable[[Request], Awaitable[Response]]


class Frame:
    """What all pages of the console have: who looks, and how a refusal is shown."""

    def __init__(self, answers: Answers, site: Site) -> None:
        self._answers = answers
        self.site = site

    def look(self, path: str, handler: Page) -> Route:
        return Route(path, self._answers.pages(handler, self.refuse), methods=["GET"])

    def act(self, path: str, handler: Page) -> Route:
        return Route(path, self._answers.forms(handler, self.refuse), methods=["POST"])

    def show(
        self, request: Request, template: str, given: Mapping[str, Any], *, status: int = 200
    ) -> Response:
        return self.site.page(request, template, {"session": _shown(request), **given}, status=status)

    def refuse(self, request: Request, refused: RequestRefused) -> Response:
        """The page of what is not done, or of what has to come first: to log in."""
        if refused.status == 401:
            if request.method == "GET" and request.url.path != "/login":
                there = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                given = {"next": there, "why": ""}
            else:
                given = {"next": "/", "why": refused.sentence}
            return self.site.page(request, "login.html", {"session": None, **given}, status=401)
        titles = {403: "Not allowed", 404: "Not found", 503: "Not now"}
        shown: dict[str, Any] = {
            "session": _shown(request),
            "title": titles.get(refused.status, "Not done"),
            "why": refused.sentence,
            "back": "/",
        }
        return self.site.page(request, "error.html", shown, status=refused.status)

    def login(self, request: Request) -> Response:
        there = local_path(request.query_params.get("next", "/"))
        if self._answers.access.open:
            return RedirectResponse(there, 303, headers=HEADERS)
        return self.site.page(request, "login.html", {"session": None, "next": there, "why": ""})

    def cookie(self) -> str:
        return cookie_name(self._answers.node.name)


def _shown(request: Request) -> Mapping[str, Any] | None:
    session = getattr(request.state, "session", None)
    if session is None:
        return None
    return {
        "operator": session.operator,
        "csrf": session.csrf,
        "cookie": session.cookie,
        "may_operate": bool(session.csrf) and session.scope.allows(Scope.OPERATE),
    }


def may_operate(request: Request) -> bool:
    return session_of(request).scope.allows(Scope.OPERATE)


class Overview:
    """The first screen."""

    def __init__(
        self,
        frame: Frame,
        asking: Asking,
        rates: Rates,
        audit: Callable[[], AuditVerdict | None],
        lately: Callable[[], Sequence[Told]],
    ) -> None:
        self._frame, self._asking, self._rates = frame, asking, rates
        self._audit, self._lately = audit, lately

    def routes(self) -> list[Route]:
        return [self._frame.look("/", self._show)]

    async def _show(self, request: Request) -> Response:
        nodes = await self._asking.members()
        told = [one["status"] for one in nodes if one["answers"]]
        boxes, copies = picture.members(nodes)
        given = {
            "verdict": judge(nodes),
            "nodes": nodes,
            "wide": picture.picture(boxes, copies, picture.WIDE),
            "narrow": picture.picture(boxes, copies, picture.NARROW),
            "exposed": sum(one["exposed"] for one in told),
            "queued": sum(one["queued"] for one in told),
            "held": sum(one["shadow_held"] for one in told),
            "aside": sum(one["set_aside"] for one in told),
            "oldest": min((one["oldest_queued"] for one in told if one["oldest_queued"]), default=None),
            "charts": charts(self._rates),
            "audit": self._audit(),
            "lately": self._lately(),
        }
        return self._frame.show(request, "overview.html", given)


class QueuePages:
    """The queues of all members, and one of them."""

    def __init__(
        self, frame: Frame, asking: Asking, suspensions: Callable[[str], Awaitable[Sequence[Told]]]
    ) -> None:
        self._frame, self._asking, self._suspensions = frame, asking, suspensions

    def routes(self) -> list[Route]:
        return [
            self._frame.look("/queues", self._list),
            self._frame.look("/queues/{hop:path}", self._show),
        ]

    async def _list(self, request: Request) -> Response:
        given = _given(request, {"named", "status", "sort", "page"})
        nodes = await self._asking.queues()
        answers = [one for one in nodes if one["answers"]]
        every = together(answers)
        states = sorted({one["status"] for one in every})
        named, status = given["named"].lower(), given["status"]
        found = [one for one in every if named in one["next_hop"].lower() and status in ("", one["status"])]
        key = given["sort"].removeprefix("-") or "messages"
        if key not in _SORTS:
            raise RequestRefused(
                400, f"sort is one of {', '.join(sorted(_SORTS))}, with - before it to turn it"
            )
        down = given["sort"].startswith("-") or not given["sort"]
        found.sort(key=lambda one: one["next_hop"])
        found.sort(key=lambda one: one[key], reverse=down)
        pages = max(1, -(-len(found) // _QUEUES_A_PAGE))
        page = min(_page(given["page"]), pages)
        shown = {
            "nodes": nodes,
            "given": given,
            "states": states,
            "queues": found[(page - 1) * _QUEUES_A_PAGE : page * _QUEUES_A_PAGE],
            "total": len(found),
            "page": page,
            "pages": pages,
            "shadows": [
                {**each, "node": one["node"]} for one in answers for each in one.get("shadow_queues", ())
            ],
        }
        return self._frame.show(request, "queues.html", shown)

    async def _show(self, request: Request) -> Response:
        hop = request.path_params["hop"]
        shown = {
            "hop": hop,
            "nodes": await self._asking.queue(hop),
            "suspensions": await self._suspensions(hop),
            "verbs": QUEUE_VERBS,
        }
        return self._frame.show(request, "queue.html", shown)


def together(nodes: Sequence[Told]) -> list[dict[str, Any]]:
    """The queues of several nodes for one next hop as one, with the nodes' ``parts``."""
    found: dict[str, dict[str, Any]] = {}
    for node in nodes:
        for queue in node["queues"]:
            part = {"node": node["node"], "messages": queue["messages"]}
            one = found.get(queue["next_hop"])
            if one is None:
                found[queue["next_hop"]] = {**queue, "parts": [part]}
                continue
            one["parts"].append(part)
            for name in ("messages", "exposed", "active", "recipients"):
                one[name] += queue[name]
            one["oldest"] = min(one["oldest"], queue["oldest"])
            planned = [at for at in (one["next_attempt"], queue["next_attempt"]) if at]
            one["next_attempt"] = min(planned, default=None)
            one["why"] = one["why"] or queue["why"]
            one["last_error"] = one["last_error"] or queue["last_error"]
            if queue["status"] == "active":
                one["status"] = "active"
    return list(found.values())


def _given(request: Request, known: set[str]) -> dict[str, str]:
    """The parameters of a page; '' for one that is not given."""
    return {name: request.query_params.get(name, "").strip() for name in sorted(known)}


def _page(text: str) -> int:
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 7 else 1


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
        frame: Frame,
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
        given = _given(request, {"q", "state", "after", "filtered"} | names)
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
        found, following = await self._asking.page(state, given["after"].lower(), self.A_PAGE)
        return {
            "messages": found,
            "next": following,
            "title": f"{_TABS[state]} at {self._asking.node.name}",
            "found_text": f"At {self._asking.node.name}; a search asks all members." if found else "",
            "empty": "There is no such message here.",
        }

    async def _found(self, query: str, after: str) -> dict[str, Any]:
        found = await self._asking.find(query, after, self.A_PAGE)
        if found is None:
            one = await self._asking.message(query.lower())
            messages = (
                [_line({**one, "to": "", "node": self._asking.node.name})] if one and "subject" in one else []
            )
            return {"messages": messages, "empty": "This node knows no such message."}
        messages = [_line(one) for one in found["messages"]]
        return {
            "messages": messages,
            "nodes": found["nodes"],
            "next": found.get("next"),
            "found_text": many(len(messages), "message") + " on this page" if messages else "",
            "empty": "No member that answers has such a message.",
        }

    async def _show(self, request: Request) -> Response:
        wanted = request.path_params["id"].lower()
        here = await self._asking.message(wanted)
        traced = await self._asking.trace(here["id"] if here else wanted)
        nodes = list(traced["nodes"]) if traced else []
        shown = one_message(here, traced, self._asking.node.name)
        if shown is None:
            raise RequestRefused(404, f"No member that answers knows a message {wanted}.")
        shown |= {"nodes": nodes, "verbs": QUEUE_VERBS if shown["queued"] else ()}
        return self._frame.show(request, "message.html", shown)


def _line(found: Told) -> dict[str, Any]:
    """A found message as a line of the table."""
    to = found.get("to")
    if to is None:
        recipients = found.get("recipients", ())
        to = ", ".join(one["address"] for one in recipients[:2]) if isinstance(recipients, list) else "–"
    empty = dict.fromkeys(("subject", "sender", "state", "received_at", "size", "node"), None)
    return {**empty, "exposed": False, "suspended": False, **found, "to": to}


def one_message(here: Told | None, traced: Told | None, name: str) -> dict[str, Any] | None:
    """A message as its page shows it: what this node has, and what the logs of all members tell."""
    rows = list(traced.get("rows", ())) if traced else []
    if here is None and not rows:
        return None
    copies = []
    if here is not None and "role" in here:
        owner = here["owner"]
        mine = "own" if owner == name else "kept"
        copies.append(
            {
                "node": name,
                "kind": mine,
                "state": here["state"],
                "text": "It owns the message, and delivers it."
                if mine == "own"
                else f"It keeps a copy for {owner}, which owns the message.",
            }
        )
        if mine == "own":
            copies += [
                {
                    "node": one["name"],
                    "kind": "kept",
                    "state": one["state"],
                    "text": f"It keeps the copy of rank {one['rank']}.",
                }
                for one in here["holders"]
            ]
        else:
            copies.insert(0, {"node": owner, "kind": "own", "state": "owner", "text": "It owns the message."})
    return {
        "id": here["id"] if here else rows[0].get("network-message-id", ""),
        "subject": (here or {}).get("subject")
        or next((one.get("subject") for one in rows if one.get("subject")), ""),
        "envelope": (here or {}).get("envelope"),
        "received_at": (here or {}).get("received_at"),
        "recipients": (here or {}).get("recipients") if here and "envelope" in here else [],
        "refusals": (here or {}).get("refusals", []),
        "queued": bool(here and here["state"] in ("queued", "set_aside", "damaged"))
        or bool(here and here["state"] == "shadow"),
        "copies": copies,
        "timeline": rows,
    }
