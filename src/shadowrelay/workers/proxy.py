"""Passes requests of the node's admin address on to its workers, over their Unix sockets.

A request goes to the lowest worker that serves. When that one is gone, the next one is asked; a change is
asked of a second worker only if the first one cannot have heard of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import httpx
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from shadowrelay.admin.front_session import HEADER
from shadowrelay.admin.guard import RequestRefused
from shadowrelay.admin.server import LIVE
from shadowrelay.admin.streaming import until_gone
from shadowrelay.workers.worker import WorkerState

T = TypeVar("T")

CONNECT = 2.0
"""Seconds for a worker to take a connection."""

PATIENCE = 60.0
"""Seconds that a worker may be silent in an answer. An event stream has a heartbeat after 15."""

QUICK = 2.0
"""Seconds for a worker that starts, and for all that a person or a probe waits for."""

GLANCE = 0.5
"""Seconds after which a worker that has not answered a look is asked for a sign of life."""

SIGN = 1.5
"""Seconds for a sign of life: a worker that works on a look gives one, a frozen one does not."""

KNOWN = 0.2
"""Seconds for both, of a worker that was silent."""

SLOW = 60.0
"""Seconds in which a client has to take what it is sent."""

ASIDE = 30.0
"""Seconds for which a worker that was silent is asked last."""

MOST = 64 * 2**20
"""Octets of an answer that is read whole."""

_ORDER = {"serving": 0, "leaving": 1, "starting": 2}  # of those that have a process
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade "
    b"expect".split()
)
_NOT_ASKED = _HOP_BY_HOP | {b"content-length", HEADER}
_NOT_ANSWERED = _HOP_BY_HOP | {b"date"}  # the server of the front gives a date


class WorkerGone(Exception):
    """A worker did not answer. ``heard``: it may have done what was asked."""

    def __init__(self, sentence: str, *, heard: bool) -> None:
        super().__init__(sentence)
        self.heard = heard


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request for a worker. ``target``: path and query, as the client sent them."""

    method: str
    target: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes = b""

    @property
    def changes(self) -> bool:
        return self.method not in {"GET", "HEAD"}


def call_of(request: Request, body: bytes, session: bytes | None = None, target: bytes = b"") -> Call:
    """The request as a worker is to see it. ``session``: who asks, if a session of the front says so."""
    query: bytes = request.scope.get("query_string", b"")
    path: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    headers = [(key, value) for key, value in request.headers.raw if key not in _NOT_ASKED]
    if session is not None:
        headers.append((HEADER, session))
    whole = target or (path + b"?" + query if query else path)
    return Call(method=request.method, target=whole, headers=headers, body=body)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReply:
    """What one worker answered, read whole. ``why`` it did not, if it did not: then ``status`` is 503."""

    worker: WorkerState
    status: int
    headers: Mapping[str, str]
    body: bytes
    why: str = ""

    @property
    def done(self) -> bool:
        return 200 <= self.status < 300

    @property
    def json(self) -> dict[str, Any]:
        """The answer as a JSON object; empty if it is none."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def sentence(self) -> str:
        """Why it is not done."""
        return self.why or str(self.json.get("error", f"it answers with HTTP status {self.status}"))


class WorkerProxy:
    """Asks the workers of one node. ``workers``: how they are now."""

    def __init__(
        self, workers: Callable[[], Sequence[WorkerState]], clock: Callable[[], float] = monotonic
    ) -> None:
        self.workers = workers
        self._clock = clock
        self._ways: dict[Path, httpx.AsyncHTTPTransport] = {}
        self._silent: dict[int, float] = {}  # until when a worker is asked last

    async def close(self) -> None:
        for way in self._ways.values():
            await way.aclose()

    def order(self) -> list[WorkerState]:
        """The workers that may answer, the best first."""
        there = [one for one in self.workers() if one.state in _ORDER]
        return sorted(there, key=lambda one: (self._was_silent(one), _ORDER[one.state], one.number))

    def _was_silent(self, worker: WorkerState) -> bool:
        return self._silent.get(worker.number, 0.0) > self._clock()

    def numbered(self, number: int) -> WorkerState:
        """Raises RequestRefused 404."""
        for one in self.workers():
            if one.number == number:
                return one
        raise RequestRefused(404, f"this node has no worker {number}")

    async def to_one(self, call: Call) -> Response:
        """The answer of the first worker that gives one. Raises RequestRefused 503."""
        why = []
        for worker in self.order():
            try:
                asked = self.ask(worker, call, PATIENCE)
                return Passed(await (asked if call.changes else self._while_alive(worker, asked)), worker)
            except WorkerGone as gone:
                if gone.heard and call.changes:
                    raise RequestRefused(
                        503, f"{gone}. Whether it did what was asked is not known: look before you ask again"
                    ) from None
                why.append(str(gone))
        raise RequestRefused(503, self.nobody(why))

    async def to(self, worker: WorkerState, call: Call) -> Response:
        """The answer of that worker. Raises RequestRefused 503."""
        try:
            return Passed(await self.ask(worker, call, PATIENCE), worker)
        except WorkerGone as gone:
            raise RequestRefused(503, str(gone)) from None

    async def to_all(self, call: Call, within: float = PATIENCE) -> list[WorkerReply]:
        """What each worker of the node answers, by their numbers: those that have ended are left out. A look
        waits for a worker that starts no longer than QUICK.
        """

        def patience(worker: WorkerState) -> float:
            return min(QUICK, within) if worker.state == "starting" and not call.changes else within

        asked = [one for one in self.workers() if one.state != "ended"]
        return list(await asyncio.gather(*(self.read(one, call, patience(one)) for one in asked)))

    async def read(self, worker: WorkerState, call: Call, within: float) -> WorkerReply:
        """The answer of a worker, read whole; within that many seconds. A look waits for a worker as long as
        that gives signs of life.
        """
        asked = self._read(worker, call, within)
        if call.changes:
            return await asked
        try:
            return await self._while_alive(worker, asked)
        except WorkerGone as gone:
            return WorkerReply(worker=worker, status=503, headers={}, body=b"", why=str(gone))

    async def _while_alive(self, worker: WorkerState, asked: Coroutine[Any, Any, T]) -> T:
        """What is asked of a worker. Raises WorkerGone as soon as the worker gives no sign of life."""
        task = asyncio.ensure_future(asked)
        known = self._was_silent(worker)
        try:
            done, _ = await asyncio.wait({task}, timeout=KNOWN if known else GLANCE)
            while not done:
                within = KNOWN if known else SIGN
                sign = asyncio.ensure_future(self._lives(worker, within))
                both: set[asyncio.Future[Any]] = {task, sign}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    sign.cancel()
                    break
                if not sign.result():
                    self._ask_last(worker)
                    raise WorkerGone(f"{_called(worker)} did not answer within {within:g} s", heard=True)
                known = False
                done, _ = await asyncio.wait({task}, timeout=QUICK)
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _lives(self, worker: WorkerState, within: float) -> bool:
        sign = await self._read(worker, Call(method="GET", target=LIVE.encode(), headers=()), within)
        if sign.body:
            self._silent.pop(worker.number, None)
        return bool(sign.body)

    async def _read(self, worker: WorkerState, call: Call, within: float) -> WorkerReply:
        try:
            async with asyncio.timeout(within):
                answer = await self.ask(worker, call, within)
                try:
                    body = await _whole(answer)
                finally:
                    await answer.aclose()
        except WorkerGone as gone:
            return WorkerReply(worker=worker, status=503, headers={}, body=b"", why=str(gone))
        except (TimeoutError, httpx.HTTPError) as error:
            why = f"{_called(worker)} ended while it was asked"
            if isinstance(error, TimeoutError):
                self._ask_last(worker)
                why = f"{_called(worker)} did not answer within {within:g} s"
            return WorkerReply(worker=worker, status=503, headers={}, body=b"", why=why)
        return WorkerReply(worker=worker, status=answer.status_code, headers=answer.headers, body=body)

    def nobody(self, why: Sequence[str] = ()) -> str:
        """A sentence: no worker answers."""
        states = [f"{_called(one)} is {one.state}{_because(one)}" for one in self.workers()]
        told = "; ".join([*why, *states]) or "it is starting"
        return f"no worker of this node answers now: {told}. GET /api/v1/workers says more; try again"

    async def ask(self, worker: WorkerState, call: Call, patience: float) -> httpx.Response:
        """The answer of a worker: its head is there. Raises WorkerGone."""
        if worker.state not in _ORDER:
            raise WorkerGone(f"{_called(worker)} is {worker.state}{_because(worker)}", heard=False)
        timeout = {"connect": CONNECT, "read": patience, "write": patience, "pool": patience}
        request = httpx.Request(
            call.method,
            "http://worker",
            headers=list(call.headers),
            content=call.body,
            extensions={"target": call.target, "timeout": timeout},
        )
        try:
            return await self._way(worker.socket).handle_async_request(request)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise WorkerGone(f"{_called(worker)} takes no connection", heard=False) from error
        except httpx.TimeoutException as error:
            self._ask_last(worker)
            raise WorkerGone(f"{_called(worker)} was silent for {patience:g} s", heard=True) from error
        except httpx.HTTPError as error:
            raise WorkerGone(f"{_called(worker)} ended while it was asked", heard=True) from error

    def _ask_last(self, worker: WorkerState) -> None:
        self._silent[worker.number] = self._clock() + ASIDE

    def _way(self, socket: Path) -> httpx.AsyncHTTPTransport:
        # One connection for each request: none is ever stale, and a Unix socket costs next to nothing.
        if socket not in self._ways:
            self._ways[socket] = httpx.AsyncHTTPTransport(
                uds=str(socket),
                verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # no TLS: reads no certificates
                trust_env=False,
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            )
        return self._ways[socket]


class Passed(Response):
    """A worker's answer, passed on as it comes. If it ends early, so does the client's."""

    def __init__(self, answer: httpx.Response, worker: WorkerState) -> None:
        self._answer, self._worker = answer, worker
        self.background = None
        self.status_code = answer.status_code
        self.raw_headers = [
            (key.lower(), value) for key, value in answer.headers.raw if key.lower() not in _NOT_ANSWERED
        ]

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            await until_gone(receive, self._send(scope, send))
        finally:
            with contextlib.suppress(httpx.HTTPError):
                await self._answer.aclose()

    async def _send(self, scope: AsgiScope, send: Send) -> None:
        head = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(head)
        try:
            if scope["method"] != "HEAD":
                async for part in self._answer.aiter_raw():
                    async with asyncio.timeout(SLOW):
                        await send({"type": "http.response.body", "body": part, "more_body": True})
        except httpx.HTTPError as error:
            raise WorkerGone(f"{_called(self._worker)} ended within its answer", heard=True) from error
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _whole(answer: httpx.Response) -> bytes:
    octets = bytearray()
    async for part in answer.aiter_raw():
        octets += part
        if len(octets) > MOST:
            raise httpx.ReadError("more than may be read")
    return bytes(octets)


def _called(worker: WorkerState) -> str:
    return f"worker {worker.number} ({worker.name})"


def _because(worker: WorkerState) -> str:
    return f" ({worker.why})" if worker.why and worker.state == "waiting" else ""
