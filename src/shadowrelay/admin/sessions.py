"""Begins and ends the sessions of browsers: a token becomes a cookie (docs/reference/api.md)."""

from __future__ import annotations

from urllib.parse import urlsplit

import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from shadowrelay.admin.access import Access, cookie_name
from shadowrelay.admin.answering import PRIVATE, Guarded, RefusalPage, json_response, refusal
from shadowrelay.admin.asked import LoginAsked, LogoutAsked
from shadowrelay.admin.body import body_of, form_of, maybe_text_of
from shadowrelay.admin.guard import (
    FORM,
    RequestRefused,
    check_change,
    check_csrf,
    check_host,
    check_origin,
    kind_of,
)
from shadowrelay.admin.openapi import DescribedRoute, Operation
from shadowrelay.shown.status import LoggedOutAnswer, SessionAnswer

LOGIN = Operation("Begin a session of a browser.", SessionAnswer, body=LoginAsked, open=True)
_MOST_NAME = 64  # characters of an operator's name
_log = structlog.get_logger(__name__)


class SessionRoutes:
    """``POST /login`` and ``POST /logout``, by a form or by JSON. ``refuse``: answers a wrong form."""

    def __init__(self, answers: Guarded, refuse: RefusalPage | None = None) -> None:
        self._answers = answers
        self._refuse = refuse or _plain

    def routes(self) -> list[Route]:
        return [
            DescribedRoute("/login", self.login, LOGIN, "POST"),
            DescribedRoute(
                "/logout",
                self.logout,
                Operation("End it.", LoggedOutAnswer, body=LogoutAsked, open=True),
                "POST",
            ),
        ]

    async def login(self, request: Request) -> Response:
        by_form = kind_of(request.headers) == FORM
        try:
            given = await self._given(request, {"token", "operator", "next"})
            name = (given.get("operator") or "").strip()
            if len(name) > _MOST_NAME or not name.isprintable():
                raise RequestRefused(400, f"operator has {_MOST_NAME} printable characters at most")
            session_id, session = self._access.login(given.get("token") or "", name)
        except RequestRefused as refused:
            _log.warning("login_refused", client=request.client and request.client.host, why=refused.sentence)
            return self._refuse(request, refused) if by_form else _plain(request, refused)
        _log.info("operator_logged_in", operator=session.operator, scope=str(session.scope))
        response = (
            _to(local_path(given.get("next") or "/"))
            if by_form
            else json_response(
                {"operator": session.operator, "scope": str(session.scope), "csrf": session.csrf}
            )
        )
        response.set_cookie(
            cookie_name(self._answers.name),
            session_id,
            httponly=True,
            samesite="strict",
            secure=_by_tls(request),
            path="/",
        )
        return response

    async def logout(self, request: Request) -> Response:
        by_form = kind_of(request.headers) == FORM
        cookie = cookie_name(self._answers.name)
        try:
            given = await self._given(request, {"csrf"})
            if session_id := request.cookies.get(cookie, ""):
                session = self._access.who("", session_id)
                given_csrf = given.get("csrf") or request.headers.get("x-csrf-token", "")
                check_csrf(given_csrf, session.csrf)
                self._access.logout(session_id)
                _log.info("operator_logged_out", operator=session.operator)
        except RequestRefused as refused:
            if refused.status != 401:  # a session that has ended is logged out
                return self._refuse(request, refused) if by_form else _plain(request, refused)
        response = _to("/login") if by_form else json_response({"logged_out": True})
        response.delete_cookie(cookie, path="/", httponly=True, samesite="strict", secure=_by_tls(request))
        return response

    async def _given(self, request: Request, known: set[str]) -> dict[str, str | None]:
        """The fields of a form or of a JSON object, if a page of this node or a program sends them."""
        name, anybody = self._answers.name, self._access.open
        check_host(request.headers, name, anybody=anybody)
        check_origin(request.headers, name, anybody=anybody)
        if kind_of(request.headers) == FORM:
            return dict(await form_of(request))
        check_change(request.headers, name, anybody=anybody)
        found = await body_of(request, known, names_operator=False)
        return {key: maybe_text_of(found, key) for key in known}

    @property
    def _access(self) -> Access:
        return self._answers.access


def local_path(text: str) -> str:
    """Where a browser goes on at this node; ``/`` for anything that might lead elsewhere."""
    parts = urlsplit(text)
    here = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if here and not (parts.scheme or parts.netloc) else "/"


def _to(path: str) -> Response:
    return RedirectResponse(path, 303, headers=PRIVATE)


def _by_tls(request: Request) -> bool:
    """Whether the browser speaks TLS, with a proxy before this node."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", "").lower())


def _plain(request: Request, refused: RequestRefused) -> Response:
    del request
    return refusal(refused.status, refused.sentence, refused.details)
