"""XCLIENT (Postfix's XCLIENT_README): a host that is believed says for which client it speaks."""

from __future__ import annotations

import asyncio
import shutil
from ipaddress import ip_network

import pytest
from receiving import MemoryReceiver, connected, eventually, listening

from shadowrelay.smtp.receiving.contract import Client

HERE = (ip_network("127.0.0.1/32"),)
ELSEWHERE = (ip_network("192.0.2.0/24"),)
OFFERED = "XCLIENT NAME ADDR PORT PROTO HELO LOGIN"
SWAKS = shutil.which("swaks")


async def taken(*commands: str) -> tuple[Client, list[str]]:
    """Who sent a message after these commands, and what was answered to them."""
    receiver = MemoryReceiver()
    async with listening(receiver, xclient_networks=HERE) as connector, connected(connector) as client:
        await client.line()
        replies = [await client.say(command) for command in commands]
        client.send(b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\nx\r\n.\r\n")
        assert [await client.reply() for _ in range(4)][-1].startswith("250"), replies
    return receiver.kept[0].client, replies


@pytest.mark.skipif(SWAKS is None, reason="there is no swaks (apt-get install swaks)")
async def test_swaks_introduces_another_client() -> None:
    receiver = MemoryReceiver()
    async with listening(receiver, xclient_networks=HERE) as connector:
        command = [
            SWAKS or "swaks", "--server", "127.0.0.1", "--port", str(connector.address[1]),  # type: ignore[attr-defined]
            "--from", "a@example.org", "--to", "b@example.net", "--xclient-addr", "192.0.2.7",
            "--xclient-port", "4711", "--xclient-login", "alice", "--xclient-proto", "ESMTP",
            "--xclient-name", "[UNAVAILABLE]", "--xclient-helo", "client.example",
        ]  # fmt: skip
        pipe = asyncio.subprocess.PIPE
        run = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
        async with asyncio.timeout(60):
            said = (await run.communicate())[0].decode()
    assert run.returncode == 0, said
    assert OFFERED in said
    client = receiver.kept[0].client
    assert (client.address, client.port, client.login) == ("192.0.2.7", 4711, "alice")


@pytest.mark.parametrize(
    ("attributes", "address"),
    [
        ("ADDR=192.0.2.7", "192.0.2.7"),
        ("addr=ipv6:2001:db8::7", "2001:db8::7"),
        ("ADDR=IPV6:::ffff:192.0.2.7", "192.0.2.7"),
        ("ADDR=[UNAVAILABLE]", ""),
        ("NAME=client.example", "127.0.0.1"),
    ],
)
async def test_the_client_is_the_one_that_is_named(attributes: str, address: str) -> None:
    client, replies = await taken("EHLO proxy.example", f"XCLIENT {attributes}", "EHLO client.example")
    assert OFFERED in replies[0]
    assert replies[1].startswith("220 mx.example.net ESMTP")
    assert (client.address, client.helo, client.login) == (address, "client.example", "")


async def test_what_the_client_said_itself_may_be_told_and_no_greeting_is_needed_then() -> None:
    client, _ = await taken("XCLIENT ADDR=192.0.2.7 PROTO=ESMTP HELO=client.example LOGIN=alice")
    assert (client.helo, client.service, client.protocol(smtputf8=False)) == (
        "client.example",
        "ESMTP",
        "ESMTPA",
    )


async def test_a_host_may_introduce_one_client_after_the_other() -> None:
    client, replies = await taken(
        "EHLO proxy.example",
        "XCLIENT ADDR=192.0.2.7 LOGIN=alice",
        "XCLIENT ADDR=192.0.2.8",
        "EHLO second.example",
    )
    assert replies[2].startswith("220")
    assert (client.address, client.login) == ("192.0.2.8", "")


@pytest.mark.parametrize(
    "attributes",
    [
        "",
        "ADDR",
        "ADDR=somewhere",
        "ADDR=192.0.2.7 COLOUR=red",
        "PORT=65536",
        "PORT=-1",
        "PROTO=LMTP",
        "HELO=a+0D+0Ab",
        "HELO=bad+ZZ",
        "LOGIN=a+20b",
        "LOGIN=x" * 200,
    ],
)
async def test_what_cannot_be_understood_changes_nothing(attributes: str) -> None:
    client, replies = await taken("EHLO proxy.example", f"XCLIENT {attributes}".rstrip())
    assert replies[1].startswith(("501 5.5.4", "500 5.5.2")), replies
    assert (client.address, client.helo, client.login) == ("127.0.0.1", "proxy.example", "")


async def test_nobody_else_knows_the_verb() -> None:
    for networks in ((), ELSEWHERE):
        async with (
            listening(MemoryReceiver(), xclient_networks=networks) as connector,
            connected(connector) as client,
        ):
            await client.line()
            assert "XCLIENT" not in await client.say("EHLO client.example")
            assert await client.say("XCLIENT ADDR=192.0.2.7") == "500 5.5.2 Command not recognised"
            assert "XCLIENT" not in await client.say("HELP")


async def test_a_transaction_is_not_handed_to_another_client() -> None:
    async with (
        listening(MemoryReceiver(), xclient_networks=HERE) as connector,
        connected(connector) as client,
    ):
        await client.line()
        await client.begin()
        assert (await client.say("XCLIENT ADDR=192.0.2.7")).startswith("503 5.5.1")


async def test_each_client_counts_at_its_own_address_and_at_one_alone() -> None:
    receiver = MemoryReceiver()
    async with listening(receiver, xclient_networks=HERE, max_inbound_connections_per_source=1) as connector:
        async with connected(connector) as first, connected(connector) as second:
            for client in (first, second):  # the host itself has no limit
                assert (await client.line()).startswith("220")
            assert (await first.say("XCLIENT ADDR=192.0.2.7")).startswith("220")
            assert (
                await second.say("XCLIENT ADDR=192.0.2.7")
                == "421 4.7.0 Too many connections from your address"
            )
            assert await second.closed()
            assert (await first.say("XCLIENT ADDR=192.0.2.8")).startswith("220")
            async with connected(connector) as third:
                await third.line()
                assert (await third.say("XCLIENT ADDR=192.0.2.7")).startswith("220")
        await eventually(lambda: connector.sessions == 0)
        async with connected(connector) as again:
            await again.line()
            assert (await again.say("XCLIENT ADDR=192.0.2.8")).startswith("220")
