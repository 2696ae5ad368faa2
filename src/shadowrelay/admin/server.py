"""Serves the admin API in the node's own event loop, without taking its signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

GRACE = 5
"""Seconds that requests under way may take after the stop."""


class CannotListen(Exception):
    """The address is not ours to listen on; the message says why."""


REQUEST_WITHIN = 10.0
"""Seconds for a connection to bring a request in: those that say nothing would use up all there are."""


class _Protocol(H11Protocol):
    """Closes a connection that brought no request between two looks; uvicorn does so after the first one."""

    _look: asyncio.TimerHandle | None = None
    _seen: object = None  # the request that was under way, or done, at the last look

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look = self.loop.call_later(REQUEST_WITHIN, self._at_look)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._look is not None:
            self._look.cancel()

    def _at_look(self) -> None:
        if self.cycle is self._seen and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()
            return
        self._seen = self.cycle
        self._look = self.loop.call_later(REQUEST_WITHIN, self._at_look)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave SIGTERM and SIGINT to the node: its API is wanted while it drains."""
        yield


def bind(host: str, port: int) -> socket.socket:
    """A listening address for ``serve``; port 0 takes any free one. Raises CannotListen."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListen(f"admin.listen: {host} is no address of this machine: {error.strerror}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise CannotListen(f"admin.listen: cannot listen on {host} port {port}: {error.strerror}") from error
    sock.setblocking(False)
    return sock


async def serve(app: ASGIApp, sock: socket.socket, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set, then finish the requests under way. The socket is closed at the end."""
    config = uvicorn.Config(
        app,
        access_log=False,
        date_header=True,
        h11_max_incomplete_event_size=16_384,
        http=_Protocol,
        interface="asgi3",
        lifespan="off",
        limit_concurrency=200,
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
        # Also when this task was cancelled: uvicorn leaves its listeners and connections open then.
        ending.cancel()
        for listener in getattr(server, "servers", []):
            listener.close()
        for connection in list(server.server_state.connections):
            connection.shutdown()
        sock.close()
