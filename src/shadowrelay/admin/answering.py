"""How the admin API answers: who may ask, and what becomes of errors (docs/reference/api.md)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from shadowrelay import __version__
from shadowrelay.admin.access import Access, Session, cookie_name
from shadowrelay.admin.asked import NothingAsked
from shadowrelay.admin.body import form_of, session_of
from shadowrelay.admin.front_session import handed_session
from shadowrelay.admin.guard import (
    OPERATOR,
    RequestRefused,
    check_change,
    check_csrf,
    check_host,
    check_origin,
)
from shadowrelay.admin.node import RunningNode
from shadowrelay.admin.openapi import DescribedRoute, Operation, document
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.operating import Scope
from shadowrelay.core.workers import node_of
from shadowrelay.database.transport import DatabaseFailed
from shadowrelay.shown.reading import UNKNOWN, is_told, with_nulls
from shadowrelay.wire.json_fields import MOST_TEXT, is_text

Handler = Callable[[Request], Awaitable[Response]]
JsonHandler = Callable[[Request], Awaitable[Mapping[str, object] | Response]]
RefusalPage = Callable[[Request, RequestRefused], Response]

_log = structlog.get_logger(__name__)
PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_MOST_TOLD = 500  # characters of a body in the log


class Guarded:
    """Makes routes of handlers: each requires who asks to have the scope of what is asked.

    In a handler ``session_of(request)`` says who asks. ``name``: what clients call the node.
    """

    def __init__(self, name: Callable[[], ServerName], access: Access) -> None:
        self._named = name
        self.access = access
        self._document: dict[str, Any] | None = None

    async def described(self, routes: Callable[[], Iterable[BaseRoute]]) -> dict[str, Any]:
        """The document of what the routes do, which never changes: it is made when it is first asked for."""
        if self._document is None:
            self._document = await asyncio.to_thread(document, __version__, routes())
        return self._document

    @property
    def name(self) -> ServerName:
        return self._named()

    @property
    def opening(self) -> bool:
        """Whether nothing may be changed yet."""
        return False

    def read(self, path: str, handler: JsonHandler, summary: str, answer: Any, **more: Any) -> Route:
        """The route of a handler that only looks, and returns ``answer``. ``more``: of its Operation."""
        return DescribedRoute(path, self.reads(_as_json(handler)), Operation(summary, answer, **more))

    def change(
        self,
        path: str,
        handler: JsonHandler,
        summary: str,
        answer: Any,
        body: Any = NothingAsked,
        *,
        method: str = "POST",
        statuses: tuple[int, ...] = (),
    ) -> Route:
        """The route of a handler that changes something, takes that body, and returns ``answer``."""
        told = Operation(summary, answer, body=body, statuses=statuses)
        return DescribedRoute(path, self.changes(_as_json(handler)), told, method)

    def reads(self, handler: Handler) -> Handler:
        """Guard a handler of the API that only looks."""

        async def looked(request: Request) -> Response:
            self._identify(request).require(Scope.READ)
            if request.url.path.startswith("/api/"):
                check_host(request.headers, self.name, anybody=self.access.open)
            return await handler(request)

        return self._answered(looked, _plain_refusal)

    def changes(self, handler: Handler) -> Handler:
        """Guard a handler of the API that changes something. What was asked is in the log, done or not."""

        async def checked(request: Request) -> Response:
            session = self._identify(request)
            if request.url.path.startswith("/api/"):
                check_host(request.headers, self.name, anybody=self.access.open)
            check_change(request.headers, self.name, anybody=self.access.open)
            if session.cookie:
                check_csrf(request.headers.get("x-csrf-token", ""), session.csrf)
            return await self._operate(request, handler)

        return self._answered(checked, _plain_refusal)

    def pages(self, handler: Handler, refuse: RefusalPage) -> Handler:
        """Guard a page of the console that only looks; ``refuse`` makes the page of a refusal."""

        async def looked(request: Request) -> Response:
            check_host(request.headers, self.name, anybody=self.access.open)
            self._identify(request).require(Scope.READ)
            return await handler(request)

        return self._answered(looked, refuse)

    def forms(self, handler: Handler, refuse: RefusalPage) -> Handler:
        """Guard what a form of the console changes, as ``changes`` does. ``form_of(request)`` has its fields.

        The form carries ``csrf``, that of its session.
        """

        async def checked(request: Request) -> Response:
            check_host(request.headers, self.name, anybody=self.access.open)
            check_origin(request.headers, self.name, anybody=self.access.open)
            session = self._identify(request)
            check_csrf((await form_of(request)).get("csrf", ""), session.csrf)
            return await self._operate(request, handler)

        return self._answered(checked, refuse)

    def _identify(self, request: Request) -> Session:
        """Find out who asks, for ``session_of``. Raises RequestRefused 401."""
        session = handed_session(request)
        if session is None or not (session.cookie or self.access.open):
            session_id = request.cookies.get(cookie_name(self.name), "")
            session = self.access.who(request.headers.get("authorization", ""), session_id)
        session = _called(session, request.headers.get(OPERATOR, ""))
        request.state.session = session
        return session

    async def _operate(self, request: Request, handler: Handler) -> Response:
        """The one place where an operator changes something: each request leaves a line in the log."""
        result, status = "failed", 500
        try:
            session_of(request).require(Scope.OPERATE)
            if self.opening:
                raise RequestRefused(503, "this node is opening its database: try again in a moment")
            response = await handler(request)
            result, status = "done", response.status_code
        except RequestRefused as refused:
            result, status = refused.sentence, refused.status
            raise
        finally:
            _note(request, status, result)
        return response

    def _answered(self, handler: Handler, refuse: RefusalPage) -> Handler:
        async def guarded(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestRefused as refused:
                return refuse(request, refused)
            except DatabaseFailed as failure:
                return refuse(
                    request, RequestRefused(503, f"this node cannot use its transport database: {failure}")
                )
            except Exception:
                _log.exception("admin_request_failed", path=request.url.path)
                return refuse(request, RequestRefused(500, "the request failed; the node's log says why"))

        return guarded


def _called(session: Session, operator: str) -> Session:
    """The session with the name in that header, if its token is no person's. Raises RequestRefused 400."""
    if not operator or not session.shared or session.cookie:
        return session
    name = unquote(operator)
    if not is_text(name) or not name.isprintable() or len(name) > MOST_TEXT:
        raise RequestRefused(400, f"{OPERATOR} is a name of {MOST_TEXT} characters at most, percent-encoded")
    return replace(session, operator=name)


class Answers(Guarded):
    """The same, for the handlers of one worker."""

    def __init__(self, node: RunningNode, access: Access) -> None:
        super().__init__(lambda: node_of(node.name), access)
        self.node = node

    @property
    def opening(self) -> bool:
        return self.node.opening


def _note(request: Request, status: int, result: str) -> None:
    """Log who asked for which change, why, and what became of it."""
    session = session_of(request)
    asked = dict(getattr(request.state, "body", None) or getattr(request.state, "form", None) or {})
    asked.pop("csrf", None)
    reason, operator = asked.pop("reason", ""), asked.pop("operator", None)
    _log.info(
        "operator_asked",
        operator=session.operator_named(operator if isinstance(operator, str) else None),
        scope=str(session.scope),
        method=request.method,
        path=request.url.path,
        what=json.dumps(asked)[:_MOST_TOLD] if asked else "",
        reason=str(reason)[:_MOST_TOLD],
        status=status,
        result=result,
    )


def _as_json(handler: JsonHandler) -> Handler:
    async def answered(request: Request) -> Response:
        found = await handler(request)
        return found if isinstance(found, Response) else json_response(found)

    return answered


class _Ascii(JSONResponse):
    """JSON in ASCII: addresses and replies may hold octets that are not UTF-8. What a worker or a member does
    not tell is null.
    """

    def render(self, content: Any) -> bytes:
        told = json.dumps(content, separators=(",", ":"), default=_null)
        if _UNTOLD_TEXT in told:  # a text that is not told is a text to json, which asks ``_null`` of others
            told = json.dumps(with_nulls(content), separators=(",", ":"))
        return told.encode("ascii")


_UNTOLD_TEXT = json.dumps(UNKNOWN)


def _null(value: object) -> None:
    if is_told(value):
        raise TypeError(f"{type(value).__name__} is no JSON")


def json_response(content: Mapping[str, object], status: int = 200) -> Response:
    return _Ascii(content, status_code=status, headers=PRIVATE)


def refusal(status: int, sentence: str, details: Mapping[str, Any] | None = None) -> Response:
    headers = {"www-authenticate": "Bearer"} if status == 401 else {}
    return _Ascii({"error": sentence, **(details or {})}, status_code=status, headers={**PRIVATE, **headers})


def _plain_refusal(request: Request, refused: RequestRefused) -> Response:
    del request
    return refusal(refused.status, refused.sentence, refused.details)


async def no_route(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == 405:
        response = refusal(405, f"{request.url.path} does not take {request.method}")
        response.headers.update(error.headers or {})
        return response
    status = error.status_code if isinstance(error, HTTPException) else 500
    return refusal(status, f"there is nothing at {request.url.path}")
