"""A client that measures itself: smtp-source tells no latencies, and cannot idle.

It is no library on purpose: what aiosmtplib does to a content before it sends it would be in the figures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from shadowlab.layout import Address

from .smtp_tools import RECIPIENT, SENDER, BenchError

_PATIENCE = 60.0  # seconds for one reply
_BATCH = 100  # connections that are opened at a time


@dataclass(frozen=True, slots=True)
class Session:
    """An SMTP session after EHLO; one command at a time, as smtp-source does it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def command(self, line: str, code: str) -> None:
        """Raises BenchError when the reply is another one, OSError when there is none."""
        self.writer.write(f"{line}\r\n".encode("ascii"))
        await self.expect(code)

    async def expect(self, code: str) -> None:
        async with asyncio.timeout(_PATIENCE):
            while (line := await self.reader.readline())[3:4] == b"-":
                pass
        if not line.startswith(code.encode("ascii")):
            raise BenchError(f"{code} was expected, and not {line!r}")

    async def send(self, content: bytes, recipients: Sequence[str] = (RECIPIENT,)) -> float:
        """One message; returns the seconds between its last octet and the reply."""
        await self.command(f"MAIL FROM:<{SENDER}>", "250")
        for recipient in recipients:
            await self.command(f"RCPT TO:<{recipient}>", "250")
        await self.command("DATA", "354")
        self.writer.write(content)
        await self.writer.drain()
        dot = time.perf_counter()
        await self.expect("250")
        return time.perf_counter() - dot


@asynccontextmanager
async def session(to: Address) -> AsyncIterator[Session]:
    """Connected and greeted, while the block runs."""
    opened = await _opened(to)
    try:
        yield opened
    finally:
        opened.writer.close()


async def latencies(to: Address, *, sessions: int, messages: int, size: int) -> list[float]:
    """Send so many messages over so many sessions at a time; seconds from dot to 250, of each."""
    content = letter(size)

    async def one(count: int) -> list[float]:
        async with session(to) as opened:
            return [await opened.send(content) for _ in range(count)]

    shares = [messages // sessions + (number < messages % sessions) for number in range(sessions)]
    return [took for part in await asyncio.gather(*map(one, shares)) for took in part]


@asynccontextmanager
async def idle(to: Address, count: int) -> AsyncIterator[None]:
    """So many sessions that have said EHLO, and say nothing more while the block runs."""
    opened: list[Session] = []
    try:
        while missing := count - len(opened):
            opened += await asyncio.gather(*(_opened(to) for _ in range(min(missing, _BATCH))))
        yield
    finally:
        for one in opened:
            one.writer.close()


def letter(size: int) -> bytes:
    """A message with a body of so many octets, and the dot that ends it."""
    line = b"x" * 76 + b"\r\n"
    body = (line * (size // len(line) + 1))[: max(0, size - 2)] + b"\r\n"
    head = f"From: <{SENDER}>\r\nTo: <{RECIPIENT}>\r\nSubject: bench\r\n\r\n".encode("ascii")
    return head + body + b".\r\n"


async def _opened(to: Address) -> Session:
    found = Session(*await asyncio.open_connection(*to))
    await found.expect("220")
    await found.command("EHLO client.lab.test", "250")
    return found
