"""Clients that send much and read nothing: they hold up nobody else, and nothing of them stays."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from receiving import Loops, MemoryReceiver, connected, eventually, listening

from shadowrelay.smtp.receiving.connector import Connector
from shadowrelay.smtp.receiving.conversation import TURN

BRIEFLY = timedelta(milliseconds=60)
WITHOUT_END = b"EHLO c\r\n" * 60_000


@asynccontextmanager
async def deaf(connector: Connector, said: bytes) -> AsyncIterator[socket.socket]:
    """A client that has sent what the other end took of that, and reads nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(connector.address)  # type: ignore[attr-defined]
    client.setblocking(False)
    try:
        with suppress(BlockingIOError):
            while said:
                said = said[client.send(said) :]
                await asyncio.sleep(0)
        yield client
    finally:
        client.close()


def hung_up(client: socket.socket) -> bool:
    """Has the other end let go of the connection? Told without reading."""
    poll = select.poll()
    poll.register(client, 0)
    return bool(poll.poll(0))


def test_a_client_that_reads_nothing_is_cut_off_and_leaves_no_connection_behind(loops: Loops) -> None:
    async def scene() -> None:
        async with (
            listening(MemoryReceiver(), inactivity_timeout=BRIEFLY, max_junk_commands=None) as connector,
            deaf(connector, WITHOUT_END) as client,
        ):
            await eventually(lambda: connector.sessions == 1)
            await eventually(lambda: connector.sessions == 0)
            await eventually(lambda: hung_up(client))

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(scene())


async def test_a_client_that_reads_nothing_does_not_hold_up_a_stop() -> None:
    receiver = MemoryReceiver()
    said = b"EHLO c\r\nMAIL FROM:<>\r\nRSET\r\n" * 60_000
    async with listening(receiver, max_junk_commands=None) as connector, deaf(connector, said):
        served = 0
        while not served or len(receiver.calls) > served:  # until its replies fill all that takes them
            served = len(receiver.calls)
            await asyncio.sleep(0.2)
        async with asyncio.timeout(30):
            await connector.stop(0.0)


async def test_a_client_that_sends_very_many_commands_at_once_leaves_others_their_turn() -> None:
    served_before_others: list[int] = []

    class Counting(MemoryReceiver):
        async def mail(self, session: Any, mail: Any) -> None:
            self.calls.append("mail")
            if len(self.calls) == 1:
                asyncio.get_running_loop().call_soon(lambda: served_before_others.append(len(self.calls)))

    async with listening(Counting(), max_junk_commands=None) as connector, connected(connector) as client:
        await client.say("EHLO c")
        client.send(b"MAIL FROM:<>\r\nRSET\r\n" * 3_000)
        await eventually(lambda: bool(served_before_others))
        assert served_before_others[0] <= TURN
