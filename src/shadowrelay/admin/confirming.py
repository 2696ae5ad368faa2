"""Answers the routes about the time (docs/reference/api.md)."""

from __future__ import annotations

from starlette.requests import Request

from shadowrelay.admin.body import body_of, operator_of, reason_of
from shadowrelay.admin.node import RunningNode
from shadowrelay.operator.confirming import confirm_time, time_shown
from shadowrelay.shown.status import TimeEntry


class TimeRoutes:
    """The handlers: each takes a request and returns JSON. Raise RequestRefused."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node

    async def show(self, request: Request) -> TimeEntry:
        del request
        return time_shown(self._node.name, self._node.clock)

    async def confirm(self, request: Request) -> TimeEntry:
        body = await body_of(request, {"operator", "reason"})
        reason, operator = reason_of(body), operator_of(body)
        node = self._node
        return await confirm_time(node.name, node.clock, node.save_time, operator, reason)
