"""A mailbox service as a process of its own, which can be killed at a chosen instant."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from receiving import RawClient

from shadowrelay.settings.values import parse_host_port

_MAIN = "from shadowmailbox.cli import mailbox\nmailbox()"

_DIES = """\
import os, signal
from shadowmailbox.delivered_to import DeliveredTo
record = DeliveredTo.record
async def dies(self, *arguments):
    if {after}:
        await record(self, *arguments)
    os.kill(os.getpid(), signal.SIGKILL)
DeliveredTo.record = dies
"""
BEFORE_COMMIT, AFTER_COMMIT = _DIES.format(after=False), _DIES.format(after=True)
"""The process kills itself once the store has answered 250: before, or after, the row is on disk."""


class MailboxProcess:
    """One that runs. ``addresses``: as its ready file has them."""

    def __init__(self, process: asyncio.subprocess.Process, addresses: dict[str, str]) -> None:
        self.process, self.addresses = process, addresses

    def address(self, name: str) -> tuple[str, int]:
        found = parse_host_port(self.addresses[name])
        return found.host, found.port

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    async def send(self, message: bytes, *recipients: str) -> list[str]:
        """The reply for each recipient; none where the service ended before it answered."""
        client = RawClient(*await asyncio.open_connection(*self.address("inside")))
        await client.reply()
        await client.say("LHLO relay.example.net")
        rcpts = "".join(f"RCPT TO:<{one}>\r\n" for one in recipients)
        client.send(f"MAIL FROM:<s@example.org>\r\n{rcpts}".encode())
        client.send(b"BDAT %d LAST\r\n" % len(message) + message + b"QUIT\r\n")
        try:
            replies = (await client.reader.read()).decode().splitlines()
        except ConnectionResetError:
            replies = []
        await client.close()
        return replies[1 + len(recipients) :][: len(recipients)]


@asynccontextmanager
async def mailbox_process(directory: Path, *options: Any, dies: str = "") -> AsyncIterator[MailboxProcess]:
    """Run ``shadowmailbox`` with its table in a directory.

    At the end it is killed, if it still runs.
    """
    ready = directory / "ready"
    os.makedirs(directory, exist_ok=True)
    with suppress(FileNotFoundError):
        os.unlink(ready)
    words = ["--table", directory / "table", "--inside", "127.0.0.1:0", "--ready-file", ready, *options]
    with (directory / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", dies + _MAIN, *map(str, words), stdout=log, stderr=log
        )
    try:
        async with asyncio.timeout(30):
            while not ready.exists():
                assert process.returncode is None, (directory / "log").read_text()
                await asyncio.sleep(0.02)
        yield MailboxProcess(process, json.loads(ready.read_text()))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
