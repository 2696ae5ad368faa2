"""Connections to a connector with implicit TLS before their handshake has ended, on each event loop."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from receiving import MemoryReceiver, connected, eventually, listening

from shadowlab.ports import free_ports
from shadowrelay.authority import authority_pair, init, issue
from shadowrelay.smtp.receiving import connector as receive_connector
from shadowrelay.smtp.receiving.connector import Connector

HELLO = b"\x16\x03\x01\x02\x00\x01"  # the first octets of a ClientHello

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a test in that loop, and sees that nothing of it is left."""
    name = request.param
    factory = None if name == "asyncio" else pytest.importorskip(name).new_event_loop

    async def whole(test: Coroutine[Any, Any, None]) -> None:
        await test
        await eventually(lambda: asyncio.all_tasks() == {asyncio.current_task()})

    def perform(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(whole(test))

    return perform


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    """For a server that asks for a certificate, and for a client that has one."""
    folder: Path = tmp_path_factory.mktemp("ca")
    now = datetime.now(UTC)
    init(folder, name="test", now=now)
    pair = issue(folder, "mx.example.net", now=now)
    made = []
    for purpose in (ssl.Purpose.CLIENT_AUTH, ssl.Purpose.SERVER_AUTH):
        context = ssl.create_default_context(purpose, cafile=str(authority_pair(folder).certificate))
        context.load_cert_chain(pair.certificate, pair.key)
        made.append(context)
    made[0].verify_mode = ssl.CERT_REQUIRED
    return made[0], made[1]


def silent(stack: ExitStack, connector: Connector, count: int, said: bytes = b"") -> list[socket.socket]:
    """Clients that connect, say that much, and no more."""
    clients = []
    for _ in range(count):
        client = stack.enter_context(socket.create_connection(connector.address))  # type: ignore[attr-defined]
        client.setblocking(False)
        client.send(said)
        clients.append(client)
    return clients


def ended(client: socket.socket) -> bool:
    with suppress(BlockingIOError):
        try:
            return client.recv(1) == b""
        except ConnectionError:
            return True
    return False


def sockets() -> int:
    """How many this process has open."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/self/fd/{number}"))
    return sum(link.startswith("socket:") for link in links)


async def greeted(connector: Connector, context: ssl.SSLContext) -> bool:
    async with asyncio.timeout(30), connected(connector, tls=context) as client:
        return (await client.line()).startswith("220 ")


@pytest.mark.parametrize("said", [b"", HELLO])
def test_past_the_limit_the_oldest_handshake_makes_room_and_a_member_is_greeted(
    run: Run, contexts: Contexts, said: bytes
) -> None:
    async def test() -> None:
        with ExitStack() as stack:
            async with listening(
                MemoryReceiver(), tls=contexts[0], implicit_tls=True, max_inbound_connections=10
            ) as connector:
                clients = silent(stack, connector, 40, said)
                await eventually(lambda: sum(map(ended, clients)) == 30)
                assert [ended(client) for client in clients] == [True] * 30 + [False] * 10
                assert connector.handshakes == 10
                assert await greeted(connector, contexts[1])

    run(test())


def test_a_source_with_few_handshakes_keeps_them_beside_one_with_many(run: Run, contexts: Contexts) -> None:
    async def test() -> None:
        with ExitStack() as stack:
            async with listening(
                MemoryReceiver(), tls=contexts[0], implicit_tls=True, max_inbound_connections=10
            ) as connector:
                elsewhere = stack.enter_context(socket.socket())
                elsewhere.bind(("127.0.0.2", 0))
                elsewhere.connect(connector.address)  # type: ignore[attr-defined]
                elsewhere.setblocking(False)
                await eventually(lambda: connector.handshakes == 1)
                clients = silent(stack, connector, 40)
                await eventually(lambda: sum(map(ended, clients)) == 31)
                assert not ended(elsewhere)

    run(test())


@pytest.mark.parametrize("said", [b"", HELLO])
def test_a_handshake_that_never_ends_is_given_up_and_leaves_nothing(
    run: Run, contexts: Contexts, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        monkeypatch.setattr(receive_connector, "HANDSHAKE", 0.05)
        async with listening(MemoryReceiver(), tls=contexts[0], implicit_tls=True) as connector:
            before = sockets()
            with ExitStack() as stack:
                clients = silent(stack, connector, 20, said)
                await eventually(lambda: all(map(ended, clients)))
            await eventually(lambda: connector.handshakes == 0 and sockets() == before)

    run(test())


@pytest.mark.parametrize("said", [b"", HELLO, b"EHLO client\r\n"])
def test_clients_that_leave_in_their_handshake_leave_nothing(
    run: Run, contexts: Contexts, said: bytes
) -> None:
    async def test() -> None:
        async with listening(MemoryReceiver(), tls=contexts[0], implicit_tls=True) as connector:
            before = sockets()
            for linger in (0, 1):
                with ExitStack() as stack:
                    for client in silent(stack, connector, 20, said):
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", linger, 0))
                await eventually(lambda: connector.handshakes == 0 and sockets() == before)
            assert await greeted(connector, contexts[1])

    run(test())


def test_a_connector_that_stops_waits_for_no_handshake(run: Run, contexts: Contexts) -> None:
    async def test() -> None:
        with ExitStack() as stack:
            async with listening(MemoryReceiver(), tls=contexts[0], implicit_tls=True) as connector:
                clients = [*silent(stack, connector, 5), *silent(stack, connector, 5, HELLO)]
                await eventually(lambda: connector.handshakes == 10)
                async with connected(connector, tls=contexts[1]) as member:
                    await member.line()
                    stopping = asyncio.create_task(connector.stop(30))
                    assert await member.line() == "421 4.3.2 Service is shutting down"
                    await member.close()
                    await asyncio.wait_for(stopping, 5)
                assert connector.handshakes == 0
                await eventually(lambda: all(map(ended, clients)))
                with pytest.raises(OSError, match=r"."):
                    socket.create_connection(connector.address)  # type: ignore[attr-defined]

    run(test())


def test_every_address_of_a_name_is_listened_on(run: Run, contexts: Contexts) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")

    async def test() -> None:
        (port,) = free_ports(1)
        async with listening(
            MemoryReceiver(), tls=contexts[0], implicit_tls=True, host="", port=port
        ) as connector:
            for host in ("127.0.0.1", "::1"):
                connector.address = (host, port)  # type: ignore[attr-defined]
                assert await greeted(connector, contexts[1])

    run(test())


def test_a_port_that_is_taken_is_an_error(run: Run, contexts: Contexts) -> None:
    async def test() -> None:
        before = sockets()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            with pytest.raises(OSError, match="in use"):
                async with listening(
                    MemoryReceiver(), tls=contexts[0], implicit_tls=True, port=taken.getsockname()[1]
                ):
                    pass
            assert sockets() == before + 1

    run(test())
