"""Opening a session with a next hop: connect, greeting, EHLO or LHLO, STARTTLS, AUTH."""

from __future__ import annotations

import asyncio
import re
import ssl

import structlog
from aiosmtplib.errors import SMTPAuthenticationError, SMTPHeloError, SMTPResponseException

from shadowrelay.core.values import dataclass, replace
from shadowrelay.smtp import send_password
from shadowrelay.smtp.send_client import HopClient
from shadowrelay.smtp.send_commands import Extensions
from shadowrelay.smtp.send_hop import Awaited, ConnectionFailed, Login, NextHopServer
from shadowrelay.smtp.send_protocol import HopProtocol

_MECHANISM = re.compile(r"[a-z0-9_-]{1,20}", re.ASCII)  # RFC 4422 3.1, as the library spells it

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class HopConnection:
    """A session past EHLO, and AUTH. ``protocol`` is the client's, which forgets it when the connection is
    lost: then replies may still be read. ``encrypted`` is the TLS version, '' for clear text.
    """

    client: HopClient
    protocol: HopProtocol
    extensions: Extensions
    encrypted: str = ""


async def open_connection(server: NextHopServer, awaits: Awaited) -> HopConnection:
    """Connect, introduce ourselves, and log in if we are to. Raises ConnectionFailed.

    Where TLS is opportunistic and fails, a second connection is made in clear text: the first one is in no
    known state. Where it is required, nothing is said in clear text after EHLO.
    """
    try:
        return await _open(server, awaits)
    except ConnectionFailed as failure:
        if failure.step != "tls" or server.tls != "opportunistic":
            raise
        log.warning("tls_failed_falling_back", next_hop=server.name, host=server.host, error=failure.error)
        return await _open(replace(server, tls="none"), awaits)


async def _open(server: NextHopServer, awaits: Awaited) -> HopConnection:
    client = HopClient(server, awaits)
    await client.connect(timeout=server.timeouts.connect)
    protocol = client.protocol
    if protocol is None:
        raise ConnectionFailed("greeting", "closed by the next hop")
    try:
        connection = HopConnection(client, protocol, await _introduce(client))
        if server.tls != "none":
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
    if "STARTTLS" not in connection.extensions:
        if server.tls == "required":
            raise ConnectionFailed("tls", "STARTTLS is not offered")
        return
    with client.step("tls"):
        context = await asyncio.to_thread(_context, server)
        await client.starttls(tls_context=context, timeout=server.timeouts.tls)
        connection.encrypted = client.get_transport_info("ssl_object").version() or "TLS"
    # What was offered in clear text may come from anybody (RFC 3207 4.2): the client has forgotten it.
    connection.extensions = await _introduce(client)


async def _log_in(client: HopClient, login: Login) -> None:
    """AUTH (RFC 4954), once. Whatever is refused here is our trouble, and says nothing of any message."""
    if login.mechanism not in client.server_auth_methods:
        offered = [name.upper() for name in client.server_auth_methods if _MECHANISM.fullmatch(name)]
        raise ConnectionFailed(
            "auth", f"{login.mechanism.upper()} is not offered, but {', '.join(offered[:10]) or 'nothing'}"
        )
    try:
        password = await asyncio.to_thread(send_password.read, login.password_file)
    except send_password.NoPassword as error:
        # Without its path: the sender of a message that waits for it is told the reason.
        raise ConnectionFailed("auth", f"password_file {error}") from error
    with client.step("auth"):
        try:
            await client.login(login.username, password, timeout=client.server.timeouts.auth)
        except SMTPResponseException as error:
            said = send_password.masked(error.message, login.username, password)
            raise SMTPAuthenticationError(error.code, said) from None


def _context(server: NextHopServer) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=server.ca_file)
    if server.tls == "opportunistic":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.check_hostname = server.check_hostname
    return context
