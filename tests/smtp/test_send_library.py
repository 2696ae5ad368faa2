"""What runs of aiosmtplib, callable by callable, and the private names of it that we rely on."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiosmtplib
import callables
import pytest
from aiosmtplib import auth, esmtp, protocol, smtp
from aiosmtplib.errors import SMTPServerDisconnected
from scripted_hop import CLOSE, ScriptedHop, envelope, recipients
from stations import eventually
from test_send_login import OFFERS, WAYS, login

from shadowrelay.smtp.sending.connection import HopClient
from shadowrelay.smtp.sending.hop import Awaited
from shadowrelay.smtp.sending.session import ConnectionFailed, DeliverySession

MODULES = (smtp, protocol, esmtp, auth)
LARGE = (b"x" * 998 + b"\r\n") * 5_000


async def delivered(hop: ScriptedHop, content: bytes = b"Text\r\n", **server: object) -> DeliverySession:
    session = DeliverySession(hop.server(**server))
    await session.connect()
    await session.deliver(envelope(), recipients("a@example.net"), content)
    return session


async def all_kinds_of_sessions(tls: ssl.SSLContext, certificate: Path, password: Path) -> None:
    verified = {"tls": "required", "ca_file": str(certificate), "host": "localhost"}
    for mechanism, way in WAYS.items():
        async with ScriptedHop(offers=OFFERS, tls=tls, **way) as hop:
            await (await delivered(hop, login=login(password, mechanism=mechanism), **verified)).close()
    async with ScriptedHop(EHLO=b"502 5.5.1 what?\r\n", QUIT=CLOSE) as hop:
        session = await delivered(hop)
        await session.reset()
        await session.close()
    async with ScriptedHop() as hop:
        await (await delivered(hop, protocol="lmtp")).close()

    async def slowly() -> None:
        await asyncio.sleep(0.2)

    async with ScriptedHop(pause=slowly) as hop:
        session = DeliverySession(hop.server())
        await session.connect()
        assert session._connection
        hop.narrow(session._connection.protocol.transport)
        await session.deliver(envelope(), recipients("a@example.net"), LARGE)
        await session.close()
    with pytest.raises(ConnectionFailed):
        await DeliverySession(ScriptedHop.server(hop)).connect()  # it listens no more


@pytest.mark.slow
async def test_what_runs_of_the_library_is_what_the_page_says(
    tls: ssl.SSLContext, certificate: Path, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("Pa55-wört, with all sorts")
    with callables.watched(*MODULES) as entered:
        await all_kinds_of_sessions(tls, certificate, password)
    callables.agree("aiosmtplib", entered, *MODULES)


async def test_what_would_rewrite_the_content_refuses() -> None:
    async with ScriptedHop() as hop:
        client = HopClient(hop.server(), Awaited())
        await client.connect()
        with pytest.raises(NotImplementedError):
            await client.sendmail("a@example.org", ["b@example.net"], b"Text\n")
        client.close()
    assert hop.contents == []


# Private names


async def test_connecting_is_left_to_create_connection_and_losing_it_is_told_to_on_connection_lost() -> None:
    async with ScriptedHop() as hop:
        client = HopClient(hop.server(), Awaited())
        greeting = await client.connect(timeout=5)
        assert (greeting.code, greeting.message) == (220, "hop.example ESMTP")
        spoken = client.protocol
        assert spoken is not None
        assert client.is_connected
        spoken.abort()
        await eventually(lambda: client.protocol is None)
        assert not client.is_connected
        with pytest.raises(SMTPServerDisconnected):
            await client.rset()
        await client.connect(
            timeout=5
        )  # the lock that the library holds while it is connected was given back
        client.close()


async def test_a_block_waits_by_paused_and_the_drain_helper() -> None:
    async with ScriptedHop() as hop:
        client = HopClient(hop.server(), Awaited())
        await client.connect()
        spoken = client.protocol
        assert spoken is not None
        assert (spoken._paused, spoken._connection_lost) == (False, False)
        spoken.pause_writing()
        assert spoken._paused
        with pytest.raises(TimeoutError):
            await spoken.write_block(b"NOOP\r\n", timeout=0.05)
        writing = asyncio.ensure_future(spoken.write_block(b"NOOP\r\n", timeout=5))
        await asyncio.sleep(0.05)
        assert not writing.done()
        spoken.resume_writing()
        await writing
        client.close()


def test_the_version_is_one_whose_private_names_were_looked_at() -> None:
    assert aiosmtplib.__version__.startswith("5.1.")
