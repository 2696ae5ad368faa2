"""Answers the routes by which settings are read again, and members join (docs/reference/api.md)."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from shadowrelay.admin.body import body_of, operator_of, text_of
from shadowrelay.admin.guard import RequestRefused
from shadowrelay.admin.node import RunningNode
from shadowrelay.operator.acts import ActRefused
from shadowrelay.operator.announcing import AnnouncementRefused
from shadowrelay.shown.nodes import ReloadsAnswer
from shadowrelay.shown.records import AnnouncedAnswer, MemberEntry, MembersAnswer
from shadowrelay.shown.rendering import rendered
from shadowrelay.shown.status import ReloadEntry


class ReloadRoutes:
    """The handlers: each takes a request and returns JSON. Raise RequestRefused."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node

    async def reload(self, request: Request) -> ReloadEntry | ReloadsAnswer:
        """Read the settings of this node again, or with ``cluster`` of every node."""
        body = await body_of(request, {"dry_run", "cluster", "operator"})
        dry_run, cluster = _flag(body, "dry_run"), _flag(body, "cluster")
        reloading = self._node.services.reloading
        try:
            if cluster:
                return await reloading.everywhere(operator_of(body), dry_run=dry_run)
            return await reloading.own(dry_run=dry_run)
        except ActRefused as refused:
            raise RequestRefused(503, str(refused)) from refused


class MemberRoutes:
    """The same, about members."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node

    async def list(self, request: Request) -> MembersAnswer:
        """The members of this node, and where it has each from."""
        del request
        members = self._node.services.announcing.members()
        return {"name": self._node.name, "members": [rendered(MemberEntry, one) for one in members]}

    async def announce(self, request: Request) -> AnnouncedAnswer:
        """Take a member that the authority announces."""
        body = await body_of(request, {"signed"})
        try:
            name, new = await self._node.services.announcing.take(text_of(body, "signed"))
        except AnnouncementRefused as refused:
            raise RequestRefused(409, str(refused)) from refused
        return {"name": name, "new": new}


def _flag(body: Any, name: str) -> bool:
    found = body.get(name, False)
    if not isinstance(found, bool):
        raise RequestRefused(400, f"{name} has to be true or false")
    return found
