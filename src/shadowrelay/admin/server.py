"""Serves the admin API in the node's own event loop, without taking its signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from shadowrelay.errors import NodeFailed, cannot_listen

GRACE = 5
"""Seconds that requests under way may take after the stop."""


REQUEST_WITHIN = 10.0
"""Seconds for a connection to bring a request: silent connections would use up all places."""


LIVE = "/healthz/live"
"""Answered as long as the event loop runs, under any load: orchestrators kill a silent node."""

MOST = 200
"""Most connections, and most requests under way. A new connection replaces one that brings no request."""


class _Protocol(H11Protocol):
    """Closes a connection that brought no request between two checks; uvicorn closes only after a request."""

    _look: asyncio.TimerHandle | None = None
    _seen: object = None  # the request at the last check, under way or done
    _waits_since = 0.0  # loop time since when it waits for a request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waits_since = self.loop.time()
        self._look = self.loop.call_later(REQUEST_WITHIN, self._at_look)
        if len(self.connections) > MOST:
            self._make_room()

    def on_response_complete(self) -> None:
        self._waits_since = self.loop.time()
        super().on_response_complete()

    def _make_room(self) -> None:
        others = (one for one in self.connections if isinstance(one, _Protocol) and one is not self)
        if waiting := [one for one in others if one.waits]:
            min(waiting, key=lambda one: one._waits_since).transport.abort()

    @property
    def waits(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._look is not None:
            self._look.cancel()

    def _at_look(self) -> None:
        if self.cycle is self._seen and self.waits:
            self.transport.close()
            return
        self._seen = self.cycle
        self._look = self.loop.call_later(REQUEST_WITHIN, self._at_look)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave SIGTERM and SIGINT to the node: the API serves while the node drains."""
        yield


def bind(host: str, port: int) -> socket.socket:
    """A listening socket for ``serve``; port 0 takes any free port. Raises NodeFailed."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise NodeFailed(
            f"admin.listen: {host} is not an address of this machine: {error.strerror}"
        ) from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise cannot_listen("admin", host, port, error) from error
    sock.setblocking(False)
    return sock


def _limited(app: ASGIApp) -> ASGIApp:
    """Limit the requests under way to MOST, except for the liveness check."""
    under_way = 0

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal under_way
        if scope.get("path") == LIVE:
            return await app(scope, receive, send)
        if under_way >= MOST:
            return await PlainTextResponse("too many requests at once", 503)(scope, receive, send)
        under_way += 1
        try:
            return await app(scope, receive, send)
        finally:
            under_way -= 1

    return limited


async def serve(app: ASGIApp, sock: socket.socket, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set, then finish the requests under way and close the socket."""
    config = uvicorn.Config(
        _limited(app),
        access_log=False,
        date_header=True,
        h11_max_incomplete_event_size=16_384,
        http=_Protocol,
        interface="asgi3",
        lifespan="off",
        log_config=None,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        ws="none",
    )
    server = _Server(config)

    async def end() -> None:
        await stop.wait()
        server.should_exit = True

    ending = asyncio.create_task(end(), name="admin stop")
    try:
        await server.serve(sockets=[sock])
    finally:
        # After a cancellation too: uvicorn then leaves its listeners and connections open.
        ending.cancel()
        for listener in getattr(server, "servers", []):
            listener.close()
        for connection in list(server.server_state.connections):
            connection.shutdown()
        sock.close()
