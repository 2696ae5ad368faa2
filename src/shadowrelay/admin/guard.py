"""Who may use the admin API: the bearer token, and no page of a foreign site in an operator's browser."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

_SAME = frozenset({"same-origin", "none"})


class RequestRefused(Exception):
    """A request that is not answered as it wants: HTTP status, and a sentence for its sender."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


def check_token(headers: Mapping[str, str], token: str | None) -> None:
    """With a token set, require it (RFC 6750 2.1). Raises Refused 401."""
    if token is None:
        return
    scheme, _, given = headers.get("authorization", "").partition(" ")
    same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())
    if scheme.lower() != "bearer" or not same:
        raise RequestRefused(401, "this node wants a bearer token: its setting admin.token")


def check_host(headers: Mapping[str, str], name: str, token: str | None) -> None:
    """Without a token, a page of another site must not read what is here through a name of its own that it
    rebinds to our address. Raises Refused 403.
    """
    if token is None and not _unforgeable(_host(headers.get("host", "")), name):
        raise RequestRefused(403, "without a token, ask this node by its name or address")


def check_change(headers: Mapping[str, str], name: str, token: str | None) -> None:
    """A request that changes something must not be forged by a page of another site. Raises Refused.

    A browser sends JSON to another site only after asking for leave, which nobody gives here. With a name
    that was rebound to our address the page would count as ours, so that without a token a page is only
    believed if it came from an address, from localhost or from the node's own name.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if headers.get("sec-fetch-site", "none").lower() not in _SAME:
        raise RequestRefused(403, "requests from other sites may not change anything here")
    origin = headers.get("origin")
    if origin is not None:
        authority = origin.partition("://")[2].lower()
        if authority != headers.get("host", "").lower():
            raise RequestRefused(403, "requests from other sites may not change anything here")
        if token is None and not _unforgeable(_host(authority), name):
            raise RequestRefused(403, "without a token, open this page by the node's name or address")
    if kind != "application/json":
        raise RequestRefused(415, "send Content-Type: application/json")


def _unforgeable(host: str, name: str) -> bool:
    # A name without a dot is nobody's in the DNS of the world: only whoever runs this network gives it away.
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
