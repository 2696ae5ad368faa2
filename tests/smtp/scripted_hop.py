"""A next hop on loopback that says and does what a test tells it to."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Envelope, Recipient
from shadowrelay.smtp.sending.session import NextHopServer, Timeouts

HANG = object()
"""Never answer."""

CLOSE = object()
"""Close the connection instead of answering."""

DEFAULTS: dict[str, bytes] = {
    "GREETING": b"220 hop.example ESMTP\r\n",
    "HELO": b"250 hop.example\r\n",
    "MAIL": b"250 2.1.0 sender ok\r\n",
    "RCPT": b"250 2.1.5 recipient ok\r\n",
    "DATA": b"354 go ahead\r\n",
    "DOT": b"250 2.0.0 queued\r\n",
    "RSET": b"250 2.0.0 flushed\r\n",
    "NOOP": b"250 2.0.0 here\r\n",
    "QUIT": b"221 2.0.0 bye\r\n",
    "STARTTLS": b"220 2.0.0 go ahead\r\n",
}

QUICK = Timeouts(connect=5, tls=5, greeting=5, ehlo=5, mail=5, rcpt=5, data=5, block=5, final_dot=5, quit=1)


class ScriptedHop:
    """``script`` maps a verb (also GREETING and DOT), or a whole command, to an answer, or a list of them.

    The last one of a list stays.
    """

    def __init__(
        self,
        *,
        offers: tuple[str, ...] = ("PIPELINING", "8BITMIME", "ENHANCEDSTATUSCODES"),
        tls: ssl.SSLContext | None = None,
        pause: Callable[[], Any] | None = None,
        at: tuple[str, int] = ("127.0.0.1", 0),
        **script: Any,
    ) -> None:
        self.offers = offers
        self.tls = tls
        self.at = at  # where it listens
        self.pause = pause  # awaited before content is read
        self.script = {key: value if isinstance(value, list) else [value] for key, value in script.items()}
        self.commands: list[str] = []
        self.contents: list[bytes] = []
        self.keep_contents = True
        self.octets = 0  # of content that was not kept, its end included
        self.connections = 0

    async def __aenter__(self) -> ScriptedHop:
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._server = await asyncio.start_server(self._accept, *self.at)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def server(self, **changes: Any) -> NextHopServer:
        settings: dict[str, Any] = {
            "name": NextHop("hop"),
            "host": "127.0.0.1",
            "port": self.port,
            "local_hostname": "mx1.example.org",
            "tls": "none",
            "timeouts": QUICK,
        }
        return NextHopServer(**settings | changes)

    def narrow(self, transport: asyncio.BaseTransport) -> None:
        """Let the kernel take little of what a client writes and this hop does not read."""
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for writer in self._writers:
            theirs = writer.get_extra_info("socket")
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    def verbs(self) -> list[str]:
        return [command.split(" ")[0].upper() for command in self.commands]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        self._writers.append(writer)
        self.connections += 1
        try:
            await self._talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
            pass
        finally:
            writer.transport.abort()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._answer("GREETING", writer)
        while line := await reader.readline():
            command = line.decode().removesuffix("\r\n")
            self.commands.append(command)
            verb = command.split(" ")[0].upper()
            if verb in {"EHLO", "LHLO"}:
                verb = "EHLO"
            answer = await self._answer(command if command in self.script else verb, writer)
            if verb == "DATA" and answer.startswith(b"354"):
                if "EARLY" in self.script:  # some time after the 354, and before the content is read
                    await asyncio.sleep(0.02)
                    await self._answer("EARLY", writer)
                if self.pause:
                    await self.pause()
                if not self.keep_contents:
                    await self._count(reader)
                    await self._answer("DOT", writer)
                    continue
                lines = []
                while not lines or lines[-1] != b".\r\n":
                    lines.append(await reader.readuntil(b"\r\n"))
                content = b"".join(lines)
                self.contents.append(content)
                await self._answer("DOT", writer)
            elif verb == "STARTTLS" and answer.startswith(b"220") and self.tls:
                await writer.start_tls(self.tls)
            elif verb == "QUIT":
                return

    async def _count(self, reader: asyncio.StreamReader) -> None:
        tail = b""
        while tail[-5:] != b"\r\n.\r\n":
            block = await reader.read(65536)
            if not block:
                raise ConnectionResetError
            self.octets += len(block)
            tail = tail[-5:] + block

    async def _answer(self, verb: str, writer: asyncio.StreamWriter) -> bytes:
        if verb in self.script:
            answers = self.script[verb]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
        elif verb == "EHLO":
            lines = ["hop.example", *self.offers]
            answer = "".join(
                f"250{'-' if number < len(lines) else ' '}{line}\r\n" for number, line in enumerate(lines, 1)
            ).encode()
        else:
            answer = DEFAULTS[verb]
        if answer is HANG:
            await asyncio.Event().wait()
        if answer is CLOSE:
            raise ConnectionResetError
        writer.write(answer)
        await writer.drain()
        if answer.startswith(b"421"):
            writer.close()
            raise ConnectionAbortedError
        return answer  # type: ignore[no-any-return]


def envelope(**changes: Any) -> Envelope:
    return Envelope(**{"sender": "sender@example.org", "size": 100} | changes)


def recipients(*addresses: str, **changes: Any) -> list[Recipient]:
    return [
        Recipient(number, address, NextHop("hop"), **changes) for number, address in enumerate(addresses, 1)
    ]


def original(content: bytes) -> bytes:
    """What a server makes of what it read after DATA: dots and the end taken away."""
    return (
        content.removesuffix(b".\r\n")
        .replace(b"\r\n..", b"\r\n.")
        .removeprefix(b"."[: content.startswith(b"..")])
    )
