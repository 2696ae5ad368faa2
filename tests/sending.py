"""A client of a node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from receiving import RawClient
from stations import Station

MESSAGE = (
    b"Subject: hello\r\nMessage-ID: <1@example.org>\r\nDate: Sat, 21 Nov 2026 10:00:00 +0000\r\n\r\nbody\r\n"
)


@asynccontextmanager
async def sender(to: Station) -> AsyncIterator[RawClient]:
    """A client that was greeted."""
    client = RawClient(*await asyncio.open_connection("127.0.0.1", to.port))
    await client.reply()
    try:
        yield client
    finally:
        client.writer.transport.abort()


async def sent(to: Station, octets: bytes, *recipients: str) -> str:
    """Send a message; the reply to its content."""
    async with sender(to) as client:
        assert (await client.begin(*recipients)).startswith("250 ")
        return await client.content(octets)
