"""A sender's connection: what the event loop tells of it, TLS that begins in it, and its end.

What is said in it is in ``lifecycle``. docs/dependencies.md tells, callable by callable, what of
aiosmtpd runs, and what does not.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword, Session
from aiosmtpd.smtp import syntax as library_syntax

from shadowrelay.core.values import replace
from shadowrelay.smtp.duplex import Duplex
from shadowrelay.smtp.receiving.contract import Client, ConnectorOptions, within
from shadowrelay.smtp.receiving.streams import CommandReader, HeaderReader

LINGER = 1.0
"""Seconds that a client which we cut off is given to read why, and any other to take its last reply."""


Verb = TypeVar("Verb", bound=Callable[..., object])


def syntax(text: str, extended: str | None = None) -> Callable[[Verb], Verb]:
    """The library's decorator, for HELP; it has lost the type."""
    return cast("Callable[[Verb], Verb]", library_syntax(text, extended))


class Greeted(Session):
    """The library's session, without the property that logs a warning at every login."""

    login_data = None


@cache
def _named(session: Any, prefix: str) -> list[str]:
    return [name for name in type.__dir__(session) if name.startswith(prefix)]


def claimed(
    server: object, session: object, envelope: object, mechanism: str, claim: LoginPassword
) -> AuthResult:
    """The library's authenticator, which cannot be awaited: ``ReceiveSession`` checks the claim."""
    del server, session, envelope, mechanism
    return AuthResult(success=False, handled=False, auth_data=claim)


class ClientConnection(SMTP):
    """The library's session on octets of our own: ``duplex`` reads and writes, ``client`` is who is there."""

    line_length_limit = 32_768  # of a StreamReader that reads nothing
    AuthLoginUsernameChallenge = "Username:"
    AuthLoginPasswordChallenge = "Password:"

    # Deprecated, or of a timer that closes in the middle of a commit: nothing calls these.
    _auth_interact = None  # type: ignore[assignment]
    _timeout_cb = None  # type: ignore[assignment]

    def __init__(self, options: ConnectorOptions, handler: object) -> None:
        self.options = options
        # Of this session: the library's own table belongs to all, and its constructor clears it.
        self.command_size_limits = defaultdict(lambda: options.max_command_line)
        super().__init__(
            handler,
            data_size_limit=options.max_message_size,
            enable_SMTPUTF8=True,
            hostname=options.hostname,
            ident="LMTP" if options.lmtp else options.greeting,
            tls_context=None if options.implicit_tls else options.tls,
            authenticator=claimed,
            proxy_protocol_timeout=options.proxy_timeout.total_seconds() if options.proxy_networks else None,
            loop=asyncio.get_running_loop(),
        )
        self.duplex: Duplex
        self.client: Client
        self._lost = asyncio.Event()

    def __dir__(self) -> list[str]:
        """What the library's constructor looks for, among all attributes of every session anew: first the
        mechanisms of AUTH, of which it makes ``_auth_methods``, then the verbs.
        """
        if "_auth_methods" in self.__dict__:
            return _named(cast("Any", type(self)), "smtp_")
        return _named(cast("Any", type(self)), "auth_") if self.options.logins else []

    def _create_session(self) -> Session:
        return Greeted(self.loop)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        host, port = (*(transport.get_extra_info("peername") or ("", 0)), 0)[:2]
        self.client = Client(
            id=secrets.token_hex(8).upper(),
            connector=self.options.name,
            address=str(host),
            port=port,
            local=(*(transport.get_extra_info("sockname") or ("", 0)), 0)[:2],
            tls=transport.get_extra_info("ssl_object") is not None,
            certificate=transport.get_extra_info("peercert") or None,
        )
        if self.client.tls:
            self._has_tls(transport)
        if self._proxy_timeout is not None and not self._is_proxy():
            self._proxy_timeout = None
        whole = self.options.connection_timeout
        self.duplex = Duplex(
            transport,  # type: ignore[arg-type]
            self.options.inactivity_timeout.total_seconds(),
            None if whole is None else self.loop.time() + whole.total_seconds(),
        )
        # Without a callback no StreamWriter is made. One that nobody keeps would close the connection: Python
        # 3.13 keeps none.
        self._client_connected_cb = self._strong_reader = None
        self._cb_client_connected()
        super().connection_made(transport)

    def _has_tls(self, transport: asyncio.BaseTransport) -> None:
        """So the library has AUTH. It knows of no TLS but what its own STARTTLS begins."""
        self._tls_protocol = cast("Any", transport)

    def _is_proxy(self) -> bool:
        return within(self.client.address, self.options.proxy_networks)

    def _cb_client_connected(self, reader: object = None, writer: object = None) -> None:
        """In place of the library's streams."""
        del reader, writer
        timeout = self._proxy_timeout
        self._read_with(
            CommandReader(self.duplex, self.next_command)
            if timeout is None
            else HeaderReader(self.duplex, self.loop.time() + timeout)
        )

    def renew_envelope(self) -> None:
        """The transaction is over."""
        self._set_post_data_state()  # type: ignore[no-untyped-call]

    def _read_with(self, reader: CommandReader | HeaderReader) -> None:
        self._reader = self._writer = cast("Any", reader)

    async def next_command(self) -> bytes:
        """The next line that the library may see."""
        raise NotImplementedError

    def _reset_timeout(self, duration: float | None = None) -> None:
        """``duplex`` has the deadlines: the library's timer closes while a message is committed."""

    def connection_lost(self, error: Exception | None) -> None:
        self._lost.set()
        self.duplex.lost()  # the task is not cancelled: it finds out after what must be finished is finished
        asyncio.StreamReaderProtocol.connection_lost(self, error)

    def data_received(self, data: bytes) -> None:
        self.duplex.received(data)

    def pause_writing(self) -> None:
        self.duplex.unwritable()

    def resume_writing(self) -> None:
        self.duplex.writable()

    def eof_received(self) -> bool | None:
        self.duplex.ended()  # a client may close its direction after the final dot and wait for the reply
        return asyncio.StreamReaderProtocol.eof_received(self)

    def secured(self, transport: asyncio.Transport) -> None:
        """TLS is active: speak through it, and know nothing of what was said before (RFC 3207)."""
        self.transport = transport
        # asyncio can put TLS under a protocol, but offers no way to tell the streams above it.
        self._transport = transport
        self._over_ssl = True
        self._has_tls(transport)
        self.session = self._create_session()
        self.duplex.secured(transport)
        certificate = transport.get_extra_info("peercert") or None
        self.client = replace(
            self.client, tls=True, certificate=certificate, helo="", service="SMTP", login=""
        )

    async def close(self) -> None:
        """Close the connection. A client that takes nothing would keep it open for as long as it likes, so
        its place is free only when it is gone.
        """
        if self.transport is None:
            return
        transport = cast("asyncio.WriteTransport", self.transport)
        unsent = not self._lost.is_set() and transport.get_write_buffer_size()
        transport.close()
        if not unsent:
            return
        try:
            async with asyncio.timeout(LINGER):
                await self._lost.wait()
        except TimeoutError:
            transport.abort()

    def release(self) -> None:
        """Nothing more is said: cut what would keep this session until the garbage is collected."""
        self._smtp_methods, self._auth_methods = {}, {}
        self._reader = self._writer = cast("Any", None)
