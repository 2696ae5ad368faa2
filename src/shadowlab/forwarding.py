"""Carries the breakable links of a lab: each direction between two members can be cut and healed.

One process carries every connection between members, octet for octet: TLS passes through end to end. Data in
a cut direction waits, like segments that TCP would send again, and goes on when the cut is healed. A
connection is made only while both directions are open, as a handshake needs both.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import struct
from contextlib import suppress
from functools import partial
from pathlib import Path

from shadowlab.layout import Address, LabLink, Layout, Manner, Way
from shadowlab.network import ANSWER, read_cuts

_BLOCK = 65_536
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset


class Forwarder:
    """Serves until cancelled. ``look`` reads the cuts from the lab's file."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._cuts: dict[Way, Manner] = {}
        self._changed = asyncio.Condition()
        self._connections: dict[asyncio.Task[None], LabLink] = {}

    async def serve(self, control: Address) -> None:
        await self.look(self._layout.directory)
        servers = [await asyncio.start_server(self._told, *control)]
        for link in self._layout.links.ways if self._layout.links else ():
            target = self._layout.node(link.target).peer
            servers.append(await asyncio.start_server(partial(self._connected, link, target), *link.address))
        try:
            await asyncio.gather(*(server.serve_forever() for server in servers))
        finally:
            for server in servers:
                server.close()
            for task in list(self._connections):
                task.cancel()

    async def look(self, directory: Path) -> None:
        async with self._changed:
            self._cuts = read_cuts(directory)
            self._changed.notify_all()
        for task, link in list(self._connections.items()):
            if self._refused(link):
                task.cancel()

    async def _told(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read the file that a command changed, and answer once the change is in force."""
        with suppress(OSError, ValueError):
            await reader.readline()
            await self.look(self._layout.directory)
            writer.write(ANSWER)
            await writer.drain()
        writer.close()

    async def _connected(
        self, link: LabLink, target: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = link
        opened = [writer]
        try:
            if self._refused(link):
                return
            await self._passable(link.way)
            await self._passable(link.way.back)
            inner_reader, inner_writer = await asyncio.open_connection(*target)
            opened.append(inner_writer)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, inner_writer, link.way))
                pumps.create_task(self._pump(inner_reader, writer, link.way.back))
        except* OSError:
            pass  # one side is gone: the connection ends for both
        except* asyncio.CancelledError:
            pass
        finally:
            del self._connections[task]
            for one in opened:
                _abort(one)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: Way) -> None:
        """Carry one direction to its end; the end of the stream waits for cuts like octets do."""
        try:
            while data := await source.read(_BLOCK):
                await self._passable(way)
                sink.write(data)
                await sink.drain()
        except OSError:
            await self._passable(way)
            raise
        await self._passable(way)
        sink.write_eof()

    async def _passable(self, way: Way) -> None:
        if way in self._cuts:
            async with self._changed:
                await self._changed.wait_for(lambda: way not in self._cuts)

    def _refused(self, link: LabLink) -> bool:
        return Manner.RESET in (self._cuts.get(link.way), self._cuts.get(link.way.back))


async def run(layout: Layout, control: Address) -> None:
    """Serve until SIGTERM or SIGINT."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    serving = asyncio.create_task(Forwarder(layout).serve(control))
    stopping = asyncio.create_task(over.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


def _abort(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
