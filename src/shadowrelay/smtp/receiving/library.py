"""aiosmtpd's session on octets of our own: its streams, the event loop's calls, TLS, AUTH, and its end.

docs/dependencies.md tells, callable by callable, what of aiosmtpd runs, and what does not.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import ssl
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, TypeVar, cast

import structlog
from aiosmtpd.proxy_protocol import AF, PROTO, V2_CMD, V2_SIGNATURE, ProxyData
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword, Session
from aiosmtpd.smtp import syntax as library_syntax

from shadowrelay.core.values import replace
from shadowrelay.smtp.duplex import LINGER, Duplex, Interrupted, Why
from shadowrelay.smtp.receiving.contract import Client, ConnectorOptions
from shadowrelay.smtp.receiving.transaction import MailTransaction
from shadowrelay.wire.esmtp import LINE_EXTENSIONS
from shadowrelay.wire.networks import within
from shadowrelay.wire.replies import Refused

log = structlog.get_logger(__name__)

_HANDSHAKE = 30.0  # seconds

_MOST_SASL = 12_288
"""RFC 4954 section 4: octets of a line in an authentication exchange, CRLF included."""

_MOST_V1 = 107
"""Octets of a version 1 header, CRLF included."""

_LOCAL = V2_SIGNATURE + b"\x20"
"""The octets before the address family, which means nothing where a proxy speaks for itself."""

_V1 = re.compile(
    rb"PROXY (?:UNKNOWN(?: [ -~]*)?"
    rb"|TCP4(?: [0-9.]+){2}(?: (?:0|[1-9][0-9]{0,4})){2}"
    rb"|TCP6(?: [0-9A-Fa-f.:]+){2}(?: (?:0|[1-9][0-9]{0,4})){2})\r\n"
)

T = TypeVar("T")
SmtpVerb = TypeVar("SmtpVerb", bound=Callable[..., object])


def syntax(text: str, extended: str | None = None) -> Callable[[SmtpVerb], SmtpVerb]:
    """The library's decorator, for HELP; it has lost the type."""
    return cast("Callable[[SmtpVerb], SmtpVerb]", library_syntax(text, extended))


class CommandReader:
    """The library reads commands from this. ``next_command`` returns the next line that it may see.

    A StreamReader would copy all that arrives once more, wake the task once more, and return what a command
    must not be.
    """

    def __init__(self, duplex: Duplex, next_command: Callable[[], Awaitable[bytes]]) -> None:
        self._duplex = duplex
        self.readuntil = next_command

    async def readline(self) -> bytes:
        """A line of an authentication exchange. Raises Refused."""
        line = await self._duplex.read_line(_MOST_SASL)
        if line is None:
            raise Refused(500, "5.5.6", "Authentication exchange line is too long")
        if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
            raise Refused(500, "5.5.2", "Line must end in CRLF")
        return line

    def close(self) -> None:
        """The library calls this when it is cancelled; ``LibrarySession.close`` closes the connection."""


class HeaderReader:
    """The library reads a PROXY header from this, and nothing behind it. ``deadline`` is a loop time."""

    def __init__(self, duplex: Duplex, deadline: float) -> None:
        self._duplex = duplex
        self._deadline = deadline
        self._begun = b""  # what was read, up to the address family

    async def read(self, most: int) -> bytes:
        block = await self._duplex.read_block(most, self._deadline)
        at = len(_LOCAL) - len(self._begun)
        if 0 <= at < len(block) and self._begun + block[:at] == _LOCAL:
            block = block[:at] + b"\0" + block[at + 1 :]  # else the library would want addresses
        self._begun += block[: at + 1]
        return block

    async def readexactly(self, octets: int) -> bytes:
        found = b""
        while len(found) < octets:
            found += await self.read(octets - len(found))
        return found

    async def readuntil(self, separator: bytes = b"\n") -> bytes:
        """Up to the end of the line, or to what is too long for a header."""
        found = b""
        while not found.endswith(separator) and len(found) < _MOST_V1:
            found += await self.read(1)
        return found

    def close(self) -> None:
        """See ``CommandReader``."""


_NO_CLIENT = frozenset(
    {
        (AF.UNSPEC, PROTO.UNSPEC),
        (AF.INET, PROTO.DGRAM),
        (AF.INET6, PROTO.DGRAM),
        (AF.UNIX, PROTO.STREAM),
        (AF.UNIX, PROTO.DGRAM),
    }
)
"""What the proxy's own document has besides TCP: no such client speaks SMTP, so the connection's own address
counts. Any other pair is none that a proxy may send.
"""


def client_of(header: ProxyData) -> tuple[str, int] | None:
    """Address and port of the client behind a proxy; None where the connection's own address counts: the
    proxy speaks for itself, or names nobody who has an address of TCP.

    Raises ValueError for what the library lets pass: other spellings of version 1, and pairs of family and
    protocol that there are not.
    """
    if header.version == 1:
        if _V1.fullmatch(header.whole_raw) is None:
            raise ValueError("not as version 1 is written")
    elif header.command == V2_CMD.LOCAL:
        return None
    if (header.family, header.protocol) in _NO_CLIENT:
        return None
    source = header.src_addr
    if header.protocol != PROTO.STREAM or not isinstance(source, IPv4Address | IPv6Address):
        raise ValueError("not a TCP connection")
    if isinstance(source, IPv6Address) and source.ipv4_mapped is not None:  # of a socket that takes both
        source = ip_address(source.ipv4_mapped)
    return str(source), header.src_port or 0


class Greeted(Session):
    """The library's session, without the property that logs a warning at every login."""

    login_data = None


@cache
def _named(session: Any, prefix: str) -> list[str]:
    return [name for name in type.__dir__(session) if name.startswith(prefix)]


def claimed(
    server: object, session: object, envelope: object, mechanism: str, claim: LoginPassword
) -> AuthResult:
    """The library's authenticator, which cannot be awaited: ``_checked`` checks the claim."""
    del server, session, envelope, mechanism
    return AuthResult(success=False, handled=False, auth_data=claim)


class LibrarySession(SMTP):
    """The library's session, the base of ours. ``duplex`` reads and writes; ``client`` says who is there."""

    line_length_limit = 32_768  # of a StreamReader that reads nothing
    AuthLoginUsernameChallenge = "Username:"
    AuthLoginPasswordChallenge = "Password:"

    _patient: asyncio.Task[Any] | None = None  # see _awaited

    # Deprecated, of a timer that closes in the middle of a commit, or of MAIL and RCPT: nothing calls these.
    _auth_interact = None  # type: ignore[assignment]
    _timeout_cb = None  # type: ignore[assignment]
    _strip_command_keyword = None  # type: ignore[assignment]
    _getparams = None  # type: ignore[assignment]

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
        self.envelope: MailTransaction | None
        self._lost = asyncio.Event()
        self.limit_commands()

    def limit_commands(self) -> None:
        """Set what our extensions need. The library adds to MAIL's limit at each EHLO."""
        base = self.options.max_command_line
        for verb, more in LINE_EXTENSIONS.items():
            self.command_size_limits[verb] = base + more
        self.command_size_limit = self.max_command_size_limit

    def __dir__(self) -> list[str]:
        """The names that the library's constructor wants; it would look at all attributes of every session.
        First it wants the mechanisms of AUTH, for ``_auth_methods``, then the verbs.
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
        # Without a callback no StreamWriter is made. One that nobody keeps would close the connection, and
        # Python 3.13 keeps none.
        self._client_connected_cb = self._strong_reader = None
        self._cb_client_connected()
        super().connection_made(transport)

    def _has_tls(self, transport: asyncio.BaseTransport) -> None:
        """Make the library allow AUTH: it knows of no TLS but its own STARTTLS."""
        self._tls_protocol = cast("Any", transport)
        if secured := transport.get_extra_info("ssl_object"):
            self.client = replace(self.client, tls_version=secured.version() or "")

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

    def _read_with(self, reader: CommandReader | HeaderReader) -> None:
        self._reader = self._writer = cast("Any", reader)

    def next_command(self) -> Awaitable[bytes]:
        """The next line that the library may see."""
        raise NotImplementedError

    def _reset_timeout(self, duration: float | None = None) -> None:
        """``duplex`` has the deadlines: the library's timer closes while a message is committed."""

    def connection_lost(self, error: Exception | None) -> None:
        self._lost.set()
        self.give_up_waiting()
        self.duplex.lost()  # the task is not cancelled: it first finishes what must be finished
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

    async def start_tls(self, context: ssl.SSLContext, transport: asyncio.BaseTransport) -> None:
        """Shake hands; then speak through TLS, and know nothing of what was said before (RFC 3207)."""
        try:
            secured = await self.loop.start_tls(
                transport,  # type: ignore[arg-type]
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=_HANDSHAKE,
            )
        except OSError as error:
            self.tls_failed(error)
            raise Interrupted(Why.GONE) from None
        if secured is None:
            raise Interrupted(Why.GONE)
        self._secured(secured)

    def tls_failed(self, error: OSError) -> None:
        """Hook: the handshake failed, and the connection ends."""
        log.info("tls_handshake_failed", client=self.client.address, error=str(error))

    def _secured(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        # asyncio can put TLS under a protocol, but offers no way to tell the streams above it.
        self._transport = transport
        self._over_ssl = True
        self._has_tls(transport)
        self.session = self._create_session()
        self.duplex.secured(transport)
        certificate = transport.get_extra_info("peercert") or None
        self.client = replace(
            self.client, tls=True, certificate=certificate, helo="", service="SMTP", login="", mechanism=""
        )

    # The envelope is the mail transaction

    @property
    def transaction(self) -> MailTransaction | None:
        """The one that is under way."""
        envelope = self.envelope
        return envelope if envelope is not None and envelope.mail_from is not None else None

    def _create_envelope(self) -> MailTransaction:
        return MailTransaction(self.options)

    def _set_rset_state(self) -> None:
        """Only at the beginning. Later the library's next step awaits ``forget``, which does it."""
        if self.envelope is None:
            super()._set_rset_state()  # type: ignore[no-untyped-call]

    def renew_envelope(self) -> None:
        """The transaction is over."""
        self._set_post_data_state()  # type: ignore[no-untyped-call]

    # AUTH PLAIN and LOGIN (RFC 4954, RFC 4616): the library's exchanges, with a check that is awaited.
    # Passwords are kept nowhere, and are in no log. SCRAM is an exchange of our own.

    @syntax("AUTH <mechanism>")
    async def smtp_AUTH(self, arg: str | None) -> None:
        if self.transaction is not None:
            raise Refused(503, "5.5.1", "A transaction is under way")
        mechanism, _, response = (arg or "").partition(" ")
        await super().smtp_AUTH(f"{mechanism.upper()} {response}".rstrip())
        if self.client.login:
            self.client = replace(self.client, mechanism=mechanism.upper())

    async def auth_PLAIN(self, _: object, args: list[str]) -> AuthResult:
        return await self._checked(await super().auth_PLAIN(_, args))

    async def auth_LOGIN(self, _: object, args: list[str]) -> AuthResult:
        return await self._checked(await super().auth_LOGIN(_, args))

    async def auth_SCRAM__SHA__256(self, _: object, args: list[str]) -> AuthResult:
        """RFC 7677. The last challenge is the server's proof, which the client answers with nothing."""
        from shadowrelay.smtp.receiving.scram import (
            Exchange,
            ProofRefused,
        )  # takes 30 ms, which few nodes need

        logins = self.options.logins
        if logins is None or not logins.scram:
            return AuthResult(
                success=False, handled=False, message="504 5.5.4 Unrecognized authentication type"
            )
        exchange = Exchange(logins.verifier)
        right = False
        try:
            challenge = exchange.begin(await self._initial(args))
            challenge = exchange.end(await self._challenged(challenge))
            right = await self._challenged(challenge) == b""
        except ProofRefused as refused:
            log.debug("proof_refused", session=self.client.id, error=str(refused))
        logins.proven(self.client, exchange.name, right=right)
        if right:
            self.client = replace(self.client, login=exchange.name)
        return AuthResult(success=right, handled=False)

    async def _initial(self, args: list[str]) -> bytes:
        """The initial response (RFC 4954 section 4), or the answer to an empty challenge. Raises Refused."""
        if len(args) < 2:
            return await self._challenged(b"")
        try:
            return b64decode("" if args[1] == "=" else args[1], validate=True)
        except ValueError:
            raise Refused(501, "5.5.2", "Can't decode base64") from None

    async def _challenged(self, challenge: bytes) -> bytes:
        """What the client answers to a challenge. Raises Refused."""
        await self.push(b"334 " + b64encode(challenge))
        line = (await self._reader.readline()).strip()
        if line == b"*":
            raise Refused(501, "5.7.0", "Auth aborted")
        try:
            return b64decode(line, validate=True)
        except ValueError:
            raise Refused(501, "5.5.2", "Can't decode base64") from None

    async def _checked(self, result: AuthResult) -> AuthResult:
        """The claim that the exchange led to, if it did; without the password."""
        claim, logins = result.auth_data, self.options.logins
        if not isinstance(claim, LoginPassword) or logins is None:
            return result
        name = claim.login.decode("utf-8", "replace")
        right = await self._awaited(logins.check(self.client, name, claim.password))
        if right:
            self.client = replace(self.client, login=name)
        return AuthResult(success=right, handled=False)

    # A login may wait for many others, and MAIL while resources are scarce. That is cancelled when the client
    # has gone, or has to go.

    async def _awaited(self, wait: Coroutine[None, None, T]) -> T:
        self._patient = asyncio.ensure_future(wait)
        try:
            return cast("T", await self._patient)
        except asyncio.CancelledError:
            gone = self._lost.is_set() or self.duplex.over
            raise Interrupted(Why.GONE if gone else Why.STOPPING) from None
        finally:
            self._patient = None

    def give_up_waiting(self) -> None:
        if self._patient is not None:
            self._patient.cancel()

    # The end

    async def close(self) -> None:
        """Close the connection. If replies are unsent, wait ``LINGER`` seconds at most until the client has
        taken them; its place is not free before.
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
        """The session is over: cut the cycles that would keep it until the garbage is collected."""
        self._smtp_methods, self._auth_methods = {}, {}
        self._reader = self._writer = cast("Any", None)
