"""Guards the admin API: refuses what a page of another site caused in a browser."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"

_SAME = frozenset({"same-origin", "none"})


class RequestRefused(Exception):
    """A request is refused, with an HTTP status, a sentence for the client, and what a program may want to
    know of the reason.
    """

    def __init__(self, status: int, sentence: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.details = dict(details or {})


OPERATOR = "X-Shadowrelay-Operator"
"""The header in which a request says who acts, percent-encoded; it counts where a token does not tell."""

NO_SUCH_QUEUE = 422
"""The status of a refusal because a name is no queue's: the command ends with exit status 2 then."""

MOST_PER_PAGE = 500


def page_limit(given: Mapping[str, str], default: int = 100) -> int:
    """How many messages a page is to have: the parameter ``limit``. Raises RequestRefused 400."""
    limit = given.get("limit", str(default))
    if not (limit.isascii() and limit.isdigit() and len(limit) < 5 and 1 <= int(limit) <= MOST_PER_PAGE):
        raise RequestRefused(400, f"limit is a number from 1 to {MOST_PER_PAGE}")
    return int(limit)


def check_token(headers: Mapping[str, str], token: str | None) -> None:
    """Require the token, if one is set (RFC 6750 2.1). Raises RequestRefused 401."""
    if token is None:
        return
    scheme, _, given = headers.get("authorization", "").partition(" ")
    same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())
    if scheme.lower() != "bearer" or not same:
        raise RequestRefused(401, "this node requires a bearer token: its setting admin.token")


def check_host(headers: Mapping[str, str], name: str, *, anybody: bool) -> None:
    """Without a token (``anybody``), keep a page of another site from reading this API by rebinding its own
    name to our address. Raises RequestRefused 403.
    """
    if anybody and not _unforgeable(_host(headers.get("host", "")), name):
        raise RequestRefused(403, "without a token, ask this node by its name or address")


def check_change(headers: Mapping[str, str], name: str, *, anybody: bool) -> None:
    """Keep a page of another site from forging a request that changes something. Raises RequestRefused.

    A browser sends JSON to another site only after asking for permission, which this API never gives.
    """
    check_origin(headers, name, anybody=anybody)
    if kind_of(headers) != JSON:
        raise RequestRefused(415, f"send Content-Type: {JSON}")


def check_csrf(given: str, wanted: str) -> None:
    """Require the token of the session against forgery. Raises RequestRefused 403."""
    same = hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
    if not (wanted and same):
        raise RequestRefused(403, "this page is from another session: load it again, and send the form again")


def kind_of(headers: Mapping[str, str]) -> str:
    """The media type of a request's body."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def check_origin(headers: Mapping[str, str], name: str, *, anybody: bool) -> None:
    """Refuse a request that a page of another site caused. Raises RequestRefused 403.

    A page whose name was rebound to our address would count as ours. So, without a token (``anybody``), a
    page must come from an address, from localhost or from the node's own name.
    """
    if headers.get("sec-fetch-site", "none").lower() not in _SAME:
        raise RequestRefused(403, "requests from other sites may not change anything here")
    origin = headers.get("origin")
    if origin is not None:
        authority = origin.partition("://")[2].lower()
        if authority != headers.get("host", "").lower():
            raise RequestRefused(403, "requests from other sites may not change anything here")
        if anybody and not _unforgeable(_host(authority), name):
            raise RequestRefused(403, "without a token, open this page by the node's name or address")


def _unforgeable(host: str, name: str) -> bool:
    # Public DNS has no names without a dot: only the administrator of this network can give one away.
    if host == name or (host and "." not in host) or host.endswith(".localhost"):
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _host(authority: str) -> str:
    try:
        return (urlsplit(f"//{authority}").hostname or "").lower()
    except ValueError:
        return ""
