"""The page of a node, and what is done to it: drain, reload, announce a member."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from shadowrelay.admin.body import form_of, session_of
from shadowrelay.admin.guard import RequestRefused
from shadowrelay.admin.node import RunningNode
from shadowrelay.console.acting import plain_act
from shadowrelay.console.asking import Asking
from shadowrelay.console.pages import PageFrame
from shadowrelay.console.site import HEADERS
from shadowrelay.console.words import short
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.operating import Scope, Told
from shadowrelay.core.workers import is_later_worker, node_of
from shadowrelay.operator.acts import ActRefused
from shadowrelay.operator.announcing import AnnouncementRefused
from shadowrelay.operator.node_acts import DRAIN, UNDRAIN
from shadowrelay.shown.nodes import KnownMember, node_name
from shadowrelay.shown.safety_text import copies_reached

_PAGE = "/node"
_RELOADING = (
    "The settings file is read again, and is taken whole or refused whole. Certificates are read as well: "
    "new sessions use them, and sessions under way go on."
)


@dataclass(frozen=True, slots=True)
class _Whose:
    """The node that a page is about. ``path``: of its page here."""

    name: str
    own: bool

    @property
    def path(self) -> str:
        return _PAGE if self.own else f"/nodes/{self.name}"


class NodePages:
    """A node: whether it takes mail, what it runs with, and the members that it knows. Other nodes are looked
    at from here, and act for an operator who may operate both here and there.
    """

    def __init__(self, frame: PageFrame, node: RunningNode, asking: Asking) -> None:
        self._frame, self._node, self._asking = frame, node, asking

    def routes(self) -> list[Route]:
        look, act = self._frame.look, self._frame.act
        both = [
            route
            for base in (_PAGE, "/nodes/{name}")
            for route in (
                look(base, self._show),
                look(f"{base}/drain", self._ask_drain),
                act(f"{base}/drain", self._drain),
                look(f"{base}/undrain", self._ask_undrain),
                act(f"{base}/undrain", self._undrain),
                look(f"{base}/reload", self._ask_reload),
                act(f"{base}/reload", self._reload),
            )
        ]
        return [look("/node/announce", self._ask_announce), act("/node/announce", self._announce), *both]

    def _whose(self, request: Request) -> _Whose:
        """Raises RequestRefused if no member is called so."""
        own = node_name(self._node.name)
        name = request.path_params.get("name")
        if name is None:
            return _Whose(own, own=True)
        if name == own or name not in self._asking.nodes():  # the front gives orders at /node to all workers
            raise RequestRefused(404, f"No other node is called {name}.")
        return _Whose(name, own=False)

    async def _show(self, request: Request) -> Response:
        whose = self._whose(request)
        entry, left, has = await self._asking.one_node(whose.name)
        shown = {
            "nodes": [entry],
            "status": entry.get("status") or {},
            "left": left,
            "alone": copies_reached(left)[0],
            "whose": whose,
            "has": has,
            "members": self._others(whose.name, has.get("members", [])),
            "every": self._asking.nodes(),
        }
        return self._frame.show(request, "node.html", shown)

    def _others(self, own: str, members: Sequence[KnownMember]) -> list[tuple[KnownMember, int]]:
        """The other nodes, each as its first worker that is known, and how many workers are."""
        by_node: dict[str, list[KnownMember]] = {}
        for one in members:
            by_node.setdefault(node_name(one["name"]), []).append(one)
        by_node.pop(own, None)
        return [({**some[0], "name": name}, len(some)) for name, some in sorted(by_node.items())]

    async def _ask_drain(self, request: Request) -> Response:
        meaning = "It takes no mail and no copies any more, delivers what it has, and hands the rest over."
        return self._ask(request, "Drain {}?", meaning, "drain", "Drain {}")

    async def _ask_undrain(self, request: Request) -> Response:
        title, meaning = "Let {} take mail again?", "It takes mail and copies again."
        return self._ask(request, title, meaning, "undrain", "Take mail again")

    def _ask(
        self, request: Request, title: str, meaning: str, act: str, button: str, why: str = ""
    ) -> Response:
        session_of(request).require(Scope.OPERATE)
        whose = self._whose(request)
        name, to = short(whose.name), f"{whose.path}/{act}"
        shown = plain_act(title.format(name), meaning, to, whose.path, button.format(name))
        return self._frame.show(request, "act.html", {**shown, "why": why}, status=409 if why else 200)

    async def _drain(self, request: Request) -> Response:
        return await self._give(request, DRAIN, self._node.begin_drain)

    async def _undrain(self, request: Request) -> Response:
        return await self._give(request, UNDRAIN, self._node.end_drain)

    async def _give(self, request: Request, action: str, own: Callable[[str], Awaitable[object]]) -> Response:
        """Have the node do it, or say why it does not."""
        whose, session = self._whose(request), session_of(request)
        try:
            if whose.own:
                await own(session.operator)
            else:
                acts = self._node.services.node_acts
                await acts.give(whose.name, action, session.operator, session.scope)
        except ActRefused as refused:
            why = f"It is not done by all of it: {refused}."
            return self._ask(request, f"{action.capitalize()} {{}}?", "", action, "Ask again", why)
        return _done(whose)

    async def _ask_reload(self, request: Request) -> Response:
        session_of(request).require(Scope.OPERATE)
        return await self._reloading(request, request.query_params)

    async def _reload(self, request: Request) -> Response:
        given = await form_of(request)
        try:
            nodes = await self._reloaded(request, given, dry_run=False)
        except RequestRefused as refused:
            return await self._reloading(request, given, why=refused.sentence, status=refused.status)
        if wrong := [short(one["node"]) for one in nodes if not one.get("taken")]:
            why = f"Not taken by {', '.join(wrong)}: what is wrong stands above."
            return await self._reloading(request, given, why=why, status=409)
        return _done(self._whose(request))

    async def _reloading(
        self, request: Request, given: Mapping[str, str], *, why: str = "", status: int = 200
    ) -> Response:
        """What a reload would change, and what is wrong with it."""
        whose, every = self._whose(request), given.get("of") == "all"
        nodes = await self._reloaded(request, given, dry_run=True)
        name = "all nodes" if every else short(whose.name)
        shown = plain_act(
            f"Reload {name}?",
            _RELOADING,
            f"{whose.path}/reload",
            whose.path,
            f"Reload {name}",
            {"of": given.get("of", "")},
        )
        possible = any(one["answers"] and not one["wrong"] for one in nodes)
        shown |= {"files": _of_nodes(nodes), "possible": possible, "why": why}
        return self._frame.show(request, "reload.html", shown, status=status)

    async def _reloaded(self, request: Request, given: Mapping[str, str], *, dry_run: bool) -> list[Told]:
        """What each node says of its file. Raises RequestRefused."""
        reloading, operator, whose = (
            self._node.services.reloading,
            session_of(request).operator,
            self._whose(request),
        )
        try:
            if given.get("of") == "all":
                found = await reloading.everywhere(operator, dry_run=dry_run)
                return list(found["nodes"])
            if not whose.own:
                found = await reloading.at(whose.name, operator, dry_run=dry_run)
                return list(found["nodes"])
            own = await reloading.own(dry_run=dry_run)
        except ActRefused as refused:
            raise RequestRefused(503, str(refused)) from refused
        return [{"node": self._node.name, "answers": True, "why": "", **own}]

    async def _ask_announce(self, request: Request) -> Response:
        session_of(request).require(Scope.OPERATE)
        return self._frame.show(request, "announce.html", _announcement(""))

    async def _announce(self, request: Request) -> Response:
        signed = (await form_of(request)).get("signed", "")
        try:
            if not signed.strip():
                raise RequestRefused(400, "Paste the announcement that the authority made.")
            await self._node.services.announcing.take(signed.strip())
        except AnnouncementRefused as refused:
            why = f"It is not taken: {refused}."
            return self._frame.show(request, "announce.html", _announcement(signed, why), status=409)
        except RequestRefused as refused:
            shown = _announcement(signed, refused.sentence)
            return self._frame.show(request, "announce.html", shown, status=refused.status)
        return RedirectResponse(_PAGE, 303, headers=HEADERS)


def _announcement(signed: str, why: str = "") -> dict[str, Any]:
    """The form that takes an announcement."""
    shown = plain_act(
        "Announce a member?",
        "This node verifies the signature of the authority, takes the member, and tells the others.",
        "/node/announce",
        _PAGE,
        "Take the member",
    )
    return shown | {"given": {"signed": signed}, "why": why}


def _of_nodes(told: Sequence[Told]) -> list[Told]:
    """What each node says; what a later worker says is told beside it only if that is something else."""
    unnamed = {one["node"]: {**one, "node": "", "name": ""} for one in told}
    return [
        one
        for one in told
        if not is_later_worker(one["node"])
        or unnamed.get(node_of(ServerName(one["node"]))) != unnamed[one["node"]]
    ]


def _done(whose: _Whose) -> Response:
    return RedirectResponse(whose.path, 303, headers=HEADERS)
