"""The part of the API that shows all nodes (docs/reference/api.md)."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from shadowrelay.admin.node import RunningNode
from shadowrelay.operator.view import View


class ClusterRoutes:
    """Each answer has an entry for every node, also for one that does not answer."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node

    @property
    def _view(self) -> View:
        return self._node.hand.view

    async def status(self, request: Request) -> dict[str, Any]:
        del request
        return await self._view.status()

    async def queues(self, request: Request) -> dict[str, Any]:
        del request
        return await self._view.queues()

    async def queue(self, request: Request) -> dict[str, Any]:
        return await self._view.queue(request.path_params["hop"])
