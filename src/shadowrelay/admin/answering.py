"""How the admin API answers: who may ask, and what becomes of errors (docs/reference/api.md)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shadowrelay.admin.guard import RequestRefused, check_change, check_host, check_token
from shadowrelay.admin.node import RunningNode
from shadowrelay.database.transport import DatabaseFailed

Handler = Callable[[Request], Awaitable[Response]]
JsonHandler = Callable[[Request], Awaitable[dict[str, Any]]]

_log = structlog.get_logger(__name__)
PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class Answers:
    """Makes routes of handlers: all of them require ``token``, if it is given."""

    def __init__(self, node: RunningNode, token: str | None) -> None:
        self.node = node
        self._token = token

    def read(self, path: str, handler: JsonHandler) -> Route:
        """The route of a handler that only looks, and returns JSON."""
        return Route(path, self.reads(_as_json(handler)))

    def change(self, path: str, handler: JsonHandler, method: str = "POST") -> Route:
        """The route of a handler that changes something, and returns JSON."""
        return Route(path, self.changes(_as_json(handler)), methods=[method])

    def reads(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            try:
                check_token(request.headers, self._token)
                if request.url.path.startswith("/api/"):
                    check_host(request.headers, self.node.name, self._token)
                return await handler(request)
            except RequestRefused as refused:
                return refusal(refused.status, refused.sentence, refused.details)
            except DatabaseFailed as failure:
                return refusal(503, f"this node cannot use its transport database: {failure}")
            except Exception:
                _log.exception("admin_request_failed", path=request.url.path)
                return refusal(500, "the request failed; the node's log says why")

        return guarded

    def changes(self, handler: Handler) -> Handler:
        async def checked(request: Request) -> Response:
            check_change(request.headers, self.node.name, self._token)
            if self.node.opening:
                raise RequestRefused(503, "this node is opening its database: try again in a moment")
            return await handler(request)

        return self.reads(checked)


def _as_json(handler: JsonHandler) -> Handler:
    async def answered(request: Request) -> Response:
        return json_response(await handler(request))

    return answered


class _Ascii(JSONResponse):
    """JSON in ASCII: addresses and replies may hold octets that are not UTF-8."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


def json_response(content: dict[str, Any], status: int = 200) -> Response:
    return _Ascii(content, status_code=status, headers=PRIVATE)


def refusal(status: int, sentence: str, details: Mapping[str, Any] | None = None) -> Response:
    headers = {"www-authenticate": "Bearer"} if status == 401 else {}
    return _Ascii({"error": sentence, **(details or {})}, status_code=status, headers={**PRIVATE, **headers})


async def no_route(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == 405:
        response = refusal(405, f"{request.url.path} does not take {request.method}")
        response.headers.update(error.headers or {})
        return response
    status = error.status_code if isinstance(error, HTTPException) else 500
    return refusal(status, f"there is nothing at {request.url.path}")
