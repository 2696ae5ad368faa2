"""The two directions of a session, on each event loop that a node may run with."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest

from shadowrelay.smtp.duplex import Duplex, Interrupted, Why

Loops = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=["asyncio", "uvloop"])
def loops(request: pytest.FixtureRequest) -> Loops:
    if request.param == "asyncio":
        return asyncio.new_event_loop
    found: Loops = pytest.importorskip("uvloop").new_event_loop
    return found


class Told(asyncio.Protocol):
    """Notes the end of the connection."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self.lost.set()


async def reply_to_a_client_that_was_reset() -> Why:
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    accepted, _ = listener.accept()
    listener.close()
    transport, told = await asyncio.get_running_loop().create_connection(Told, sock=accepted)
    duplex = Duplex(transport, 5.0, None)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    async with asyncio.timeout(5):
        await told.lost.wait()
    duplex.lost()
    duplex.write(b"250 2.6.0 Queued\r\n")
    try:
        await duplex.flush()
        await duplex.read_line(512)
    except Interrupted as interrupted:
        return interrupted.why
    raise AssertionError("the session goes on without a client")


def test_a_reply_to_a_client_that_is_gone_ends_the_session_quietly(loops: Loops):
    with asyncio.Runner(loop_factory=loops) as runner:
        assert runner.run(reply_to_a_client_that_was_reset()) is Why.GONE
