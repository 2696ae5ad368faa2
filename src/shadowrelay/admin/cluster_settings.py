"""Answers the routes about settings of all members (docs/reference/api.md)."""

from __future__ import annotations

from starlette.requests import Request

from shadowrelay.admin.body import body_of, operator_of, reason_of, text_of
from shadowrelay.admin.guard import RequestRefused
from shadowrelay.admin.node import RunningNode
from shadowrelay.operator.resubmit_estimate import CannotDo
from shadowrelay.shown.records import SettingEntry, SettingsAnswer


class SettingsRoutes:
    """The handlers: each takes a request and returns JSON. Raise RequestRefused."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node

    async def show(self, request: Request) -> SettingsAnswer:
        del request
        return await self._node.cluster_settings.show()

    async def change(self, request: Request) -> SettingEntry:
        body = await body_of(request, {"key", "value", "operator", "reason"})
        key, reason, operator = text_of(body, "key"), reason_of(body), operator_of(body)
        if "value" not in body:
            raise RequestRefused(400, "value has to be there: null lets the settings files count again")
        settings = self._node.cluster_settings
        try:
            if body["value"] is None:
                return await settings.unset(key, operator, reason)
            return await settings.set(key, body["value"], operator, reason)
        except ValueError as error:
            raise RequestRefused(400, str(error)) from error
        except CannotDo as error:
            raise RequestRefused(409, str(error)) from error
