"""A node that tracks messages for a peer beyond its boundary, and a client that plays the peer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from receiving import RawClient
from stations import Station, authority, full, station

from shadowrelay.authority import issue
from shadowrelay.core.identifiers import ServerName

PEER = ServerName("hub.example.net")
OTHER = ServerName("spoke.example.net")
RUN = "0000000000000001"
DATABASE = "6f0d7a3e-0000-4000-8000-000000000001"
GREETING = f"XSHADOW {PEER} {DATABASE} {RUN}:5 {RUN}@0"
ID = "01900000-0000-7000-8000-000000000001"


def certificates(directory: Path) -> Path:
    """A directory with a certificate for the node mx2, for two peers, and for a stranger."""
    authority(directory, "mx2")
    for name in (PEER, OTHER, "stranger.example.net"):
        issue(directory, name, now=datetime.now(UTC))
    return directory


def receive(made: Path, *peers: str, delay: str = "0s") -> dict[str, Any]:
    """The settings of a connector that knows these peers."""
    return {
        "tls_certificate": str(made / f"{full('mx2')}.pem"),
        "tls_key": str(made / f"{full('mx2')}.key"),
        "max_protocol_errors": 100,
        "max_acknowledgement_delay": delay,
        "accept_xshadow": [{"name": peer, "certificate": str(made / f"{peer}.pem")} for peer in peers],
    }


@asynccontextmanager
async def hop(
    directory: Path, *peers: str, others: tuple[str, ...] = (), delay: str = "0s", **changes: Any
) -> AsyncIterator[Station]:
    """The node, with certificates in ``directory``/ca."""
    made = directory / "ca"
    if not made.exists():
        certificates(made)
    node = await station(
        directory, "mx2", others, receive=receive(made, *(peers or (PEER,)), delay=delay), **changes
    )
    try:
        yield node
    finally:
        await node.stop()


def client_tls(made: Path, shown: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(made / "ca.pem"))
    if shown:
        context.load_cert_chain(made / f"{shown}.pem", made / f"{shown}.key")
    return context


@asynccontextmanager
async def call(node: Station, directory: Path, shown: str | None = PEER) -> AsyncIterator[RawClient]:
    """A client that has said STARTTLS with that certificate, and EHLO. Raises OSError, EOFError."""
    client = RawClient(*await asyncio.open_connection("127.0.0.1", node.port))
    try:
        await client.line()
        await client.say("EHLO hub.example.net", "STARTTLS")
        await client.writer.start_tls(client_tls(directory / "ca", shown), server_hostname=full("mx2"))
        await client.say("EHLO hub.example.net")
        yield client
    finally:
        await client.close()


async def hand_over(
    client: RawClient, number: int, *to: str, id_: str = ID, body: bytes = b"body\r\n"
) -> str:
    """Hand a message over; its recipients have numbers from ``number`` on. The reply to its content."""
    content = b"Subject: one\r\n\r\n" + body
    await client.say(f"MAIL FROM:<a@example.net> XSHADOW={id_}")
    for at, address in enumerate(to, number):
        await client.say(f"RCPT TO:<{address}> XFORK={at}")
    client.send(f"BDAT {len(content)} LAST\r\n".encode() + content)
    return await client.reply()
