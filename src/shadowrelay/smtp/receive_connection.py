"""A sender's connection: what the event loop tells of it, TLS that begins in it, and its end.

What is said in it is in ``receive_lifecycle``.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import AnyStr, cast

from aiosmtpd.smtp import SMTP

from shadowrelay.core.values import replace
from shadowrelay.smtp.duplex import Duplex
from shadowrelay.smtp.receive import ConnectorOptions, Peer

LINGER = 1.0
"""Seconds that a client which we cut off is given to read why, and any other to take its last reply."""


class Connection(SMTP):
    """The library's session on octets of our own: ``duplex`` reads and writes, ``peer`` is who is there."""

    def __init__(self, options: ConnectorOptions, handler: object) -> None:
        # The library's own constructor inspects every attribute for AUTH mechanisms and hooks, at a cost of
        # a tenth of a message per connection, to prepare what is not used here. Its base is set up instead.
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=32_768, loop=loop)
        asyncio.StreamReaderProtocol.__init__(self, reader, self._cb_client_connected, loop=loop)
        self.loop = loop
        self.event_handler = handler
        self.options = options
        self.hostname = options.hostname
        self.transport: asyncio.BaseTransport | None = None
        self.duplex: Duplex
        self.peer: Peer
        self._handler_coroutine: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        asyncio.StreamReaderProtocol.connection_made(self, transport)
        self.transport = transport
        host, port = (*(transport.get_extra_info("peername") or ("", 0)), 0)[:2]
        self.peer = Peer(
            id=secrets.token_hex(8).upper(),
            connector=self.options.name,
            address=str(host),
            port=port,
            local=(*(transport.get_extra_info("sockname") or ("", 0)), 0)[:2],
            tls=transport.get_extra_info("ssl_object") is not None,
            certificate=transport.get_extra_info("peercert") or None,
        )
        whole = self.options.connection_timeout
        self.duplex = Duplex(
            transport,  # type: ignore[arg-type]
            self.options.inactivity_timeout.total_seconds(),
            None if whole is None else self.loop.time() + whole.total_seconds(),
        )
        self._handler_coroutine = self.loop.create_task(self._handle_client())

    def connection_lost(self, error: Exception | None) -> None:
        self._lost.set()
        self.duplex.lost()  # the task is not cancelled: it finds out after what must be finished is finished
        asyncio.StreamReaderProtocol.connection_lost(self, error)

    def data_received(self, data: bytes) -> None:
        self.duplex.received(data)  # the library's StreamReader would be one more copy and wake-up

    def pause_writing(self) -> None:
        self.duplex.unwritable()

    def resume_writing(self) -> None:
        self.duplex.writable()

    def eof_received(self) -> bool | None:
        self.duplex.ended()  # a client may close its direction after the final dot and wait for the reply
        return asyncio.StreamReaderProtocol.eof_received(self)

    def secured(self, transport: asyncio.Transport) -> None:
        """TLS is active: speak through it, and know nothing of what was said before (RFC 3207)."""
        self.transport = transport
        # asyncio can put TLS under a protocol, but offers no way to tell the streams above it.
        self._transport = transport
        self._over_ssl = True
        self.duplex.secured(transport)
        certificate = transport.get_extra_info("peercert") or None
        self.peer = replace(self.peer, tls=True, certificate=certificate, helo="", service="SMTP")

    async def close(self) -> None:
        """Close the connection. A client that takes nothing would keep it open for as long as it likes, so
        its place is free only when it is gone.
        """
        if self.transport is None:
            return
        transport = cast("asyncio.WriteTransport", self.transport)
        unsent = not self._lost.is_set() and transport.get_write_buffer_size()
        transport.close()
        if not unsent:
            return
        try:
            async with asyncio.timeout(LINGER):
                await self._lost.wait()
        except TimeoutError:
            transport.abort()

    async def push(self, status: AnyStr) -> None:
        """The library's way to reply."""
        text = status.encode("utf-8", "replace") if isinstance(status, str) else status
        self.duplex.write(text + b"\r\n")
