"""The bench's own client: what it sends, when its clock runs, and what it does not let pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from . import client
from .smtp_tools import BenchError


class Server:
    """Answers as told, and keeps what it received."""

    def __init__(self, **replies: bytes) -> None:
        self.replies = {"EHLO": b"250-me\r\n250 SIZE\r\n", "DATA": b"354 go on\r\n", **replies}
        self.sessions = self.open = 0
        self.contents: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.sessions += 1
        self.open += 1
        writer.write(b"220 hello\r\n")
        while line := await reader.readline():
            verb = line[:4].decode("ascii")
            writer.write(self.replies.get(verb, b"250 fine\r\n"))
            if verb == "DATA":
                self.contents.append(await reader.readuntil(b"\r\n.\r\n"))
                writer.write(self.replies.get(".", b"250 taken\r\n"))
        self.open -= 1
        writer.close()


@asynccontextmanager
async def listening(server: Server) -> AsyncIterator[tuple[str, int]]:
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as running:
        yield running.sockets[0].getsockname()


@pytest.mark.parametrize("size", [2, 100, 4096, 1_000_000])
def test_a_letter_has_a_body_of_the_size_asked_for_in_lines_that_every_relay_takes(size: int):
    head, _, rest = client.letter(size).partition(b"\r\n\r\n")
    body = rest.removesuffix(b".\r\n")
    assert len(body) == size
    assert body.endswith(b"\r\n")
    assert max(map(len, body.split(b"\r\n"))) <= 998
    assert b"\n.\r\n" not in head + body


async def test_every_message_is_sent_once_and_each_has_its_latency():
    server = Server()
    async with listening(server) as to:
        took = await client.latencies(to, sessions=3, messages=10, size=100)
    assert len(took) == len(server.contents) == 10
    assert server.sessions == 3
    assert all(one >= 0 for one in took)


async def test_a_refusal_is_no_latency():
    async with listening(Server(**{".": b"451 4.4.0 later\r\n"})) as to:
        with pytest.raises(BenchError, match="451"):
            await client.latencies(to, sessions=1, messages=1, size=100)


async def test_idle_sessions_are_greeted_and_stay_open_while_the_block_runs():
    server = Server()
    async with listening(server) as to:
        async with client.idle(to, 150):
            assert server.sessions == server.open == 150
        assert server.contents == []


async def test_an_idle_session_that_is_turned_away_is_no_idle_session():
    async with listening(Server(EHLO=b"421 4.3.2 too many\r\n")) as to:
        with pytest.raises(BenchError, match="421"):
            async with client.idle(to, 1):
                pass
