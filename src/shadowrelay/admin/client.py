"""Calls a node's admin API, for the commands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import BadStatusLine, HTTPException, RemoteDisconnected
from ssl import SSLError
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from shadowrelay.admin.guard import OPERATOR
from shadowrelay.shown.reading import read, untold

_Model = TypeVar("_Model")

MOST = 64 * 2**20
"""Most octets of an answer."""

_MOST_LINE = 16 * 2**20  # octets of a line of events
_MOST_SHOWN = 80  # characters shown of an unknown server's text
_EXPECTED = (
    "--admin or SHADOWRELAY_ADMIN takes the URL of a node's setting admin.listen, such as "
    "http://127.0.0.1:8025; senders and members use other ports"
)


def _is_of_a_node(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and " " not in url
        )
    except ValueError:  # a wrong host or port
        return False


class ApiError(Exception):
    """The node was not reached, or refused; the message says what to do. ``status``: that of its refusal."""

    def __init__(self, sentence: str, status: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One event of a node's stream (docs/reference/api.md). ``name``: '' for a tracking event."""

    id: str
    name: str
    data: Mapping[str, Any]


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: the token is only for the node that was named."""

    def redirect_request(self, *redirect: object) -> None:
        del redirect


@dataclass(frozen=True, slots=True)
class AdminClient:
    """One node's API. ``url`` is http://host:port or https://…, else ValueError; ``timeout`` in seconds.
    ``operator``: who acts, if the token does not tell.

    ``model`` says what the answer is (``shown``). A node of another version may have fewer fields, or more:
    what it lacks is not told (``shown.reading``), and is noted in ``untold``.
    """

    url: str
    token: str | None = None
    timeout: float = 15.0
    operator: str = ""
    untold: set[str] = field(default_factory=set, compare=False)

    def __post_init__(self) -> None:
        if not _is_of_a_node(self.url):
            raise ValueError(f"{self.url!r} is not a node's URL: give one such as http://127.0.0.1:8025")

    def get(self, model: type[_Model], *path: str, **parameters: str | int | None) -> _Model:
        """The answer at ``/api/v1/<path>``. Raises ApiError."""
        given = {key: value for key, value in parameters.items() if value is not None}
        return self._told(model, self._ask("GET", path, given))

    def post(self, model: type[_Model], *path: str, body: Mapping[str, Any] | None = None) -> _Model:
        """Change something. Raises ApiError."""
        return self._told(model, self._ask("POST", path, {}, body or {}))

    def delete(self, model: type[_Model], *path: str) -> _Model:
        """End something. Raises ApiError."""
        return self._told(model, self._ask("DELETE", path, {}))

    def _told(self, model: type[_Model], answer: dict[str, Any]) -> _Model:
        found = read(model, answer)
        self.untold.update(untold(found))
        return found

    def metrics(self) -> str:
        """The page of metrics, as text. Raises ApiError."""
        at = self._at("/metrics")
        with self._reporting(), self._opened(Request(at)) as answer:  # noqa: S310  the scheme was checked
            return str(answer.read(MOST).decode("utf-8"))

    def events(
        self, names: Sequence[str] = (), after: str = "", *, worker: int | None = None
    ) -> Iterator[NodeEvent]:
        """The events of the node as they happen, from after that id on; ends with the stream, as by a node
        that stops. ``worker``: those of that one alone. Raises ApiError.
        """
        query = urlencode({"event": ",".join(names)} if names else {})
        of = "" if worker is None else f"workers/{worker}/"
        request = Request(self._at(f"/api/v1/{of}events?{query}"))  # noqa: S310  the scheme was checked
        if after:
            request.add_header("Last-Event-ID", after)
        with self._reporting(), self._opened(request) as answer:
            fields: dict[str, str] = {}
            while octets := answer.readline(_MOST_LINE):
                name, _, value = octets.decode("utf-8").rstrip("\n").partition(":")
                if name:
                    fields[name] = value.removeprefix(" ")
                elif octets == b"\n":
                    if {"data", "id"} & fields.keys():
                        told = json.loads(fields.get("data", "{}"))
                        yield NodeEvent(fields.get("id", ""), fields.get("event", ""), told)
                    fields = {}

    def _at(self, path: str) -> str:
        return f"{self.url.rstrip('/')}{path}"

    def _opened(self, request: Request) -> Any:
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        # No proxy: the API is this machine's or a member's, and a proxy would see the token.
        opener = build_opener(ProxyHandler({}), _NoRedirect())
        return opener.open(request, timeout=self.timeout)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turn what goes wrong with a request into ApiError."""
        try:
            yield
        except HTTPError as error:
            with error:
                raise ApiError(self._refusal(error.code, error.read(MOST)), error.code) from error
        except (URLError, OSError, HTTPException, ValueError) as error:
            raise ApiError(f"{self._no_answer(error)} {_EXPECTED}") from error

    def _ask(
        self,
        method: str,
        path: tuple[str, ...],
        parameters: Mapping[str, object],
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        steps = "/".join(quote(step, safe="") for step in path)
        query = f"?{urlencode(parameters)}" if parameters else ""
        headers = {"Accept": "application/json"}
        if method != "GET":
            headers["Content-Type"] = "application/json"
            headers |= {OPERATOR: quote(self.operator)} if self.operator else {}
        request = Request(  # noqa: S310  the scheme was checked
            self._at(f"/api/v1/{steps}{query}"),
            data=None if body is None else json.dumps(body).encode(),
            headers=headers,
            method=method,
        )
        with self._reporting(), self._opened(request) as answer:
            return self._read(answer.read(MOST))

    def _no_answer(self, error: Exception) -> str:
        """A sentence on what answers instead of a node's admin API, as far as one can see."""
        reason = getattr(error, "reason", None) or error
        match reason:
            case RemoteDisconnected():
                return f"what listens at {self.url} closed the connection without an answer."
            case BadStatusLine(args=(line, *_)):
                who = "an SMTP server" if line.startswith(("220", "421", "554")) else "not an HTTP server"
                return f"what answers at {self.url} is {who}: it says {line.strip()[:_MOST_SHOWN]!r}."
            case SSLError():
                return f"no TLS session with what answers at {self.url}: {reason.reason or reason}."
            case _:
                return f"no answer from the node at {self.url}: {reason}. Is it running?"

    def _read(self, body: bytes) -> dict[str, Any]:
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ApiError(f"what answers at {self.url} is not a shadowrelay node. {_EXPECTED}")
        return found

    def _refusal(self, status: int, body: bytes) -> str:
        if status == 401:
            return f"the node at {self.url} requires a token: set SHADOWRELAY_ADMIN_TOKEN to its admin.token"
        try:
            return str(json.loads(body)["error"])
        except (ValueError, KeyError, TypeError):
            if status == 503:
                return (
                    f"{self.url} has more connections than it serves (HTTP status 503): try again in a while"
                )
            return (
                f"what answers at {self.url}, by HTTP status {status}, is not a shadowrelay node. {_EXPECTED}"
            )
