"""The pages of the console that look. Each answers a GET, and its address says all that it shows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from shadowrelay.admin.access import cookie_name
from shadowrelay.admin.answering import Answers
from shadowrelay.admin.guard import RequestRefused
from shadowrelay.admin.sessions import local_path
from shadowrelay.console import picture
from shadowrelay.console.asking import Asking
from shadowrelay.console.charts import charts
from shadowrelay.console.lately import Lately
from shadowrelay.console.safety import judge
from shadowrelay.console.site import HEADERS, Site, zone_of
from shadowrelay.console.verdict import AuditVerdict
from shadowrelay.console.words import clock
from shadowrelay.core.operating import Scope, Told
from shadowrelay.core.workers import label, workers_called
from shadowrelay.shown.flow_text import MOST, flow_sentence, held_up
from shadowrelay.shown.nodes import node_name, tls_together, together, total
from shadowrelay.shown.queues import alike
from shadowrelay.shown.safety_text import copies_reached
from shadowrelay.shown.tls import AS_WANTED

_QUEUES_A_PAGE = 50
_SORTS = {"next_hop", "status", "messages", "exposed", "oldest"}
QUEUE_VERBS = ("retry", "suspend", "resume", "remove", "bounce")

PageHandler = Callable[[Request], Awaitable[Response]]


class PageFrame:
    """What all pages of the console have: who looks, and how a refusal is shown."""

    def __init__(self, answers: Answers, site: Site) -> None:
        self._answers = answers
        self.site = site

    def look(self, path: str, handler: PageHandler) -> Route:
        return Route(path, self._answers.pages(handler, self.refuse), methods=["GET"])

    def act(self, path: str, handler: PageHandler) -> Route:
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
        return cookie_name(self._answers.name)


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


class Overview:
    """The first screen."""

    def __init__(
        self,
        frame: PageFrame,
        asking: Asking,
        audit: Callable[[], AuditVerdict | None],
        lately: Lately,
    ) -> None:
        self._frame, self._asking = frame, asking
        self._audit, self._lately = audit, lately

    def routes(self) -> list[Route]:
        return [self._frame.look("/", self._show)]

    async def _show(self, request: Request) -> Response:
        nodes, (seen, counted), queues = await asyncio.gather(
            self._asking.members(), self._asking.rates(), self._asking.queues()
        )
        now = self._asking.clock()
        zone = zone_of(request)
        held = held_up(together(queues), lambda at: clock(at, now, zone))
        boxes, copies = picture.members(nodes)
        given = {
            "verdict": judge(nodes, now, zone),
            "flow": flow_sentence(held),
            "failing": any(one.failing for one in held),
            "held": held[:MOST],
            "more": len(held) - MOST,
            "nodes": [
                {**one, "at_risk": copies_reached(one["status"])[0]} if one["answers"] else one
                for one in nodes
            ],
            "wide": picture.picture(boxes, copies, picture.WIDE),
            "narrow": picture.picture(boxes, copies, picture.NARROW),
            "total": total(nodes),
            "one_copy": copies_reached(total(nodes))[0],
            "charts": charts(seen),
            "charted": whose(counted),
            "audit": self._audit(),
            "lately": self._lately.look(nodes, now),
        }
        return self._frame.show(request, "overview.html", given)


class QueuePages:
    """The queues of all members, and one of them."""

    def __init__(
        self, frame: PageFrame, asking: Asking, suspensions: Callable[[str], Awaitable[Sequence[Told]]]
    ) -> None:
        self._frame, self._asking, self._suspensions = frame, asking, suspensions

    def routes(self) -> list[Route]:
        return [
            self._frame.look("/queues", self._list),
            self._frame.look("/queues/{hop:path}", self._show),
            self._frame.look("/tls", self._tls),
        ]

    async def _list(self, request: Request) -> Response:
        given = given_in(request, {"named", "status", "sort", "page"})
        nodes = await self._asking.queues()
        every = together(nodes)
        states = sorted({one["status"] for one in every})
        named, status = given["named"].lower(), given["status"]
        found: list[Any] = [
            one for one in every if named in one["next_hop"].lower() and status in ("", one["status"])
        ]
        key = given["sort"].removeprefix("-") or "messages"
        if key not in _SORTS:
            raise RequestRefused(
                400, f"sort is one of {', '.join(sorted(_SORTS))}, with - before it to turn it"
            )
        down = given["sort"].startswith("-") or not given["sort"]
        found.sort(key=lambda one: one["next_hop"])
        # The oldest first is the largest age first.
        found.sort(key=lambda one: one[key], reverse=down != (key == "oldest"))
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
                {**each, "node": one["node"]} for one in nodes for each in one.get("shadow_queues", ())
            ],
        }
        return self._frame.show(request, "queues.html", shown)

    async def _show(self, request: Request) -> Response:
        hop = await self._asking.queue_named(request.path_params["hop"])
        shown = {
            "hop": hop,
            "nodes": await self._asking.queue(hop),
            "suspensions": await self._suspensions(hop),
            "verbs": QUEUE_VERBS,
            "alike": alike,
        }
        return self._frame.show(request, "queue.html", shown)

    async def _tls(self, request: Request) -> Response:
        nodes = await self._asking.tls()
        given = {"nodes": nodes, "results": tls_together(nodes), "as_wanted": AS_WANTED}
        return self._frame.show(request, "tls.html", given)


def whose(workers: Sequence[Told]) -> str:
    """The node whose workers those are, without those that do not answer."""
    silent = [one["node"] for one in workers if not one["answers"]]
    without = f", without {workers_called(silent)}" if silent else ""
    return label(node_name(workers[0]["node"])) + without


def given_in(request: Request, known: set[str]) -> dict[str, str]:
    """The parameters of a page; '' for one that is not given."""
    return {name: request.query_params.get(name, "").strip() for name in sorted(known)}


def _page(text: str) -> int:
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 7 else 1
