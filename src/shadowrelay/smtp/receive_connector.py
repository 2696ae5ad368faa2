"""A Receive connector: a listening socket and its sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import structlog

from shadowrelay.smtp.receive import ConnectorOptions, Receiver
from shadowrelay.smtp.receive_handshakes import SecureListener
from shadowrelay.smtp.receive_limits import Register
from shadowrelay.smtp.receive_session import ReceiveSession

log = structlog.get_logger(__name__)

SessionFactory: TypeAlias = Callable[[Receiver, ConnectorOptions, Register], ReceiveSession]

_BACKLOG = 512


class Connector:
    """Listens between ``start`` and ``stop``. ``session`` makes the protocol of each connection."""

    def __init__(
        self, options: ConnectorOptions, receiver: Receiver, *, session: SessionFactory = ReceiveSession
    ) -> None:
        self.options = options
        self._receiver = receiver
        self._make_session = session
        self._register = Register(options.max_inbound_connections, options.max_inbound_connections_per_source)
        self._server: asyncio.Server | None = None
        self._secure: SecureListener | None = None

    async def start(self) -> tuple[str, int]:
        """Listen, and say on which host and port. Raises OSError when that is impossible."""
        options = self.options
        if options.implicit_tls and options.tls is not None:
            self._secure = SecureListener(self._session, options.tls, options.max_inbound_connections)
            host, port = await self._secure.start(options.host, options.port, _BACKLOG)
        else:
            self._server = await asyncio.get_running_loop().create_server(
                self._session, options.host, options.port, backlog=_BACKLOG
            )
            host, port = self._server.sockets[0].getsockname()[:2]
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
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._secure is not None:
            await self._secure.stop()
        await self._register.close(drain)
        log.info("connector_stopped", connector=self.options.name)

    def _session(self) -> ReceiveSession:
        return self._make_session(self._receiver, self.options, self._register)
