"""A connector's limits, its TLS, and how it stops."""

from __future__ import annotations

import asyncio
import gc
import ssl
import warnings
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from receiving import QUEUED, QUICK, MemoryReceiver, RawClient, connected, conversation, eventually, listening

from shadowrelay.smtp.receiving import conversation as spoken
from shadowrelay.smtp.receiving import library
from shadowrelay.smtp.receiving.connector import Connector
from shadowrelay.smtp.receiving.contract import ConnectorOptions
from shadowrelay.smtp.receiving.limits import Register

BATCH = b"HELO c\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n"


async def greeted(stack: AsyncExitStack, connector: Connector) -> tuple[RawClient, str]:
    client = await stack.enter_async_context(connected(connector))
    return client, await client.line()


async def test_a_source_has_its_number_of_connections() -> None:
    async with (
        listening(MemoryReceiver(), max_inbound_connections_per_source=1) as connector,
        AsyncExitStack() as stack,
    ):
        client, _ = await greeted(stack, connector)
        refused, greeting = await greeted(stack, connector)
        assert greeting == "421 4.7.0 Too many connections from your address"
        assert await refused.closed()
        await client.say("QUIT")
        await refused.close()
        await eventually(lambda: connector.sessions == 0)
        assert (await greeted(stack, connector))[1].startswith("220")


async def test_a_connector_has_its_number_of_connections() -> None:
    async with (
        listening(MemoryReceiver(), max_inbound_connections=1) as connector,
        AsyncExitStack() as stack,
    ):
        await greeted(stack, connector)
        assert (await greeted(stack, connector))[1] == "421 4.3.2 Too many connections, try again later"


async def test_who_is_turned_away_takes_nobodys_place(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (spoken, library):
        monkeypatch.setattr(module, "LINGER", 60.0)  # the place would be taken for so long
    async with (
        listening(
            MemoryReceiver(), max_inbound_connections=3, max_inbound_connections_per_source=1
        ) as connector,
        AsyncExitStack() as stack,
    ):
        client, _ = await greeted(stack, connector)
        for _ in range(5):
            _, greeting = await greeted(stack, connector)
            assert greeting == "421 4.7.0 Too many connections from your address"
        assert connector.sessions == 6
        address = connector.address  # type: ignore[attr-defined]
        other = RawClient(*await asyncio.open_connection(*address, local_addr=("127.0.0.2", 0)))
        assert (await other.line()).startswith("220 ")
        await client.say("QUIT")
        await eventually(lambda: connector.sessions == 6)
        assert (await greeted(stack, connector))[1].startswith("220 ")
        await other.close()


class Nobody:
    def drain(self) -> None: ...

    def expire(self) -> None: ...


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("192.0.2.1", "192.0.2.2", False),
        ("", "", True),
    ],
)
async def test_an_ipv6_source_is_its_network(first: str, second: str, same: bool) -> None:
    register, task = Register(None, 1), asyncio.create_task(asyncio.sleep(0))
    await task
    assert register.enter(Nobody(), task, first) is None
    assert (register.enter(Nobody(), task, second) is not None) == same


def test_the_inactivity_timeout_is_the_smaller_one() -> None:
    with pytest.raises(ValueError, match="smaller"):
        ConnectorOptions(hostname="x", inactivity_timeout=timedelta(minutes=10))


async def test_a_taken_port_is_an_error() -> None:
    async with listening(MemoryReceiver()) as connector:
        port = connector.address[1]  # type: ignore[attr-defined]
        with pytest.raises(OSError, match="in use"):
            await Connector(ConnectorOptions(hostname="x", port=port), MemoryReceiver()).start()


async def test_who_connects_before_it_serves_is_greeted_when_it_does() -> None:
    connector = Connector(ConnectorOptions(hostname="x", port=0), MemoryReceiver())
    reader, writer = await asyncio.open_connection(*await connector.listen())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.readline(), 0.1)
    await connector.start()
    assert (await reader.readline()).startswith(b"220 x")
    writer.close()
    await connector.stop(0)


async def test_an_address_that_was_taken_in_vain_is_free_again() -> None:
    connector = Connector(ConnectorOptions(hostname="x", port=0), MemoryReceiver())
    address = await connector.listen()
    await connector.stop(0)
    with pytest.raises(OSError, match=r"."):
        await asyncio.open_connection(*address)


# Stopping


async def test_an_idle_session_is_told_of_the_end() -> None:
    async with listening(MemoryReceiver()) as connector, connected(connector) as client:
        await client.line()
        await client.say("HELO c")
        stopping = asyncio.create_task(connector.stop(30))
        assert await client.line() == "421 4.3.2 Service is shutting down"
        assert await client.closed()
        await client.close()
        await asyncio.wait_for(stopping, 5)
        with pytest.raises(OSError, match=r"."):
            await asyncio.open_connection(*connector.address)  # type: ignore[attr-defined]


async def test_a_transaction_may_end_before_the_connector_does() -> None:
    receiver = MemoryReceiver()
    async with listening(receiver) as connector, connected(connector) as client:
        client.send(BATCH)
        for _ in range(5):
            await client.line()
        stopping = asyncio.create_task(connector.stop(30))
        await asyncio.sleep(0.02)
        client.send(b"hello\r\n.\r\nMAIL FROM:<a@b>\r\n")
        assert await client.line() == str(QUEUED)
        assert await client.line() == "421 4.3.2 Service is shutting down"
        await client.close()
        await stopping
    assert len(receiver.kept) == 1


async def test_a_transaction_that_lasts_is_cut_off() -> None:
    receiver = MemoryReceiver()
    async with listening(receiver) as connector, connected(connector) as client:
        client.send(BATCH + b"hel")
        for _ in range(5):
            await client.line()
        stopping = asyncio.create_task(connector.stop(0.05))
        assert await client.line() == "421 4.3.2 Service is shutting down"
        await client.close()
        await stopping
    assert (receiver.kept, receiver.aborted) == ([], 1)


async def test_a_message_that_is_being_committed_outlasts_the_drain() -> None:
    finishing, release = asyncio.Event(), asyncio.Event()

    async def before_finish() -> None:
        finishing.set()
        await release.wait()

    async with (
        listening(MemoryReceiver(before_finish=before_finish)) as connector,
        connected(connector) as client,
    ):
        client.send(BATCH + b".\r\n")
        await finishing.wait()
        stopping = asyncio.create_task(connector.stop(0))
        await asyncio.sleep(0.05)
        assert not stopping.done()
        release.set()
        for _ in range(5):
            await client.line()
        assert await client.line() == str(QUEUED)
        await client.close()
        await stopping


# TLS


Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


async def test_starttls_secures_the_session_and_forgets_all_that_was_said(contexts: Contexts) -> None:
    server, client_side = contexts
    receiver = MemoryReceiver()
    async with conversation(receiver, tls=server) as client:
        assert "STARTTLS" in await client.say("EHLO client.example")
        await client.say("MAIL FROM:<a@b>")
        assert await client.say("STARTTLS") == "220 2.0.0 Ready to start TLS"
        await client.writer.start_tls(client_side, server_hostname="mx.example.net")
        assert await client.say("MAIL FROM:<a@b>") == "503 5.5.1 Say hello first"
        assert "STARTTLS" not in await client.say("EHLO client.example")
        assert await client.say("STARTTLS") == "503 5.5.1 TLS is active already"
        content = b"x" * 70 + b"\r\n"
        client.send(b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n" + b"\r\n" + content * 20_000 + b".\r\n")
        assert [(await client.line())[:3] for _ in range(4)] == ["250", "250", "354", "250"]
        await client.say("QUIT")
    [kept] = receiver.kept
    assert (kept.client.protocol(smtputf8=False), kept.client.tls) == ("ESMTPS", True)
    assert kept.content == b"\r\n" + content * 20_000
    assert kept.client.certificate is not None
    assert ("DNS", "mx2.example.net") in kept.client.certificate["subjectAltName"]
    assert receiver.resets == 1


async def test_commands_slipped_in_before_the_handshake_end_the_session(contexts: Contexts) -> None:
    receiver = MemoryReceiver()
    async with conversation(receiver, tls=contexts[0]) as client:
        await client.say("EHLO client.example")
        client.send(b"STARTTLS\r\nMAIL FROM:<a@b>\r\n")
        assert await client.line() == "421 4.7.0 Nothing may follow STARTTLS"
        assert await client.closed()
    assert receiver.calls == []


async def test_a_failed_handshake_frees_its_place(contexts: Contexts) -> None:
    async with listening(MemoryReceiver(), tls=contexts[0]) as connector, connected(connector) as client:
        await client.line()
        await client.say("STARTTLS")
        client.send(b"this is no handshake\r\n")
        await eventually(lambda: connector.sessions == 0)


async def test_under_implicit_tls_the_peer_has_a_name(contexts: Contexts) -> None:
    server, client_side = contexts
    receiver = MemoryReceiver()
    async with listening(receiver, tls=server, implicit_tls=True) as connector:
        async with connected(connector, tls=client_side) as client:
            await client.line()
            assert "STARTTLS" not in await client.say("EHLO client.example")
            assert await client.say("STARTTLS") == "500 5.5.2 Command not recognised"
            client.send(BATCH[8:] + b".\r\n")
            assert [(await client.line())[:3] for _ in range(4)] == ["250", "250", "354", "250"]
        await eventually(lambda: connector.sessions == 0)
    certificate = receiver.kept[0].client.certificate
    assert certificate is not None
    assert ("DNS", "mx2.example.net") in certificate["subjectAltName"]


async def test_a_connection_that_is_accepted_while_the_connector_stops_is_closed_as_others_are(
    loops: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """At whatever turn of the event loop the connector stops."""
    unseen: list[dict[str, Any]] = []

    async def many() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        for turns in range(12):
            connector = Connector(QUICK, MemoryReceiver())
            address = await connector.start()
            calls = [asyncio.create_task(asyncio.open_connection(*address)) for _ in range(5)]
            for _ in range(turns):
                await asyncio.sleep(0)
            await connector.stop(0)
            for call in await asyncio.gather(*calls, return_exceptions=True):
                if not isinstance(call, BaseException):
                    call[1].close()
        gc.collect()
        await asyncio.sleep(0)

    def run() -> None:
        with asyncio.Runner(loop_factory=loops) as runner:
            runner.run(many())

    gc.collect()  # what tests before this one have left
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        await asyncio.to_thread(run)
    assert unseen == []
