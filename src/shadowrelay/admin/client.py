"""Asks a node's admin API, for the commands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

MOST = 64 * 2**20
"""Octets of an answer that are read."""


class ApiError(Exception):
    """The node was not reached, or refused; the message says what to do."""


class _NoRedirect(HTTPRedirectHandler):
    """The token is for the node that was named, and for nobody it points to."""

    def redirect_request(self, *redirect: object) -> None:
        del redirect


@dataclass(frozen=True, slots=True)
class Client:
    """One node's API. ``url`` is http://host:port or https://…; ``timeout`` is in seconds."""

    url: str
    token: str | None = None
    timeout: float = 15.0

    def get(self, *path: str, **parameters: str | int | None) -> dict[str, Any]:
        """The JSON object at ``/api/v1/<path>``. Raises ApiError."""
        given = {key: value for key, value in parameters.items() if value is not None}
        return self._ask("GET", path, given)

    def post(self, *path: str) -> dict[str, Any]:
        """Change something. Raises ApiError."""
        return self._ask("POST", path, {})

    def _ask(self, method: str, path: tuple[str, ...], parameters: Mapping[str, object]) -> dict[str, Any]:
        steps = "/".join(quote(step, safe="") for step in path)
        query = f"?{urlencode(parameters)}" if parameters else ""
        headers = {"Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if method == "POST":
            headers["Content-Type"] = "application/json"
        if urlsplit(self.url).scheme not in {"http", "https"} or not urlsplit(self.url).netloc:
            raise ApiError(f"{self.url!r} is not a node's URL: give one such as http://127.0.0.1:8025")
        request = Request(  # noqa: S310  the scheme was checked
            f"{self.url.rstrip('/')}/api/v1/{steps}{query}",
            data=b"{}" if method == "POST" else None,
            headers=headers,
            method=method,
        )
        # No proxy: the API is this machine's or a member's, and a proxy would see the token.
        opener = build_opener(ProxyHandler({}), _NoRedirect())
        try:
            with opener.open(request, timeout=self.timeout) as answer:
                return self._read(answer.read(MOST))
        except HTTPError as error:
            with error:
                raise ApiError(self._refusal(error.code, error.read(MOST))) from error
        except (URLError, OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise ApiError(
                f"no answer from the node at {self.url}: {reason}. Is it running? Another node's URL goes "
                "into --admin or SHADOWRELAY_ADMIN (its setting is admin.listen)"
            ) from error

    def _read(self, body: bytes) -> dict[str, Any]:
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ApiError(f"what answers at {self.url} is not a shadowrelay node")
        return found

    def _refusal(self, status: int, body: bytes) -> str:
        if status == 401:
            return f"the node at {self.url} wants a token: set SHADOWRELAY_ADMIN_TOKEN to its admin.token"
        try:
            return str(json.loads(body)["error"])
        except (ValueError, KeyError, TypeError):
            return f"the node at {self.url} answered with HTTP status {status}"
