"""Answers the routes about the time (docs/reference/api.md)."""

from __future__ import annotations

from starlette.requests import Request

from shadowrelay.admin.body import body_of, operator_of, text_of
from shadowrelay.admin.guard import RequestRefused
from shadowrelay.admin.node import RunningNode
from shadowrelay.operator.confirming import confirm_time, time_shown
from shadowrelay.shown.status import TimeEntry
from shadowrelay.wire.json_fields import MOST_TEXT


class TimeRoutes:
    """The handlers: each takes a request and returns JSON. Raise RequestRefused."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node

    async def show(self, request: Request) -> TimeEntry:
        del request
        return time_shown(self._node.name, self._node.clock)

    async def confirm(self, request: Request) -> TimeEntry:
        body = await body_of(request, {"operator", "reason"})
        reason, operator = text_of(body, "reason"), operator_of(body)
        if max(len(reason), len(operator)) > MOST_TEXT:
            raise RequestRefused(400, f"reason and operator have {MOST_TEXT} characters at most")
        node = self._node
        return await confirm_time(node.name, node.clock, node.save_time, operator, reason)
