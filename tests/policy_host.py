"""A policy host of MTA-STS on loopback: a real HTTPS server, which says what a test tells it to."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path

from shadowrelay.authority import authority_pair, init, issue

SILENT = b""

GOOD = "version: STSv1\r\nmode: {mode}\r\nmx: {mx}\r\nmax_age: {max_age}\r\n"


def policy(mx: str = "mail.example.net", *, mode: str = "enforce", max_age: int = 604800) -> str:
    return GOOD.format(mode=mode, mx="\r\nmx: ".join(mx.split()), max_age=max_age)


def answer(
    text: str, *, status: str = "200 OK", kind: str = "text/plain; charset=utf-8", more: str = ""
) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(text)}\r\n{more}\r\n"
    return (head + text).encode()


class PolicyHost:
    """``says``: the octets of its answer; SILENT: none at all. ``asked``: the heads of requests.

    ``directory``: has its own authority, which vouches for ``names``.
    """

    def __init__(self, directory: Path, *names: str, says: bytes = SILENT) -> None:
        if not authority_pair(directory).certificate.exists():
            init(directory, name="policies", now=datetime.now(UTC))
        self.authority = authority_pair(directory).certificate
        self._directory = directory
        self.says = says
        self.asked: list[str] = []
        self.released = asyncio.Event()  # it answers once this is set
        self.released.set()
        self.shows(*names)

    def shows(self, *names: str) -> None:
        """From now on its certificate is for these names."""
        first, *others = names
        pair = issue(self._directory, first, sans=others, now=datetime.now(UTC), force=True)
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(pair.certificate, pair.key)

    async def __aenter__(self) -> PolicyHost:
        self._tasks: set[asyncio.Task[None]] = set()
        await self.start(0)
        return self

    async def start(self, port: int) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def again(self) -> None:
        """Serve at the same port, with the certificate that it shows now."""
        await self.stop()
        await self.start(self.port)

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.asked.append(head.decode())
            await self.released.wait()
            if self.says:
                writer.write(self.says)
                await writer.drain()
            await reader.read()  # until the client goes
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()
