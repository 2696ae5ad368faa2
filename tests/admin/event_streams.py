"""Subscribers of event streams over sockets, and the stage that writes the rows they are told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from admin_node import NOW, OURS, FakeNode

from shadowrelay.database.outbox import Outbox
from shadowrelay.tracking.files import LogLimits
from shadowrelay.tracking.writer import TrackingWriter


@asynccontextmanager
async def writing(node: FakeNode, **limits: Any) -> AsyncIterator[TrackingWriter]:
    """The stage that writes the tracking log."""
    writer = TrackingWriter(
        Outbox(node.database),
        directory=node.events.log.directory,
        node=OURS,
        limits=LogLimits(**limits),
        committed=node.database.when_tracked(asyncio.Event()),
        clock=lambda: NOW,
        sync_interval=0.01,
        events=node.events,
    )
    stop = asyncio.Event()
    running = asyncio.create_task(writer.run(stop))
    try:
        yield writer
    finally:
        stop.set()
        await running


@dataclass
class Told:
    id: str
    event: str
    data: dict[str, Any]


class Stream:
    """An event source over a socket: it reads chunks, and tells events."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._text = b""
        self.comments = 0
        self.last_id = ""

    async def next(self) -> Told | None:
        """The next event; None at the end."""
        while True:
            block = await self._block()
            if block is None:
                return None
            fields: dict[str, str] = {}
            for line in block.decode().split("\n"):
                name, _, value = line.partition(":")
                self.comments += not name
                fields[name] = value.removeprefix(" ")
            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                return Told(fields.get("id", ""), fields.get("event", ""), json.loads(fields["data"]))

    async def _block(self) -> bytes | None:
        while b"\n\n" not in self._text:
            size = int((await asyncio.wait_for(self._reader.readline(), 30)).strip() or b"0", 16)
            if not size:
                return None
            self._text += (await self._reader.readexactly(size + 2))[:-2]
        block, _, self._text = self._text.partition(b"\n\n")
        return block

    async def rows(self, count: int) -> list[Told]:
        """The next rows. A stream that only says that it lives fails too: comments come without end."""
        found: list[Told] = []
        async with asyncio.timeout(30):
            while len(found) < count:
                told = await self.next()
                assert told is not None
                if not told.event:
                    found.append(told)
        return found


@asynccontextmanager
async def subscribed(port: int, query: str = "", last: str = "") -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    more = f"last-event-id: {last}\r\n" if last else ""
    writer.write(f"GET /api/v1/events{query} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n{more}\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"text/event-stream" in head
    try:
        yield Stream(reader, writer)
    finally:
        writer.close()
