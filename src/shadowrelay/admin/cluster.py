"""The part of the API that shows all nodes (docs/reference/api.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from shadowrelay.admin.guard import NO_SUCH_QUEUE, RequestRefused, page_limit
from shadowrelay.admin.node import RunningNode
from shadowrelay.core.values import replace
from shadowrelay.operator.acts import ActRefused
from shadowrelay.operator.listing import ListWanted
from shadowrelay.operator.queue_names import NoSuchQueue
from shadowrelay.operator.view import NoSuchMessage, View
from shadowrelay.shown.messages import FoundAnswer, ListAnswer, MessageAnswer, TraceAnswer
from shadowrelay.shown.nodes import HopAnswer, QueuesAnswer, RatesAnswer, StatusesAnswer, TlsAnswer

_WHOLE = 36  # characters of an id


class ClusterRoutes:
    """Each answer has an entry for every node, also for one that does not answer."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node

    @property
    def _view(self) -> View:
        return self._node.services.view

    async def status(self, request: Request) -> StatusesAnswer:
        del request
        return await self._view.status()

    async def queues(self, request: Request) -> QueuesAnswer:
        del request
        return await self._view.queues()

    async def rates(self, request: Request) -> RatesAnswer:
        del request
        return await self._view.rates()

    async def tls(self, request: Request) -> TlsAnswer:
        del request
        return await self._view.tls()

    async def queue(self, request: Request) -> HopAnswer:
        try:
            name = await self._node.services.queue_names.named(request.path_params["hop"])
            return await self._view.queue(name)
        except NoSuchQueue as unknown:
            raise RequestRefused(NO_SUCH_QUEUE, str(unknown)) from None
        except ActRefused as refused:
            raise RequestRefused(400, str(refused)) from None

    async def find(self, request: Request) -> FoundAnswer:
        given = request.query_params
        if unknown := sorted(set(given) - {"q", "after", "limit", "here"}):
            raise RequestRefused(400, f"unknown: {', '.join(unknown)}; known are q, after, limit and here")
        try:
            return await self._view.find(
                given.get("q", ""),
                given.get("after", "").lower(),
                page_limit(given, 50),
                here=_here(given),
            )
        except ActRefused as refused:
            raise RequestRefused(400, str(refused)) from None

    async def message(self, request: Request) -> MessageAnswer:
        try:
            return await self._view.message(request.path_params["id"].lower())
        except NoSuchMessage as unknown:
            raise RequestRefused(404, str(unknown)) from None
        except ActRefused as refused:
            raise RequestRefused(400, str(refused)) from None

    async def listed(self, request: Request) -> ListAnswer:
        given = request.query_params
        known = {"state", "sort", "after", "before", "limit"}
        if unknown := sorted(set(given) - known):
            raise RequestRefused(400, f"unknown: {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        texts: dict[str, Any] = {name: given[name] for name in known - {"limit"} if given.get(name)}
        try:
            return await self._view.listed(replace(ListWanted(limit=page_limit(given, 50)), **texts))
        except ActRefused as refused:
            raise RequestRefused(400, str(refused)) from None

    async def trace(self, request: Request) -> TraceAnswer:
        """The id may be a beginning, if one message alone begins so, anywhere."""
        given = request.query_params
        if unknown := sorted(set(given) - {"after", "here"}):
            raise RequestRefused(400, f"unknown parameter {', '.join(unknown)}; known are after and here")
        try:
            return await self._view.trace(
                await self._whole(request.path_params["id"].lower()),
                given.get("after", ""),
                here=_here(given),
            )
        except ActRefused as refused:
            raise RequestRefused(400, str(refused)) from None

    async def _whole(self, wanted: str) -> str:
        if len(wanted) == _WHOLE:
            return wanted
        like = [one["id"] for one in (await self._view.find(f"id:{wanted}", limit=5))["messages"]]
        if len(like) > 1:
            raise RequestRefused(400, f"several messages begin with {wanted}: {', '.join(like)}")
        if not like:
            raise RequestRefused(404, f"no node knows a message {wanted} now; its log may: give the whole id")
        return str(like[0])


def _here(given: Mapping[str, str]) -> bool:
    """Is this node alone to be looked at?"""
    if given.get("here", "false") not in {"true", "false"}:
        raise RequestRefused(400, "here is true or false")
    return given.get("here") == "true"
