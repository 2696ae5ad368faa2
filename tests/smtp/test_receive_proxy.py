"""PROXY, versions 1 and 2: who may say for whom a connection is, and what is no header."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
import structlog
from receiving import QUEUED, MemoryReceiver, RawClient, connected, eventually, listening

from shadowrelay.smtp.receiving.connector import Connector
from shadowrelay.smtp.receiving.contract import ConnectorOptions

PROXIES = (ip_network("127.0.0.0/8"),)
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
MESSAGE = b"EHLO c\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nBDAT 3 LAST\r\nx\r\n"


def v1(source: str = "192.0.2.7", port: int = 4711) -> bytes:
    family = "TCP6" if ":" in source else "TCP4"
    front = "2001:db8::25" if ":" in source else "192.0.2.25"
    return f"PROXY {family} {source} {front} {port} 25\r\n".encode()


def v2(source: str = "192.0.2.7", port: int = 4711, *, command: int = 1, more: bytes = b"") -> bytes:
    address = ip_address(source)
    family = 0x11 if address.version == 4 else 0x21
    tail = address.packed * 2 + struct.pack("!HH", port, 25) + more
    return SIGNATURE + struct.pack("!BBH", 0x20 | command, family, len(tail)) + tail


def v2_of(family: int, tail: bytes, *, command: int = 1) -> bytes:
    return SIGNATURE + struct.pack("!BBH", 0x20 | command, family, len(tail)) + tail


@asynccontextmanager
async def behind(receiver: MemoryReceiver, **changes: Any) -> AsyncIterator[Connector]:
    async with listening(receiver, proxy_networks=PROXIES, **changes) as connector:
        yield connector


async def sends(client: RawClient) -> None:
    client.send(MESSAGE)
    assert (await client.reply()).startswith("220 ")
    assert [await client.reply() for _ in range(4)][-1] == str(QUEUED)


@pytest.mark.parametrize(
    ("header", "known_as"),
    [
        (v1(), ("192.0.2.7", 4711)),
        (v1("2001:db8::7"), ("2001:db8::7", 4711)),
        (v1("::ffff:192.0.2.7"), ("192.0.2.7", 4711)),
        (b"PROXY TCP4 192.0.2.7 192.0.2.25 0 65535\r\n", ("192.0.2.7", 0)),
        (v2(), ("192.0.2.7", 4711)),
        (v2("2001:db8::7"), ("2001:db8::7", 4711)),
        (v2("::ffff:192.0.2.7"), ("192.0.2.7", 4711)),
        (v2(more=b"\x03\0\x04\x8f\xa1\x02\x11" + b"\x04\x01\0" + b"\0" * 256), ("192.0.2.7", 4711)),
        (v2(more=b"\x20\xff\xff malformed"), ("192.0.2.7", 4711)),
    ],
)
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "octet for octet"])
async def test_the_client_is_the_one_behind_the_proxy(
    header: bytes, known_as: tuple[str, int], whole: bool
) -> None:
    receiver = MemoryReceiver()
    async with behind(receiver) as connector, connected(connector) as client:
        if whole:
            client.send(header)
        else:
            for at in range(len(header)):
                client.send(header[at : at + 1])
                await asyncio.sleep(0)
        await sends(client)
    client = receiver.kept[0].client
    assert (client.address, client.port) == known_as


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY UNKNOWN\r\n",
        b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n",
        v2(command=0),
        v2_of(0, b"", command=0),
        v2_of(0, b""),
        v2_of(0x11, b"", command=0),  # the family counts for nothing then
        v2_of(0x21, b"half", command=0),
        v2_of(0xFF, b"", command=0),
        v2_of(0, b"\4\0\1x", command=0),
        v2_of(0x12, v2()[16:]),  # UDP
        v2_of(0x22, v2("2001:db8::7")[16:]),
        v2_of(0x31, b"/run/a".ljust(108, b"\0") * 2),  # AF_UNIX
        v2_of(0x31, b"\0" * 216),  # a client without a name
        v2_of(0x32, b"/run/a".ljust(108, b"\0") * 2),
    ],
)
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "octet for octet"])
async def test_a_proxy_may_speak_for_itself(header: bytes, whole: bool) -> None:
    receiver = MemoryReceiver()
    async with behind(receiver) as connector, connected(connector) as client:
        for piece in [header] if whole else [header[at : at + 1] for at in range(len(header))]:
            client.send(piece)
            await asyncio.sleep(0)
        await sends(client)
    assert receiver.kept[0].client.address == "127.0.0.1"


NO_HEADERS = [
    b"EHLO client.example\r\n",
    b"\r\n" * 30,
    b"GET / HTTP/1.1\r\nHost: mx\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200,
    b"PROXY\r\n",
    b"PROXYTCP4 192.0.2.7 192.0.2.25 1 25\r\n",
    b"PROXY \r\n",
    b"proxy TCP4 192.0.2.7 192.0.2.25 1 25\r\n",
    b"PROXY TCP4\r\n",
    b"PROXY TCP4 192.0.2.7\r\n",
    b"PROXY TCP4 192.0.2.7 192.0.2.25 1\r\n",
    b"PROXY TCP4 192.0.2.7 192.0.2.25 1 25 26\r\n",
    b"PROXY TCP4  192.0.2.7 192.0.2.25 1 25\r\n",
    b"PROXY TCP4 192.0.2.7 192.0.2.25 01 25\r\n",
    b"PROXY TCP4 192.0.2.7 192.0.2.25 1_0 25\r\n",
    b"PROXY TCP4 192.0.2.7 192.0.2.25 65536 25\r\n",
    b"PROXY TCP4 192.0.2.7 192.0.2.25 -1 25\r\n",
    b"PROXY TCP4 192.0.2.300 192.0.2.25 1 25\r\n",
    b"PROXY TCP4 192.0.02.7 192.0.2.25 1 25\r\n",
    b"PROXY TCP4 2001:db8::7 2001:db8::25 1 25\r\n",
    b"PROXY TCP6 192.0.2.7 192.0.2.25 1 25\r\n",
    b"PROXY TCPx4 192.0.2.7 192.0.2.25 1 25\r\n",
    b"PROXY UDP4 192.0.2.7 192.0.2.25 1 25\r\n",
    b"PROXY TCP4 192.0.2.7 192.0.2.25 1 25\n",
    b"PROXY TCP4 192.0.2.7 192.0.2.25 1 25 \r\n",
    b"PROXY UNKNOWNER\r\n",
    b"PROXY UNKNOWN \xff\r\n",
    b"PROXY UNKNOWN " + b"x" * 200 + b"\r\n",
    b"PROXY " + b"x" * 10_000,
    SIGNATURE[:-1] + b"X" + v2()[12:],
    SIGNATURE + b"\x11" + v2()[13:],
    SIGNATURE + b"\x22" + v2()[13:],
    v2_of(0x11, b"\xc0\0\x02\x07"),
    v2_of(0x10, v2()[16:]),
    v2_of(0x31, b"/run/a"),
    v2_of(0x30, b"/run/a".ljust(108, b"\0") * 2),
    v2_of(0x41, b""),
    v2_of(0x13, v2()[16:]),
    v2_of(0x01, b""),
]


@pytest.mark.parametrize("said", NO_HEADERS, ids=lambda said: repr(said[:40]))
async def test_anything_else_closes_the_connection_without_a_word(said: bytes) -> None:
    receiver = MemoryReceiver()
    with structlog.testing.capture_logs() as told:
        async with behind(receiver) as connector, connected(connector) as client:
            client.send(said + MESSAGE)
            assert await client.closed()
            await eventually(lambda: connector.sessions == 0)
    assert receiver.calls == []
    refused = [row for row in told if row["event"] == "proxy_header_refused"]
    assert [(row["proxy"], bool(row["error"])) for row in refused] == [("127.0.0.1", True)]


@pytest.mark.parametrize("half", [b"", b"PROX", b"PROXY TCP4 192.0.2.7", v2()[:5], v2()[:14], v2()[:-1]])
async def test_half_a_header_is_not_waited_for(half: bytes) -> None:
    async with behind(MemoryReceiver(), proxy_timeout=timedelta(seconds=0.2)) as connector:
        async with connected(connector) as client:
            client.send(half)
            assert await client.closed()
        async with connected(connector) as client:  # and who leaves in the middle of one leaves nothing
            client.send(half)
        await eventually(lambda: connector.sessions == 0)


@pytest.mark.parametrize("header", [v1(), v2()], ids=["v1", "v2"])
async def test_a_stranger_who_sends_a_header_is_no_proxy(header: bytes) -> None:
    receiver = MemoryReceiver()
    async with listening(receiver, proxy_networks=(ip_network("10.0.0.0/8"),)) as connector:
        async with connected(connector) as client:
            client.send(header)
            assert (await client.line()).startswith("220 ")
            assert (await client.line()).startswith("500 5.5.2 ")
        async with connected(connector) as client:
            await sends(client)
    assert receiver.kept[0].client.address == "127.0.0.1"


async def test_without_proxies_nobody_is_one() -> None:
    async with listening(MemoryReceiver()) as connector, connected(connector) as client:
        client.send(v1())
        assert (await client.line()).startswith("220 ")
        assert (await client.line()).startswith("500 5.5.2 ")


async def test_a_header_counts_once() -> None:
    receiver = MemoryReceiver()
    async with behind(receiver) as connector, connected(connector) as client:
        client.send(v1() + v1("192.0.2.8"))
        assert (await client.line()).startswith("220 ")
        assert (await client.line()).startswith("500 5.5.2 ")
        client.send(MESSAGE)
        assert [await client.reply() for _ in range(4)][-1] == str(QUEUED)
    assert receiver.kept[0].client.address == "192.0.2.7"


async def test_the_limit_per_source_is_one_of_the_clients_behind_the_proxy() -> None:
    async with behind(MemoryReceiver(), max_inbound_connections_per_source=2) as connector:
        clients = []
        try:
            for source in ("192.0.2.7", "192.0.2.8", "192.0.2.7", "192.0.2.8"):
                client = RawClient(*await asyncio.open_connection(*connector.address))  # type: ignore[attr-defined]
                clients.append(client)
                client.send(v1(source))
                assert (await client.line()).startswith("220 ")
            async with connected(connector) as one_more:
                one_more.send(v2("192.0.2.7"))
                assert await one_more.line() == "421 4.7.0 Too many connections from your address"
                assert await one_more.closed()
            await clients[0].say("QUIT")
            await eventually(lambda: connector.sessions == 3)
            async with connected(connector) as instead:
                instead.send(v2("192.0.2.7"))
                assert (await instead.line()).startswith("220 ")
        finally:
            for client in clients:
                await client.close()
        await eventually(lambda: connector.sessions == 0)


async def test_a_flood_of_half_headers_is_limited_as_a_whole_and_leaves_nothing() -> None:
    async with behind(
        MemoryReceiver(), max_inbound_connections=50, proxy_timeout=timedelta(seconds=60)
    ) as connector:
        address = connector.address  # type: ignore[attr-defined]
        flood = [await asyncio.open_connection(*address) for _ in range(60)]
        for _, writer in flood:
            writer.write(b"PROXY TCP4 192.0.2.7")
        # As none of them comes to its end, the first 50 hold all the places, in whatever time the rest come.
        ends = [asyncio.ensure_future(reader.read()) for reader, _ in flood]
        await eventually(lambda: sum(end.done() for end in ends) == 10)
        refused = {end.result() for end in ends if end.done()}
        assert refused == {b"421 4.3.2 Too many connections, try again later\r\n"}
        for end, (_, writer) in zip(ends, flood, strict=True):
            if end.done():
                writer.close()
        await eventually(lambda: connector.sessions == 50)
        for _, writer in flood:
            writer.close()
        await asyncio.gather(*ends, return_exceptions=True)
        await eventually(lambda: connector.sessions == 0)
        async with connected(connector) as client:
            client.send(v1())
            await sends(client)


async def test_a_stop_does_not_wait_for_a_header() -> None:
    async with (
        behind(MemoryReceiver(), proxy_timeout=timedelta(seconds=60)) as connector,
        connected(connector) as client,
    ):
        await eventually(lambda: connector.sessions == 1)
        async with asyncio.timeout(30):
            await connector.stop(60)
        assert await client.line() == "421 4.3.2 Service is shutting down"


def test_a_header_cannot_come_before_implicit_tls() -> None:
    with pytest.raises(ValueError, match="PROXY"):
        ConnectorOptions(
            hostname="mx.example.net",
            tls=object(),  # type: ignore[arg-type]
            implicit_tls=True,
            proxy_networks=PROXIES,
        )
