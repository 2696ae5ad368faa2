"""Answers the routes about redirects (docs/reference/api.md)."""

from __future__ import annotations

from starlette.requests import Request

from shadowrelay.admin.body import session_of
from shadowrelay.admin.guard import RequestRefused
from shadowrelay.admin.node import RunningNode
from shadowrelay.core.identifiers import ServerName
from shadowrelay.operator.redirect import RedirectProgress, RedirectRefused
from shadowrelay.shown.rendering import rendered
from shadowrelay.shown.status import RedirectEntry


class RedirectRoutes:
    """The handlers: each takes a request and returns JSON. Raise RequestRefused."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node

    async def show(self, request: Request) -> RedirectEntry:
        del request
        return _told(self._node.name, await self._node.redirecting.progress())

    async def begin(self, request: Request) -> RedirectEntry:
        to = ServerName(request.path_params["name"].lower())
        try:
            begun = await self._node.redirecting.begin(to, session_of(request).operator)
        except RedirectRefused as refused:
            raise RequestRefused(409, str(refused)) from refused
        return _told(self._node.name, begun)

    async def end(self, request: Request) -> RedirectEntry:
        operator = session_of(request).operator
        return _told(self._node.name, await self._node.redirecting.end(operator))


def _told(name: ServerName, seen: RedirectProgress | None) -> RedirectEntry:
    if seen is None:
        return {"name": name, "running": False, "to": None}
    return rendered(RedirectEntry, seen, name=name, running=not seen.ended, ended=seen.ended or None)
