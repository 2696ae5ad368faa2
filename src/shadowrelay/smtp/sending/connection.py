"""A connection to a next hop. aiosmtplib's client connects, greets, starts TLS, logs in and quits, on our
protocol.

The mail transaction is not the library's: it would not pipeline, and would rewrite the content. It is written
on the client's ``protocol`` (``transaction``). docs/dependencies.md says which parts of the library run.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, cast

import structlog
from aiosmtplib import SMTP
from aiosmtplib.errors import (
    SMTPAuthenticationError,
    SMTPException,
    SMTPHeloError,
    SMTPReadTimeoutError,
    SMTPResponseException,
    SMTPServerDisconnected,
)
from aiosmtplib.protocol import SMTPProtocol
from aiosmtplib.response import SMTPResponse
from aiosmtplib.typing import SMTPStatus

from shadowrelay.core.delivery.mx import DnsTrouble
from shadowrelay.core.delivery.tls_policy import ANYTHING, FailedTls
from shadowrelay.core.identifiers import Mark, ServerName
from shadowrelay.core.values import dataclass, replace
from shadowrelay.smtp.sending.hop import (
    Awaited,
    ConnectionFailed,
    Login,
    NextHopServer,
    NoPassword,
    Pinned,
    SessionStep,
    masked,
    one_line,
    read_password,
)
from shadowrelay.smtp.sending.message import Extensions
from shadowrelay.smtp.sending.shown import NotShown, check_dane, result_of
from shadowrelay.wire.replies import Reply, ReplyError, ReplyReader, shown
from shadowrelay.wire.xshadow import Malformed, parse_mark

log = structlog.get_logger(__name__)

Lookup = Callable[[str], Awaitable[Sequence[str]]]
"""From a host to the addresses that a connection tries, at least one. Raises DnsTrouble."""

LONGEST_REPLY = 256 * 1024
"""Octets that are kept. A longer reply still means what its code says, so it is read to its end."""

_LONGEST_SHOWN = 600  # octets that are kept of what came unasked

_MECHANISM = re.compile(r"[a-z0-9_-]{1,20}", re.ASCII)  # RFC 4422 3.1, as the library spells it


class HopProtocol(SMTPProtocol):
    """The octets of one connection: pipelined and long replies, and writing with backpressure. A session owns
    it: it is not for two tasks at once.

    The library reads one reply per command, drops what arrives with it, and refuses a reply over 32 KiB. Here
    replies are counted: as many are read as commands were written, in order. What comes before it was asked
    for answers nothing, and neither does anything behind it: the next command ends the session.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, lost: Callable[[SMTPProtocol], None] | None = None
    ) -> None:
        super().__init__(loop=loop, connection_lost_callback=lost)
        self._reader = ReplyReader(LONGEST_REPLY, cuts=True)
        self._unasked = bytearray()  # the beginning of what came while nothing was expected
        self._replies: deque[Reply] = deque()
        self._due = 1  # replies that are not read yet: the greeting
        self._broken: Exception | None = None
        self._waiting: asyncio.Future[None] | None = None
        self.marked = False  # the hop ends its replies with its mark, which we keep and take off
        self.mark: Mark | None = None  # of the last reply

    def data_received(self, data: bytes) -> None:
        try:
            # Good replies count although rubbish follows them in the same segment.
            if not self._broken and (read := self._reader.take(data, self._replies, self._due)) < len(data):
                self._unasked += data[read : read + _LONGEST_SHOWN - len(self._unasked)]
        except ReplyError as error:
            self._break(unreadable(error.said or str(error)))
            self.abort()
        self._wake()

    def eof_received(self) -> bool:
        self._break_off(SMTPServerDisconnected("closed by the next hop"))
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._break_off(SMTPServerDisconnected(f"connection lost: {exc}" if exc else "connection lost"))
        super().connection_lost(exc)

    def expect(self, replies: int = 1) -> None:
        """Read that many more replies: to be called before the commands are written that they answer.

        Raises SMTPResponseException, the connection aborted, if anything came before.
        """
        if self._unasked:
            error = unreadable(f"it spoke before it was asked: {self.unasked}")
            self._break(error)
            self.abort()
            raise error
        self._due += replies

    async def write_block(self, block: bytes, timeout: float) -> None:
        """Write, then wait until the transport wants more: what is unsent stays below a block.

        Raises TimeoutError when the next hop takes nothing for that many seconds.
        """
        self.write(block)
        if self._paused:
            async with asyncio.timeout(timeout):
                await self._drain_helper()

    async def reply(self, timeout: float | None) -> Reply:
        """The reply to the oldest command not yet answered; replies that came before an end are still read.

        Raises SMTPServerDisconnected, SMTPReadTimeoutError (the connection is aborted then: a late reply must
        not answer a later command), or SMTPResponseException with code -1 for what is no reply or breaks off.
        """
        if not self._replies:
            alarm = None if timeout is None else self._loop.call_later(timeout, self._too_late)
            try:
                while not self._replies:
                    if self._broken:
                        raise self._broken
                    self._waiting = self._loop.create_future()
                    await self._waiting
            finally:
                self._waiting = None
                if alarm is not None:
                    alarm.cancel()
        reply = self._replies.popleft()
        self._due -= 1
        if self.marked:
            reply, self.mark = unmarked(reply)
        return reply

    def _too_late(self) -> None:
        self._break_off(SMTPReadTimeoutError("no reply in time"))
        self.abort()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def execute_command(self, *args: bytes, timeout: float | None = None) -> SMTPResponse:
        """A command of the library's own, and its reply."""
        self.expect()
        return await super().execute_command(*args, timeout=timeout)

    async def start_tls(
        self, tls_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> SMTPResponse:
        """STARTTLS, and the handshake. What arrives behind the reply is dropped: nothing more is expected."""
        self.expect()
        response = await super().start_tls(tls_context, server_hostname=server_hostname, timeout=timeout)
        self._unasked.clear()  # under TLS a new session begins
        return response

    async def execute_data_command(self, message: bytes, timeout: float | None = None) -> SMTPResponse:
        """Not used: the library would rewrite the content, and take a lost reply for any other error."""
        raise NotImplementedError("content leaves by DeliveryTransaction")

    async def read_response(self, timeout: float | None = None) -> SMTPResponse:
        """As ``reply``, for the library's own commands."""
        reply = await self.reply(timeout)
        text = "\n".join(reply.lines)
        return SMTPResponse(reply.code, f"{reply.enhanced} {text}" if reply.enhanced else text)

    @property
    def unasked(self) -> str:
        """What came while no reply was due, in one printable line; '' if nothing did. It answers nothing."""
        return shown(self._unasked.splitlines()) if self._unasked else ""

    def abort(self) -> None:
        """Close at once; what is buffered is not sent."""
        if self.transport is not None:
            cast(asyncio.WriteTransport, self.transport).abort()

    def _break_off(self, error: Exception) -> Exception:
        """No more comes: what has come of a reply is none."""
        begun = self._reader.begun
        return self._break(unreadable(f"{begun} [breaks off]") if begun else error)

    def _break(self, error: Exception) -> Exception:
        """Returns the first error of all, which counts."""
        self._broken = self._broken or error
        self._wake()
        return self._broken


def unreadable(said: str) -> SMTPResponseException:
    """The error for what is no reply: ``said``, and the library's own code for that."""
    return SMTPResponseException(SMTPStatus.invalid_response.value, said)


SESSION_ERRORS = (SMTPException, OSError, TimeoutError)
"""What talking to a next hop may raise."""


class HopClient(SMTP):
    """For one connection. Each of its commands raises what the library raises: see ``step``. ``awaits`` is
    kept up to date.
    """

    protocol: HopProtocol | None

    def __init__(self, server: NextHopServer, awaits: Awaited, lookup: Lookup | None = None) -> None:
        # Without a local hostname the library would look one up in the DNS, and block the event loop for it.
        super().__init__(
            hostname=server.host,
            port=server.port,
            local_hostname=server.local_hostname,
            start_tls=False,
            timeout=server.timeouts.ehlo,
        )
        self.server = server
        self.awaits = awaits
        self.lookup = lookup
        if server.login is not None:
            # One alone: after a refusal ``login`` goes on to the next mechanism.
            self.AUTH_METHODS = (server.login.mechanism,)

    async def _create_connection(self, timeout: float | None) -> SMTPResponse:
        """Connect, and hear the greeting. The library's own hard-codes its protocol, and has one deadline for
        both. Raises ConnectionFailed.
        """
        loop = asyncio.get_running_loop()
        with self.step("dns"):
            found = await self.lookup(self.server.host) if self.lookup else (self.server.host,)
        with self.step("connect"):
            self.transport, self.protocol = await _connected_to_one(
                found, lambda: HopProtocol(loop, self._on_connection_lost), self.server.port, timeout
            )
        with self.step("greeting"):
            greeting = await self.protocol.read_response(self.server.timeouts.greeting)
            if greeting.code != SMTPStatus.ready:
                raise SMTPResponseException(greeting.code, greeting.message)
        return greeting

    async def lhlo(self) -> SMTPResponse:
        """LHLO, the EHLO of LMTP (RFC 2033 4.1)."""
        response = await self.execute_command(b"LHLO", self.server.local_hostname.encode("ascii"))
        if response.code != SMTPStatus.completed:
            raise SMTPHeloError(response.code, response.message)
        self.last_ehlo_response = response
        return response

    @contextmanager
    def step(self, name: SessionStep) -> Iterator[None]:
        """Turn what the library raises into ConnectionFailed, with the server's own words if any."""
        self.awaits.begin(name)
        try:
            yield
        except SMTPResponseException as error:
            if error.code < 0:
                raise ConnectionFailed(name, error.message) from error
            reply = Reply(error.code, None, tuple(error.message.split("\n")))
            raise ConnectionFailed(name, "refused", reply=one_line(reply)) from error
        except (*SESSION_ERRORS, DnsTrouble, UnicodeError) as error:  # the last: a name that is none for TLS
            raise ConnectionFailed(name, describe(error)) from error
        finally:
            self.awaits.end()


async def _connected_to_one(
    addresses: Sequence[str], protocol: Callable[[], HopProtocol], port: int, timeout: float | None
) -> tuple[asyncio.Transport, HopProtocol]:
    """A connection to the first address that takes one; each has ``timeout`` seconds (RFC 5321 5.1)."""
    failed: OSError | None = None
    for address in addresses:
        try:
            async with asyncio.timeout(timeout):
                return await _connected(address, protocol, port)
        except OSError as error:  # TimeoutError is one
            failed = error
    raise failed or OSError("no address")


async def _connected(
    address: str, protocol: Callable[[], HopProtocol], port: int
) -> tuple[asyncio.Transport, HopProtocol]:
    loop = asyncio.get_running_loop()
    if address.startswith("/"):
        return await loop.create_unix_connection(protocol, address)
    return await loop.create_connection(protocol, address, port)


def describe(error: BaseException) -> str:
    """An error in one line, for the log and the queue list. For what is no reply: the server's own text."""
    return no_reply(error) or str(error) or type(error).__name__


def no_reply(error: BaseException) -> str:
    """The server's text that is no reply; '' for any other error."""
    return error.message if isinstance(error, SMTPResponseException) else ""


@dataclass(slots=True)
class HopConnection:
    """A session past EHLO, and AUTH. ``protocol`` is the client's, which forgets it when the connection is
    lost: then replies may still be read. ``encrypted`` is the TLS version, '' for clear text. ``peer``: the
    hop whose pinned certificate the server has shown. ``told``: what failed of TLS that is being tested.
    """

    client: HopClient
    protocol: HopProtocol
    extensions: Extensions
    encrypted: str = ""
    peer: ServerName | None = None
    told: FailedTls | Literal[""] = ""


async def open_connection(
    server: NextHopServer, awaits: Awaited, lookup: Lookup | None = None
) -> HopConnection:
    """Connect, introduce ourselves, and log in where a login is set. Raises ConnectionFailed.

    ``lookup`` gives the addresses of the host, anew for each connection; without it the system looks it up.

    Where TLS is opportunistic and fails, a second connection is made in clear text: the first one is in no
    known state. Where it is required, or ``wanted``, nothing is said in clear text after EHLO. A server that
    is to show a pinned certificate, and fails to, gets nothing. What is wanted for a test alone, and fails,
    is told; then the settings alone count.
    """
    told = server.wanted.told
    try:
        connection = await _open(server, awaits, lookup)
    except ConnectionFailed as failure:
        if server.wanted.testing and failure.result:
            log.warning("tls_tested_and_failed", host=server.host, result=failure.result, error=failure.error)
            told = failure.result
            connection = await open_connection(replace(server, wanted=ANYTHING), awaits, lookup)
        elif failure.step != "tls" or not _falls_back(server):
            raise
        else:
            log.warning(
                "tls_failed_falling_back", next_hop=server.name, host=server.host, error=failure.error
            )
            connection = await _open(replace(server, tls="none", wanted=ANYTHING), awaits, lookup)
    connection.told = told
    return connection


def _falls_back(server: NextHopServer) -> bool:
    return server.tls == "opportunistic" and not (server.shows_pinned or server.wanted.never_clear)


async def _open(server: NextHopServer, awaits: Awaited, lookup: Lookup | None) -> HopConnection:
    client = HopClient(server, awaits, lookup)
    await client.connect(timeout=server.timeouts.connect)
    protocol = client.protocol
    if protocol is None:
        raise ConnectionFailed("greeting", "closed by the next hop")
    try:
        connection = HopConnection(client, protocol, await _introduce(client))
        if server.pinned and (where := client.get_transport_info("peername")):
            connection.peer = server.pinned.believed(str(where[0]))
        if server.tls != "none" or server.wanted.kind != "opportunistic":
            await _encrypt(connection)
        if server.login is not None:
            await _log_in(client, server.login)
    except BaseException:
        protocol.abort()
        raise
    return connection


async def _introduce(client: HopClient) -> Extensions:
    server = client.server
    with client.step("ehlo"):
        try:
            await (client.lhlo() if server.protocol == "lmtp" else client.ehlo())
        except SMTPHeloError as refused:
            if not 500 <= refused.code < 600 or server.protocol == "lmtp" or server.tls == "required":
                raise
            # A server older than EHLO (RFC 5321 3.2); it has no extensions.
            await client.helo()
    return {keyword.upper(): arguments.strip() for keyword, arguments in client.esmtp_extensions.items()}


async def _encrypt(connection: HopConnection) -> None:
    client, server = connection.client, connection.client.server
    wanted = server.wanted
    if "STARTTLS" not in connection.extensions:
        if wanted.kind != "opportunistic":
            raise ConnectionFailed("tls", "STARTTLS is not offered", result="starttls-not-supported")
        if server.tls == "required":
            raise ConnectionFailed("tls", "STARTTLS is not offered")
        return
    try:
        with client.step("tls"):
            context = await asyncio.to_thread(context_for, server)
            name = wanted.names[0] if wanted.names else None
            await client.starttls(tls_context=context, server_hostname=name, timeout=server.timeouts.tls)
            shown: ssl.SSLObject = client.get_transport_info("ssl_object")
            connection.encrypted = shown.version() or "TLS"
    except ConnectionFailed as failure:
        if wanted.kind != "opportunistic":
            failure.result = "starttls-not-supported" if failure.reply else result_of(failure.__cause__)
        raise
    if server.pinned and connection.peer is None and server.shows_pinned:
        connection.peer = pinned_hop(server.pinned, shown)
    elif wanted.kind == "dane":
        try:
            await asyncio.to_thread(check_dane, shown, wanted)
        except NotShown as error:
            raise ConnectionFailed("tls", str(error), result=error.result) from error
    # What was offered in clear text may come from anybody (RFC 3207 4.2): the client has forgotten it.
    connection.extensions = await _introduce(client)


async def _log_in(client: HopClient, login: Login) -> None:
    """AUTH (RFC 4954), once. A refusal here is about us, and not about any message."""
    if login.mechanism not in client.server_auth_methods:
        offered = [name.upper() for name in client.server_auth_methods if _MECHANISM.fullmatch(name)]
        raise ConnectionFailed(
            "auth", f"{login.mechanism.upper()} is not offered, but {', '.join(offered[:10]) or 'nothing'}"
        )
    try:
        password = await asyncio.to_thread(read_password, login.password_file)
    except NoPassword as error:
        # Without the path: the senders of waiting messages are told this reason.
        raise ConnectionFailed("auth", f"password_file {error}") from error
    with client.step("auth"):
        try:
            await client.login(login.username, password, timeout=client.server.timeouts.auth)
        except SMTPResponseException as error:
            said = masked(error.message, login.username, password)
            raise SMTPAuthenticationError(error.code, said) from None


def context_for(server: NextHopServer) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=server.ca_file)
    if server.pinned and server.pinned.certificate:
        context.load_cert_chain(server.pinned.certificate, server.pinned.key)
    if server.shows_pinned or (server.tls != "required" and server.wanted.kind != "pkix"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.check_hostname = server.check_hostname or server.wanted.kind == "pkix"
    return context


def pinned_hop(pinned: Pinned, shown: ssl.SSLObject) -> ServerName:
    certificate = shown.getpeercert(binary_form=True)
    if certificate is None or certificate not in pinned.peers:
        names = ", ".join(sorted(pinned.peers.values()))
        raise ConnectionFailed("tls", f"the certificate is not the pinned one of {names}")
    return pinned.peers[certificate]


def unmarked(reply: Reply) -> tuple[Reply, Mark | None]:
    """The reply without the mark that ends it, and the mark; the whole reply if there is none."""
    *before, last = reply.lines or ("",)
    text, _, word = last.rpartition(" ")
    try:
        mark = parse_mark(word)
    except Malformed:
        return reply, None
    return Reply(reply.code, reply.enhanced, (*before, text) if before else text), mark
