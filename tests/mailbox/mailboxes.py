"""A mailbox server on loopback, and a client of either port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from receiving import RawClient

from shadowmailbox.maildir import messages
from shadowmailbox.maildir_store import MaildirStore
from shadowmailbox.server import TABLE_FILE, MailboxOptions, MailboxServer
from shadowmailbox.store import Store
from shadowrelay.node_clock import NodeClock

Address = tuple[str, int]
MESSAGE = b"Message-ID: <1@example.org>\r\nDate: today\r\n\r\n..hello\r\n"


class Lab:
    """A running server."""

    def __init__(self, directory: Path, bound: dict[str, Address], server: MailboxServer) -> None:
        self.directory, self.bound, self.server = directory, bound, server

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


def options(directory: Path, **changes: Any) -> MailboxOptions:
    """A service with Maildirs below that directory."""

    async def open_store() -> Store:
        return await MaildirStore.open(directory, "mailbox.example.net")

    given: dict[str, Any] = {
        "open_store": open_store,
        "table": directory / TABLE_FILE,
        "hostname": "mailbox.example.net",
        "inside": ("127.0.0.1", 0),
        "outside": ("127.0.0.1", 0),
    }
    return MailboxOptions(**given | changes)


@asynccontextmanager
async def serving(directory: Path, clock: NodeClock | None = None, **changes: Any) -> AsyncIterator[Lab]:
    server = MailboxServer(options(directory, **changes), clock)
    bound = await server.start()
    try:
        yield Lab(directory, bound, server)
    finally:
        await server.stop(0)
