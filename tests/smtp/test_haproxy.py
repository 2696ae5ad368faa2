"""Debian's HAProxy in front of a connector: both versions of its header, health checks, limits per client."""

from __future__ import annotations

import asyncio
import re
import shutil
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from ipaddress import ip_network
from pathlib import Path

import pytest
from receiving import QUEUED, MemoryReceiver, RawClient, eventually, listening

from shadowlab.ports import free_ports
from shadowrelay.smtp.receiving.connector import Connector

PROGRAM = shutil.which("haproxy") or "/usr/sbin/haproxy"

pytestmark = pytest.mark.skipif(
    not Path(PROGRAM).exists(), reason="there is no haproxy (apt-get install haproxy)"
)

CONFIGURATION = """
global
    log stdout format raw local0
defaults
    mode tcp
    log global
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend senders
    bind 127.0.0.1:{front}
    bind [::1]:{front} v6only
    default_backend relay
backend relay
    option smtpchk EHLO lb.example.net
    server mx1 127.0.0.1:{back} {send} {check}
"""


@asynccontextmanager
async def running(configuration: Callable[[int], str], directory: Path) -> AsyncIterator[int]:
    """HAProxy, and the port that it takes connections at."""
    (front,) = free_ports(1)
    file = directory / "haproxy.cfg"
    file.write_text(configuration(front))
    process = await asyncio.create_subprocess_exec(
        PROGRAM, "-db", "-f", str(file), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", front)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    break
        yield front
    finally:
        process.terminate()
        await process.communicate()


def in_front_of(
    connector: Connector, directory: Path, send: str, check: str = ""
) -> AbstractAsyncContextManager[int]:
    back = connector.address[1]  # type: ignore[attr-defined]
    return running(
        lambda front: CONFIGURATION.format(front=front, back=back, send=send, check=check), directory
    )


PROXIES = (ip_network("127.0.0.1/32"),)
VERSIONS = pytest.mark.parametrize(
    "send", ["send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options crc32c"]
)


async def through(port: int, source: str, stack: AsyncExitStack) -> RawClient:
    """A client of that address."""
    host = "::1" if ":" in source else "127.0.0.1"
    client = RawClient(*await asyncio.open_connection(host, port, local_addr=(source, 0)))
    stack.push_async_callback(client.close)
    return client


@VERSIONS
async def test_who_is_behind_the_proxy_is_known(tmp_path: Path, send: str) -> None:
    receiver = MemoryReceiver()
    async with (
        listening(receiver, proxy_networks=PROXIES) as connector,
        in_front_of(connector, tmp_path, send) as port,
        AsyncExitStack() as stack,
    ):
        for source in ("127.0.0.1", "127.0.0.77", "::1"):
            client = await through(port, source, stack)
            assert (await client.line()).startswith("220 mx.example.net")
            await client.begin()
            client.send(b"DATA\r\nx\r\n.\r\n")
            assert [await client.line() for _ in range(2)][-1] == str(QUEUED)
            here = client.writer.get_extra_info("sockname")
            client = receiver.kept[-1].client
            assert (client.address, client.port) == (source, here[1])


@VERSIONS
async def test_each_client_behind_the_proxy_has_its_own_number_of_connections(
    tmp_path: Path, send: str
) -> None:
    async with (
        listening(
            MemoryReceiver(), proxy_networks=PROXIES, max_inbound_connections_per_source=2
        ) as connector,
        in_front_of(connector, tmp_path, send) as port,
        AsyncExitStack() as stack,
    ):
        for number in range(2, 6):
            for _ in range(2):
                client = await through(port, f"127.0.0.{number}", stack)
                assert (await client.line()).startswith("220 ")
        one_more = await through(port, "127.0.0.3", stack)
        assert await one_more.line() == "421 4.7.0 Too many connections from your address"


@VERSIONS
async def test_its_health_checks_are_answered(tmp_path: Path, send: str) -> None:
    """It speaks for itself then: UNKNOWN, or LOCAL."""
    receiver = MemoryReceiver()
    async with listening(receiver, proxy_networks=PROXIES) as connector:
        check = "check check-send-proxy inter 200ms fall 1 rise 1"
        async with in_front_of(connector, tmp_path, send, check) as port, AsyncExitStack() as stack:
            await asyncio.sleep(1)  # some checks
            client = await through(port, "127.0.0.5", stack)
            assert (await client.line()).startswith("220 ")
        await eventually(lambda: connector.sessions == 0)


def of_the_page(connector: Connector, front: int) -> str:
    """The configuration of the how-to page, on this machine."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "haproxy.md").read_text("utf-8")
    text = textwrap.dedent(page.partition("```text\n")[2].partition("```")[0])
    text = re.sub(r"server (\w+) [\d.]+:25", rf"server \1 127.0.0.1:{connector.address[1]}", text)  # type: ignore[attr-defined]
    return text.replace("bind :25", f"bind 127.0.0.1:{front}")


async def test_the_configuration_of_the_how_to_page_serves(tmp_path: Path) -> None:
    receiver = MemoryReceiver()
    async with (
        listening(receiver, proxy_networks=PROXIES) as connector,
        running(lambda front: of_the_page(connector, front), tmp_path) as port,
        AsyncExitStack() as stack,
    ):
        client = await through(port, "127.0.0.9", stack)
        assert (await client.line()).startswith("220 ")
        await client.begin()
        client.send(b"DATA\r\nx\r\n.\r\n")
        assert [await client.line() for _ in range(2)][-1] == str(QUEUED)
    assert receiver.kept[0].client.address == "127.0.0.9"


async def test_without_a_header_it_is_not_served(tmp_path: Path) -> None:
    async with (
        listening(MemoryReceiver(), proxy_networks=PROXIES) as connector,
        in_front_of(connector, tmp_path, "") as port,
        AsyncExitStack() as stack,
    ):
        client = await through(port, "127.0.0.1", stack)
        client.send(b"EHLO client.example\r\n")
        assert await client.closed()
