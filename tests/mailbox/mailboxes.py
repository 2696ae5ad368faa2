"""A mailbox server on loopback, and a client of either port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from receiving import RawClient

from shadowrelay.mailbox.maildir import messages
from shadowrelay.mailbox.server import MailboxOptions, MailboxServer

Address = tuple[str, int]
MESSAGE = b"Message-ID: <1@example.org>\r\nDate: today\r\n\r\n..hello\r\n"


class Lab:
    """A running server."""

    def __init__(self, directory: Path, bound: dict[str, Address]) -> None:
        self.directory, self.bound = directory, bound

    async def send(self, message: bytes, *recipients: str, port: str = "outside") -> list[str]:
        """Send a message in one session; every reply from MAIL on, codes and text."""
        client = RawClient(*await asyncio.open_connection(*self.bound[port]))
        await client.reply()
        await client.say("LHLO relay.example.net" if port == "inside" else "EHLO relay.example.net")
        rcpts = "".join(f"RCPT TO:<{one}>\r\n" for one in recipients or ("alice@example.net",))
        client.send(f"MAIL FROM:<s@example.org> SMTPUTF8\r\n{rcpts}".encode())
        client.send(b"BDAT %d LAST\r\n" % len(message) + message + b"QUIT\r\n")
        replies = [line.decode().rstrip() for line in (await client.reader.read()).splitlines()]
        await client.close()
        return replies[:-1]

    def delivered(self) -> list[str]:
        """The recipient of each delivered message."""
        return [recipient for recipient, _ in messages(self.directory)]

    def contents(self) -> list[bytes]:
        return [path.read_bytes() for _, path in messages(self.directory)]


@asynccontextmanager
async def serving(directory: Path, *, track: timedelta = timedelta(hours=1)) -> AsyncIterator[Lab]:
    server = MailboxServer(
        MailboxOptions(
            directory=directory,
            hostname="mailbox.example.net",
            inside=("127.0.0.1", 0),
            outside=("127.0.0.1", 0),
            track_duplicates=track,
        )
    )
    bound = await server.start()
    try:
        yield Lab(directory, bound)
    finally:
        await server.stop(0)
