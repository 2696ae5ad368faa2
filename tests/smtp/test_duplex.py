"""The two directions of a session, on each event loop that a node may run with."""

from __future__ import annotations

import asyncio
import socket
import struct

from receiving import Loops

from shadowrelay.smtp.duplex import Duplex, Interrupted, Why


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
    async with asyncio.timeout(30):
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


class Paused(asyncio.Transport):
    """A transport whose other end takes nothing more once something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = True
        self.duplex = Duplex(self, 5.0, None)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        del data
        self.duplex.unwritable()

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


async def test_a_command_that_comes_while_replies_wait_to_be_taken_is_read() -> None:
    transport = Paused()
    transport.duplex.write(b"250 2.0.0 OK\r\n")
    reading = asyncio.create_task(transport.duplex.read_line(512))
    await asyncio.sleep(0)
    transport.duplex.received(b"NOOP\r\n")
    transport.duplex.writable()
    async with asyncio.timeout(2):
        assert await reading == b"NOOP\r\n"


async def test_who_reads_all_that_waits_hears_of_the_end_though_too_much_had_waited() -> None:
    transport = Paused()
    transport.duplex.received(bytes(100_000))
    assert not transport.reading
    assert len(await transport.duplex.read_block(65_536, 5.0)) == 65_536
    assert len(await transport.duplex.read_block(65_536, 5.0)) == 34_464
    assert transport.reading
