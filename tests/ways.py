"""A way to a port, on which connections are reset, or refused."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: RST instead of FIN


@dataclass
class Way:
    """A way to a port. Each connection in turn is reset when so many octets came back on it; then no more."""

    port: int = 0
    limits: list[int] = field(default_factory=list)
    came_back: int = 0  # on connections that were not reset
    open: set[asyncio.StreamWriter] = field(default_factory=set)
    server: asyncio.Server | None = None
    to: int = 0
    mute: asyncio.Event | None = None  # until it is set, connections are taken, and nothing is answered

    def reset(self) -> None:
        """Every connection, now."""
        for writer in self.open:
            _reset(writer)

    async def admit(self) -> None:
        """Take connections."""
        self.server = await asyncio.start_server(self.carry, "127.0.0.1", self.port, backlog=1000)
        self.port = self.server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Take none any more."""
        if self.server is not None:
            self.server.close()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        limit = self.limits.pop(0) if self.limits else None
        if self.mute is not None:
            await self.mute.wait()
        there, back = await asyncio.open_connection("127.0.0.1", self.to)
        self.open.add(writer)

        async def forth() -> None:
            while data := await reader.read(65_536):
                back.write(data)
            back.close()

        forwarding = asyncio.ensure_future(forth())
        with suppress(ConnectionError):
            left = limit
            while left != 0 and (data := await there.read(65_536 if left is None else left)):
                writer.write(data)
                await writer.drain()
                self.came_back += len(data) if left is None else 0
                left = None if left is None else left - len(data)
        self.open.discard(writer)
        if limit is not None:
            _reset(writer)
        writer.transport.abort()
        back.transport.abort()
        forwarding.cancel()
        await asyncio.gather(forwarding, return_exceptions=True)


@asynccontextmanager
async def way(to: int) -> AsyncIterator[Way]:
    made = Way(to=to)
    await made.admit()
    try:
        yield made
    finally:
        made.refuse()


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # the other end was faster, and it is closed
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    writer.transport.abort()
