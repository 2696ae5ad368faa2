"""How much a client may send in a minute: at all workers, by network and by user, and what it is told."""

from __future__ import annotations

import asyncio
import os
import ssl
from base64 import b64encode
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest
from receiving import QUICK, MemoryReceiver, RawClient, connected, eventually, listening

from shadowrelay import shared_counts
from shadowrelay.shared_counts import SIZE, ConnectorCounts, SharedCounts
from shadowrelay.smtp.receiving import rates
from shadowrelay.smtp.receiving.connector import Connector
from shadowrelay.smtp.receiving.contract import Client, RateLimits

SENT = "250 2.1.0 Sender OK"
TAKEN = "250 2.1.5 Recipient OK"
MESSAGES = "450 4.7.1 Too many messages in a minute, try again later"
RECIPIENTS = "450 4.7.1 Too many recipients in a minute, try again later"
CONNECTIONS = "421 4.7.0 Too many connections in a minute, try again later"


class Users:
    """Everybody, with any password."""

    offered, scram = True, False

    async def check(self, session: Client, name: str, password: bytes) -> bool:
        return True


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute ends soon."""
    monkeypatch.setattr(shared_counts, "MINUTE", 0.2)


async def greeted(stack: AsyncExitStack, connector: Connector, address: str = "") -> RawClient:
    client = await stack.enter_async_context(connected(connector))
    await client.line()
    if address:
        assert (await client.say(f"XCLIENT ADDR={address}")).startswith("220")
    await client.say("EHLO client.example")
    return client


def limited(**limits: Any) -> dict[str, Any]:
    networks = (ip_network("127.0.0.1/32"),)  # who may say that it is another
    return {"rates": RateLimits(**limits), "xclient_networks": networks}


async def mail(client: RawClient) -> str:
    said = await client.say("MAIL FROM:<a@example.org>")
    await client.say("RSET")
    return said


async def until_sent(client: RawClient) -> list[str]:
    """Try again until there is room; what was heard."""
    heard = [await mail(client)]
    async with asyncio.timeout(30):
        while heard[-1] != SENT:
            await asyncio.sleep(0.02)
            heard.append(await mail(client))
    return heard


async def test_messages_of_one_network_count_together_and_others_for_themselves() -> None:
    async with (
        AsyncExitStack() as stack,
        listening(MemoryReceiver(), **limited(messages=2, ipv4_prefix=24, ipv6_prefix=48)) as connector,
    ):
        first = await greeted(stack, connector, "192.0.2.7")
        second = await greeted(stack, connector, "192.0.2.8")
        assert [await mail(first), await mail(second)] == [SENT, SENT]
        assert [await mail(first), await mail(second)] == [MESSAGES, MESSAGES]
        assert await mail(await greeted(stack, connector, "198.51.100.7")) == SENT
        sixth = [await greeted(stack, connector, f"IPV6:2001:db8:1:{part}::1") for part in (1, 2, 3)]
        assert [await mail(one) for one in sixth] == [SENT, SENT, MESSAGES]
        told = connector.rates and [(one.limit, one.who, one.times) for one in connector.rates.held_back]
    assert told == [("messages", "2001:db8:1::/48", 1), ("messages", "192.0.2.0/24", 2)]


@pytest.mark.usefixtures("soon")
async def test_after_a_minute_there_is_room_again_and_what_was_refused_does_not_count() -> None:
    async with (
        AsyncExitStack() as stack,
        listening(MemoryReceiver(), max_junk_commands=None, **limited(messages=1)) as connector,
    ):
        client = await greeted(stack, connector)
        assert await mail(client) == SENT
        assert set(await until_sent(client)) <= {SENT, MESSAGES}


async def test_recipients_count_and_those_that_were_taken_stay() -> None:
    receiver = MemoryReceiver()
    async with AsyncExitStack() as stack, listening(receiver, **limited(recipients=2)) as connector:
        client = await greeted(stack, connector)
        await client.say("MAIL FROM:<a@example.org>")
        said = [await client.say(f"RCPT TO:<{name}@example.net>") for name in ("b", "c", "d")]
        assert said == [TAKEN, TAKEN, RECIPIENTS]
        assert (await client.content(b"x\r\n")).startswith("250")
    assert [one.address for one in receiver.kept[0].recipients] == ["b@example.net", "c@example.net"]


async def test_connections_are_turned_away_before_the_greeting() -> None:
    async with (
        AsyncExitStack() as stack,
        listening(MemoryReceiver(), rates=RateLimits(connections=2)) as connector,
    ):
        for _ in range(2):
            async with connected(connector) as client:
                assert (await client.line()).startswith("220")
        await eventually(lambda: connector.sessions == 0)  # it is the rate that counts, not who is there
        client = await stack.enter_async_context(connected(connector))
        assert await client.line() == CONNECTIONS
        assert await client.closed()
        await eventually(lambda: connector.sessions == 0)


async def test_a_user_has_limits_of_its_own_wherever_it_comes_from(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server, client_side = contexts
    limits = RateLimits(messages=1, user_messages=3)
    async with (
        AsyncExitStack() as stack,
        listening(MemoryReceiver(), tls=server, implicit_tls=True, logins=Users(), rates=limits) as connector,
    ):

        async def as_user(name: str) -> RawClient:
            client = await stack.enter_async_context(connected(connector, tls=client_side))
            await client.line()
            await client.say("EHLO client.example")
            if name:
                given = b64encode(f"\0{name}\0x".encode()).decode()
                assert (await client.say(f"AUTH PLAIN {given}")).startswith("235")
            return client

        stranger = await as_user("")
        assert [await mail(stranger), await mail(stranger)] == [SENT, MESSAGES]
        alice = [await as_user("alice"), await as_user("alice")]
        assert [await mail(one) for one in (*alice, *alice)] == [SENT, SENT, SENT, MESSAGES]
        assert await mail(await as_user("bob")) == SENT
        assert connector.rates is not None
        assert connector.rates.held_back[0].who == "user alice"


def shared(count: int) -> Callable[[], ConnectorCounts]:
    memory = memoryview(bytearray(os.urandom(16) + bytes(SIZE - 16)))
    numbers = iter(range(1, count + 1))
    return lambda: ConnectorCounts(SharedCounts(memory, next(numbers)), "default")


@pytest.mark.parametrize("ends", [False, True], ids=["within a minute", "after it"])
async def test_all_workers_count_together_and_one_that_nobody_asks_gives_back_too(
    monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    if ends:
        monkeypatch.setattr(shared_counts, "MINUTE", 0.2)
    of_worker = shared(2)
    options = replace(QUICK, rates=RateLimits(messages=1), max_junk_commands=None)
    async with AsyncExitStack() as stack:
        clients = []
        for _ in range(2):
            worker = Connector(options, MemoryReceiver(), shared=of_worker())
            worker.address = await worker.start()  # type: ignore[attr-defined]
            stack.push_async_callback(worker.stop, 0)
            clients.append(await greeted(stack, worker))
        first, second = clients
        assert await mail(first) == SENT
        if ends:
            await until_sent(second)  # the first is never asked again
        else:
            assert await mail(second) == MESSAGES


async def test_who_was_held_back_is_told_and_never_of_more_than_a_hundred() -> None:
    async with (
        AsyncExitStack() as stack,
        listening(
            MemoryReceiver(), **limited(messages=1), max_junk_commands=None, max_inbound_connections=None
        ) as connector,
    ):
        client = await greeted(stack, connector)
        for number in range(rates.REMEMBERED + 20):
            await client.say(f"XCLIENT ADDR=192.0.2.{number}", "EHLO client.example")
            assert [await mail(client), await mail(client)] == [SENT, MESSAGES]
        assert connector.rates is not None
        told = connector.rates.held_back
        assert len(told) == rates.REMEMBERED
        assert (told[0].who, told[0].connector) == ("192.0.2.119", "default")
        assert connector.rates.refused["messages"] == rates.REMEMBERED + 20


async def test_limits_may_come_change_and_go_while_it_runs() -> None:
    async with AsyncExitStack() as stack, listening(MemoryReceiver()) as connector:
        client = await greeted(stack, connector)
        for limits, heard in (
            (None, [SENT, SENT, SENT]),
            (RateLimits(messages=1), [SENT, MESSAGES]),
            (RateLimits(messages=2), [SENT, MESSAGES]),
            (None, [SENT, SENT]),
        ):
            connector.become(Connector(replace(connector.options, rates=limits), MemoryReceiver()))
            assert [await mail(client) for _ in heard] == heard
