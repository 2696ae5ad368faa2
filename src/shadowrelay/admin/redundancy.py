"""Answers the routes about the switch of shadow redundancy (docs/reference/api.md)."""

from __future__ import annotations

from starlette.requests import Request

from shadowrelay.admin.body import body_of, operator_of, reason_of
from shadowrelay.admin.guard import RequestRefused
from shadowrelay.admin.node import RunningNode
from shadowrelay.shown.records import RedundancyEntry

_VALUES = {"on": True, "off": False}


class RedundancyRoutes:
    """The handlers: each takes a request and returns JSON. Raise RequestRefused."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node

    async def show(self, request: Request) -> RedundancyEntry:
        del request
        return await self._node.redundancy.show()

    async def turn(self, request: Request) -> RedundancyEntry:
        body = await body_of(request, {"value", "operator", "reason"})
        value = body.get("value")
        if value not in _VALUES:
            raise RequestRefused(400, "value has to be on or off")
        reason, operator = reason_of(body), operator_of(body)
        return await self._node.redundancy.turn(on=_VALUES[value], operator=operator, reason=reason)
