"""A host of MX with a certificate: aiosmtpd's server, by STARTTLS; and attackers between."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP

from shadowrelay.authority import authority_pair, init, issue


def certificate_for(directory: Path, *names: str) -> ssl.SSLContext:
    """For a server with these names, from the authority of that directory, which is made if need be."""
    if not authority_pair(directory).certificate.exists():
        init(directory, name="the world", now=datetime.now(UTC))
    first, *others = names
    pair = issue(directory, first, sans=others, now=datetime.now(UTC), force=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


class _Server(SMTP):
    """aiosmtpd knows no REQUIRETLS: it is taken out of MAIL before aiosmtpd refuses it."""

    def _getparams(self, params: Any) -> Any:
        found = super()._getparams(params)
        hop: TlsHop = self.event_handler
        if found is not None and (hop.requiretls and self.session.ssl is not None):
            hop.asked += found.pop("REQUIRETLS", False)  # of RCPT, too
        return found


class TlsHop:
    """``tls``: what it shows; None: it has no STARTTLS. ``taken``: of each message, did it come under TLS?
    ``requiretls``: it offers REQUIRETLS under TLS. ``asked``: how often that was said.
    """

    def __init__(self, tls: ssl.SSLContext | None, port: int = 0, *, requiretls: bool = False) -> None:
        self.tls = tls
        self.port = port
        self.requiretls = requiretls
        self.taken: list[bool] = []
        self.asked = 0

    async def handle_EHLO(
        self, server: Any, session: Any, envelope: Any, name: str, offered: list[str]
    ) -> list[str]:
        session.host_name = name
        keyword = ["250-REQUIRETLS"] if self.requiretls and session.ssl is not None else []
        return [*offered[:-1], *keyword, offered[-1]]

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.taken.append(session.ssl is not None)
        return "250 2.0.0 ok"

    async def __aenter__(self) -> TlsHop:
        make = lambda: _Server(self, hostname="hop.example", tls_context=self.tls)  # noqa: E731
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(make, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()


class Stripper:
    """Between a client and a host: takes STARTTLS out of what the host offers, and refuses it. ``clear``:
    what the client says in clear text.
    """

    def __init__(self, host: TlsHop) -> None:
        self.host = host
        self.clear = b""
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Stripper:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        there, to = await asyncio.open_connection("127.0.0.1", self.host.port)
        try:
            await asyncio.gather(self._said(reader, to, writer), self._answered(there, writer))
        except ConnectionError:
            pass
        finally:
            to.close()
            writer.close()

    async def _said(
        self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        while line := await reader.readline():
            self.clear += line
            if line.upper().startswith(b"STARTTLS"):
                back.write(b"502 5.5.1 no\r\n")
            else:
                to.write(line)
        to.close()

    async def _answered(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await there.readline():
            if line.strip().upper() != b"250-STARTTLS":
                writer.write(line)
        writer.close()
