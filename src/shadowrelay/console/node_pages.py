"""The page of the node that is looked at, and what is done to it: drain, reload, announce a member."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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
from shadowrelay.operator.acts import ActRefused
from shadowrelay.operator.announcing import AnnouncementRefused, MemberShown
from shadowrelay.shown.nodes import node_name

_PAGE = "/node"
_RELOADING = (
    "The settings file is read again, and is taken whole or refused whole. Certificates are read as well: "
    "new sessions use them, and sessions under way go on."
)


class NodePages:
    """This node: whether it takes mail, what it runs with, and the members that it knows."""

    def __init__(self, frame: PageFrame, node: RunningNode, asking: Asking) -> None:
        self._frame, self._node, self._asking = frame, node, asking

    def routes(self) -> list[Route]:
        look, act = self._frame.look, self._frame.act
        return [
            look(_PAGE, self._show),
            look("/node/drain", self._ask_drain),
            act("/node/drain", self._drain),
            look("/node/undrain", self._ask_undrain),
            act("/node/undrain", self._undrain),
            look("/node/reload", self._ask_reload),
            act("/node/reload", self._reload),
            look("/node/announce", self._ask_announce),
            act("/node/announce", self._announce),
        ]

    async def _show(self, request: Request) -> Response:
        entry, left = await self._asking.this_node()
        shown = {
            "nodes": [entry],
            "status": entry["status"],
            "left": left,
            "members": self._others(),
        }
        return self._frame.show(request, "node.html", shown)

    def _others(self) -> list[tuple[MemberShown, int]]:
        """The other nodes, each as its first worker that is known, and how many workers are."""
        by_node: dict[str, list[MemberShown]] = {}
        for one in self._node.services.announcing.members():
            by_node.setdefault(node_name(one.name), []).append(one)
        by_node.pop(node_name(self._node.name), None)
        return [
            (replace(some[0], name=ServerName(name)), len(some)) for name, some in sorted(by_node.items())
        ]

    async def _ask_drain(self, request: Request) -> Response:
        name = short(self._node.name)
        meaning = "It takes no mail and no copies any more, delivers what it has, and hands the rest over."
        return self._ask(request, f"Drain {name}?", meaning, "/node/drain", f"Drain {name}")

    async def _ask_undrain(self, request: Request) -> Response:
        title = f"Let {short(self._node.name)} take mail again?"
        return self._ask(
            request, title, "It takes mail and copies again.", "/node/undrain", "Take mail again"
        )

    def _ask(self, request: Request, title: str, meaning: str, action: str, button: str) -> Response:
        session_of(request).require(Scope.OPERATE)
        return self._frame.show(request, "act.html", plain_act(title, meaning, action, _PAGE, button))

    async def _drain(self, request: Request) -> Response:
        del request
        await self._node.begin_drain()
        return _done()

    async def _undrain(self, request: Request) -> Response:
        del request
        await self._node.end_drain()
        return _done()

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
        return _done()

    async def _reloading(
        self, request: Request, given: Mapping[str, str], *, why: str = "", status: int = 200
    ) -> Response:
        """What a reload would change, and what is wrong with it."""
        every = given.get("of") == "all"
        nodes = await self._reloaded(request, given, dry_run=True)
        whose = "all nodes" if every else short(self._node.name)
        shown = plain_act(
            f"Reload {whose}?",
            _RELOADING,
            "/node/reload",
            _PAGE,
            f"Reload {whose}",
            {"of": given.get("of", "")},
        )
        possible = any(one["answers"] and not one["wrong"] for one in nodes)
        shown |= {"files": nodes, "possible": possible, "why": why}
        return self._frame.show(request, "reload.html", shown, status=status)

    async def _reloaded(self, request: Request, given: Mapping[str, str], *, dry_run: bool) -> list[Told]:
        """What each node says of its file. Raises RequestRefused."""
        reloading = self._node.services.reloading
        try:
            if given.get("of") == "all":
                found = await reloading.everywhere(session_of(request).operator, dry_run=dry_run)
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
        return _done()


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


def _done() -> Response:
    return RedirectResponse(_PAGE, 303, headers=HEADERS)
