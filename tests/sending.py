"""A client that sends mail to a node, and says exactly what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stations import Station

MESSAGE = (
    b"Subject: hello\r\nMessage-ID: <1@example.org>\r\nDate: Sat, 21 Nov 2026 10:00:00 +0000\r\n\r\nbody\r\n"
)


class Sender:
    """A client that says exactly what it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def reply(self) -> str:
        async with asyncio.timeout(30):
            while (line := (await self.reader.readline()).decode())[3:4] == "-":
                pass
        return line.rstrip("\r\n")

    async def say(self, *commands: str) -> str:
        self.writer.write("".join(f"{command}\r\n" for command in commands).encode())
        return [await self.reply() for _ in commands][-1]

    async def begin(self, *recipients: str, parameters: str = "") -> str:
        """Up to the last RCPT."""
        to = [f"RCPT TO:<{one}>" for one in recipients or ("b@example.net",)]
        return await self.say("EHLO client.example", f"MAIL FROM:<a@example.org>{parameters}", *to)

    async def content(self, octets: bytes) -> str:
        """The content by BDAT, and the reply."""
        self.writer.write(b"BDAT %d LAST\r\n" % len(octets) + octets)
        return await self.reply()


@asynccontextmanager
async def sender(to: Station) -> AsyncIterator[Sender]:
    client = Sender(*await asyncio.open_connection("127.0.0.1", to.port))
    await client.reply()
    try:
        yield client
    finally:
        client.writer.transport.abort()


async def sent(to: Station, octets: bytes, *recipients: str) -> str:
    async with sender(to) as client:
        assert (await client.begin(*recipients)).startswith("250 ")
        return await client.content(octets)
