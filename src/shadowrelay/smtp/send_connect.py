"""Opening a session with a next hop: connect, greeting, EHLO or LHLO, STARTTLS."""

from __future__ import annotations

import asyncio
import ssl

import structlog
from aiosmtplib.errors import SMTPException, SMTPResponseException

from shadowrelay.core.values import dataclass, replace
from shadowrelay.smtp.send_commands import Offer
from shadowrelay.smtp.send_hop import ConnectionFailed, NextHopServer, Step
from shadowrelay.smtp.send_protocol import HopProtocol
from shadowrelay.smtp.send_replies import one_line
from shadowrelay.wire.esmtp import extensions
from shadowrelay.wire.replies import Reply

SESSION_ERRORS = (SMTPException, OSError, TimeoutError)
"""What talking to a next hop may raise."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Connection:
    """A session past EHLO. ``encrypted`` is the TLS version, '' for clear text."""

    protocol: HopProtocol
    offer: Offer
    encrypted: str = ""


async def open_connection(server: NextHopServer) -> Connection:
    """Connect and introduce ourselves. Raises ConnectionFailed.

    Where TLS is opportunistic and fails, a second connection is made in clear text: the first one is in no
    known state. Where it is required, nothing is said in clear text after EHLO.
    """
    try:
        return await _open(server)
    except ConnectionFailed as failure:
        if failure.step != "tls" or server.tls != "opportunistic":
            raise
        log.warning("tls_failed_falling_back", next_hop=server.name, host=server.host, error=failure.error)
        return await _open(replace(server, tls="none"))


async def _open(server: NextHopServer) -> Connection:
    protocol = await _connect(server)
    try:
        await _greeting(protocol, server)
        connection = Connection(protocol, await _introduce(protocol, server))
        if server.tls != "none":
            await _encrypt(connection, server)
    except BaseException:
        protocol.abort()
        raise
    return connection


async def _connect(server: NextHopServer) -> HopProtocol:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(server.timeouts.connect):
            _, protocol = await loop.create_connection(lambda: HopProtocol(loop), server.host, server.port)
    except (OSError, TimeoutError) as error:
        raise ConnectionFailed("connect", describe(error)) from error
    return protocol


async def _greeting(protocol: HopProtocol, server: NextHopServer) -> None:
    reply = await _ask(protocol, b"", "greeting", server.timeouts.greeting)
    if reply.code != 220:
        raise ConnectionFailed("greeting", "refused", reply=one_line(reply))


async def _introduce(protocol: HopProtocol, server: NextHopServer) -> Offer:
    name = server.local_hostname.encode()
    verb = b"LHLO " if server.protocol == "lmtp" else b"EHLO "
    reply = await _ask(protocol, verb + name, "ehlo", server.timeouts.ehlo)
    if reply.positive:
        return extensions(reply)
    if reply.permanent and server.protocol == "smtp" and server.tls != "required":
        # A server older than EHLO (RFC 5321 3.2); it has no extensions.
        reply = await _ask(protocol, b"HELO " + name, "ehlo", server.timeouts.ehlo)
        if reply.positive:
            return {}
    raise ConnectionFailed("ehlo", "refused", reply=one_line(reply))


async def _encrypt(connection: Connection, server: NextHopServer) -> None:
    if "STARTTLS" not in connection.offer:
        if server.tls == "required":
            raise ConnectionFailed("tls", "STARTTLS is not offered")
        return
    protocol = connection.protocol
    try:
        context = await asyncio.to_thread(_context, server)
        protocol.expect()
        await protocol.start_tls(context, server_hostname=server.host, timeout=server.timeouts.tls)
    except SMTPResponseException as error:
        raise ConnectionFailed("tls", "refused", reply=f"{error.code} {error.message}"[:600]) from error
    except SESSION_ERRORS as error:
        raise ConnectionFailed("tls", describe(error)) from error
    secured = protocol.transport.get_extra_info("ssl_object") if protocol.transport else None
    connection.encrypted = (secured and secured.version()) or "TLS"
    # What was offered in clear text may come from anybody (RFC 3207 4.2).
    connection.offer = await _introduce(protocol, server)


def _context(server: NextHopServer) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=server.ca_file)
    if server.tls == "opportunistic":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.check_hostname = server.check_hostname
    return context


async def _ask(protocol: HopProtocol, command: bytes, step: Step, timeout: float) -> Reply:
    """One command (none for the greeting, which comes unasked) and its reply."""
    try:
        if command:
            protocol.expect()
            protocol.write(command + b"\r\n")
        return await protocol.reply(timeout)
    except SESSION_ERRORS as error:
        raise ConnectionFailed(step, describe(error)) from error


def describe(error: BaseException) -> str:
    """An error in one line, for the log: never for a peer."""
    return str(error) or type(error).__name__
