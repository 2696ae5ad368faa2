"""A connector on loopback, a receiver that remembers, and a client that says exactly what it is told."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from shadowrelay.smtp.receiving.connector import Connector, SessionFactory
from shadowrelay.smtp.receiving.contract import Client, ConnectorOptions, Hangup, Sink
from shadowrelay.smtp.receiving.session import ReceiveSession
from shadowrelay.wire.esmtp import MailFrom, RcptTo
from shadowrelay.wire.replies import Reply

Loops = Callable[[], asyncio.AbstractEventLoop]
"""Makes one of the event loops that a node may run with: see the fixture ``loops``."""

QUEUED = Reply(250, "2.0.0", "Queued")


@dataclass
class Kept:
    """A message whose ``finish`` was called."""

    client: Client
    mail: MailFrom
    recipients: tuple[RcptTo, ...]
    content: bytes


class MemorySink:
    def __init__(
        self, receiver: MemoryReceiver, client: Client, mail: MailFrom, to: Sequence[RcptTo]
    ) -> None:
        self._receiver, self._client, self._mail, self._to = receiver, client, mail, tuple(to)
        self._content = bytearray()

    async def write(self, data: bytes) -> None:
        self._receiver.largest_write = max(self._receiver.largest_write, len(data))
        if self._receiver.on_write is not None:
            await self._receiver.on_write(data)
        self._content += data

    async def finish(self) -> Sequence[Reply] | Hangup:
        if self._receiver.before_finish is not None:
            await self._receiver.before_finish()
        self._receiver.kept.append(Kept(self._client, self._mail, self._to, bytes(self._content)))
        outcome = self._receiver.outcome
        return outcome(self._to) if callable(outcome) else outcome

    async def abort(self) -> None:
        self._receiver.aborted += 1


@dataclass
class MemoryReceiver:
    """Accepts everything but what ``refusals`` names: sender or recipient address to reply."""

    refusals: dict[str, Reply] = field(default_factory=dict)
    outcome: Any = (QUEUED,)
    content_reply: Reply | None = None
    before_finish: Callable[[], Any] | None = None
    on_write: Callable[[bytes], Any] | None = None
    kept: list[Kept] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    aborted: int = 0
    resets: int = 0
    largest_write: int = 0

    async def mail(self, session: Client, mail: MailFrom) -> Reply | None:
        self.calls.append("mail")
        return self.refusals.get(mail.sender)

    async def rcpt(
        self, session: Client, mail: MailFrom, rcpt: RcptTo, accepted: Sequence[RcptTo]
    ) -> Reply | None:
        self.calls.append("rcpt")
        return self.refusals.get(rcpt.address)

    async def content(self, session: Client, mail: MailFrom, recipients: Sequence[RcptTo]) -> Sink | Reply:
        self.calls.append("content")
        return self.content_reply or MemorySink(self, session, mail, recipients)

    async def reset(self, session: Client) -> None:
        self.resets += 1


@dataclass
class RawClient:
    """The one client of the tests that is no library: it sends any octets, breaks off where it likes, and
    speaks BDAT and the members' verbs, which neither aiosmtplib nor smtplib does.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def line(self) -> str:
        """One reply line without its CRLF; '' at the end of the connection."""
        async with asyncio.timeout(30):
            return (await self.reader.readline()).decode().removesuffix("\r\n")

    async def reply(self) -> str:
        """A whole reply, its lines joined with |."""
        lines = [await self.line()]
        while lines[-1][3:4] == "-":
            lines.append(await self.line())
        return "|".join(lines)

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def say(self, *commands: str) -> str:
        """Send commands in one write; the reply to each, the last one returned."""
        self.send("".join(f"{command}\r\n" for command in commands).encode())
        replies = [await self.reply() for _ in commands]
        return replies[-1]

    async def begin(self, *recipients: str, parameters: str = "") -> str:
        """EHLO, MAIL and one RCPT each; the reply to the last RCPT."""
        to = (f"RCPT TO:<{one}>" for one in recipients or ("b@example.net",))
        return await self.say("EHLO client.example", f"MAIL FROM:<a@example.org>{parameters}", *to)

    async def content(self, octets: bytes) -> str:
        """The content by BDAT, as it is; the reply."""
        self.send(b"BDAT %d LAST\r\n" % len(octets) + octets)
        return await self.reply()

    async def closed(self) -> bool:
        """Whether nothing more comes."""
        async with asyncio.timeout(30):
            try:
                return await self.reader.read() == b""
            except ConnectionResetError:
                return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


QUICK = ConnectorOptions(hostname="mx.example.net", tarpit_interval=timedelta(0))


@asynccontextmanager
async def listening(
    receiver: MemoryReceiver, *, session: SessionFactory = ReceiveSession, **changes: Any
) -> AsyncIterator[Connector]:
    connector = Connector(replace(QUICK, **changes), receiver, session=session)
    connector.address = await connector.start()  # type: ignore[attr-defined]
    try:
        yield connector
    finally:
        await connector.stop(0)


@asynccontextmanager
async def connected(connector: Connector, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawClient]:
    host, port = connector.address  # type: ignore[attr-defined]
    name = "mx.example.net" if tls else None
    client = RawClient(*await asyncio.open_connection(host, port, ssl=tls, server_hostname=name))
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def conversation(receiver: MemoryReceiver, **changes: Any) -> AsyncIterator[RawClient]:
    """A client that has been greeted."""
    async with listening(receiver, **changes) as connector, connected(connector) as client:
        assert (await client.line()).startswith("220 ")
        yield client


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the condition is whatever a test looks at
            await asyncio.sleep(0.005)
