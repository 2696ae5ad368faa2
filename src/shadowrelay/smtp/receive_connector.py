"""A Receive connector: where it listens, and its sessions."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeAlias

import structlog

from shadowrelay.smtp.receive import ConnectorOptions, Receiver
from shadowrelay.smtp.receive_handshakes import SecureListener
from shadowrelay.smtp.receive_limits import Register
from shadowrelay.smtp.receive_session import ReceiveSession

log = structlog.get_logger(__name__)

SessionFactory: TypeAlias = Callable[[Receiver, ConnectorOptions, Register], ReceiveSession]

BACKLOG = 512
"""Connections that the system may accept before they are served."""


async def listening(host: str, port: int) -> list[socket.socket]:
    """A listening socket for each address of ``host`` ('': every one of this machine). Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    made: list[socket.socket] = []
    with ExitStack() as undo:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                sock = undo.enter_context(socket.socket(family, kind, protocol))
            except OSError as error:
                if error.errno != errno.EAFNOSUPPORT:
                    raise
                continue  # a kernel without IPv6
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:  # 0.0.0.0 is an address of its own
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
            sock.listen(BACKLOG)
            made.append(sock)
        undo.pop_all()
    if not made:
        raise OSError(errno.EADDRNOTAVAIL, f"{host} is no address of this machine")
    return made


_TURNS = 5  # of the event loop, in which a connection that was accepted becomes a session


class Connector:
    """Serves between ``start`` and ``stop``. ``session`` makes the protocol of each connection."""

    def __init__(
        self, options: ConnectorOptions, receiver: Receiver, *, session: SessionFactory = ReceiveSession
    ) -> None:
        self.options = options
        self._receiver = receiver
        self._make_session = session
        self._register = Register(options.max_inbound_connections, options.max_inbound_connections_per_source)
        self._waiting: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._secure: SecureListener | None = None

    async def listen(self) -> tuple[str, int]:
        """Take the address, and say which host and port. Clients may connect, and wait. Raises OSError."""
        self._waiting = await listening(self.options.host, self.options.port)
        host, port = self._waiting[0].getsockname()[:2]
        return host, port

    async def start(self) -> tuple[str, int]:
        """Serve, after ``listen`` if that was not done; the host and the port. Raises OSError."""
        options = self.options
        host, port = self._waiting[0].getsockname()[:2] if self._waiting else await self.listen()
        waiting, self._waiting = self._waiting, []
        if options.implicit_tls and options.tls is not None:
            self._secure = SecureListener(self._session, options.tls, options.max_inbound_connections)
            self._secure.start(waiting)
        else:
            serve = asyncio.get_running_loop().create_server
            self._servers = [await serve(self._session, sock=one, backlog=BACKLOG) for one in waiting]
        log.info("connector_listening", connector=options.name, host=host, port=port)
        return host, port

    @property
    def sessions(self) -> int:
        """How many connections are open."""
        return len(self._register)

    @property
    def handshakes(self) -> int:
        """How many connections of a connector with implicit TLS are on their way to become sessions."""
        return self._secure.handshakes if self._secure else 0

    async def refuse(self, drain: float) -> None:
        """Answer 421 to new connections; sessions may finish their transactions for ``drain`` seconds."""
        await self._register.close(drain)

    def admit(self) -> None:
        """Take connections again, after ``refuse``."""
        self._register.reopen()

    async def stop(self, drain: float) -> None:
        """Listen no more; sessions may finish their transactions for ``drain`` seconds.

        A message whose content is complete is always finished, and its reply sent. Idempotent.
        """
        for unserved in self._waiting:
            unserved.close()
        await self._accept_no_more()
        for server in self._servers:
            server.close()
        self._waiting, self._servers = [], []
        if self._secure is not None:
            await self._secure.stop()
        await self._register.close(drain)
        log.info("connector_stopped", connector=self.options.name)

    async def _accept_no_more(self) -> None:
        """What was accepted a moment ago becomes a session first, and is told and closed as the others are.
        If its server were closed meanwhile, asyncio would drop it without a word.
        """
        loop = asyncio.get_running_loop()
        for server in self._servers:
            for sock in server.sockets:
                loop.remove_reader(sock.fileno())  # which makes no difference to uvloop
        for _ in range(_TURNS if self._servers else 0):
            await asyncio.sleep(0)

    def _session(self) -> ReceiveSession:
        return self._make_session(self._receiver, self.options, self._register)
