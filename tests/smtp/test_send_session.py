"""Opening, reusing and losing a session with a next hop."""

from __future__ import annotations

import asyncio
import socket

import pytest
from scripted_hop import CLOSE, HANG, ScriptedHop, envelope, recipients

from shadowrelay.core.delivery.settling import Ending
from shadowrelay.smtp.sending.session import ConnectionFailed, DeliverySession, Timeouts

MESSAGE = b"Subject: hello\r\n\r\nText.\r\n"


async def connected(hop: ScriptedHop, **server: object) -> DeliverySession:
    session = DeliverySession(hop.server(**server))
    await session.connect()
    return session


async def deliver(session: DeliverySession) -> Ending:
    result = await session.deliver(envelope(), recipients("a@example.net"), MESSAGE)
    return result.results[0].ending


async def closed(session: DeliverySession) -> None:
    async with asyncio.timeout(30):
        while session.alive:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_many_messages_use_one_session_without_reset() -> None:
    async with ScriptedHop() as hop:
        session = await connected(hop)
        assert [await deliver(session) for _ in range(5)] == [Ending.ACCEPTED] * 5
        await session.close()
    assert hop.connections == 1
    assert "RSET" not in hop.verbs()


async def test_after_a_transaction_that_stayed_open_the_next_begins_with_a_reset() -> None:
    async with ScriptedHop(offers=(), RCPT=[b"550 5.1.1 unknown\r\n", b"250 ok\r\n"]) as hop:
        session = await connected(hop)
        assert await deliver(session) is Ending.REJECTED
        assert await deliver(session) is Ending.ACCEPTED
        await session.close()
    assert hop.verbs() == ["EHLO", "MAIL", "RCPT", "RSET", "MAIL", "RCPT", "DATA", "QUIT"]


@pytest.mark.parametrize("answer", [CLOSE, b"421 4.4.2 idle too long\r\n"])
async def test_a_reused_session_found_dead_before_mail_is_answered_says_so(answer: object) -> None:
    async with ScriptedHop(MAIL=[b"250 ok\r\n", answer]) as hop:
        session = await connected(hop)
        await deliver(session)
        with pytest.raises(ConnectionFailed) as failure:
            await deliver(session)
        assert failure.value.reused
        assert failure.value.step == "mail"
        assert not session.alive
        await session.connect()
        assert hop.connections == 2


@pytest.mark.parametrize("verb", ["RCPT", "DATA"])
async def test_421_before_the_content_of_a_reused_session_says_nothing_of_the_message(
    verb: str,
) -> None:
    usual = {"RCPT": b"250 ok\r\n", "DATA": b"354 go ahead\r\n"}[verb]
    script = {verb: [usual, b"421 4.5.3 too many messages in this session\r\n", usual]}
    async with ScriptedHop(**script) as hop:
        session = await connected(hop)
        await deliver(session)
        with pytest.raises(ConnectionFailed) as failure:
            await deliver(session)
        assert failure.value.reused
        assert not session.alive
        await session.connect()
        assert await deliver(session) is Ending.ACCEPTED
        await session.close()
    assert len(hop.contents) == 2


async def test_a_session_that_fails_its_reset_is_dead_until_connected_again() -> None:
    async with ScriptedHop(RSET=CLOSE) as hop:
        session = await connected(hop)
        await deliver(session)
        with pytest.raises(ConnectionFailed, match="rset"):
            await session.reset()
        assert not session.alive
        with pytest.raises(ConnectionFailed, match="not connected"):
            await deliver(session)


async def test_a_fresh_session_that_is_lost_at_mail_is_not_called_reused() -> None:
    async with ScriptedHop(MAIL=CLOSE) as hop:
        with pytest.raises(ConnectionFailed) as failure:
            await deliver(await connected(hop))
    assert not failure.value.reused


async def test_421_to_mail_on_a_fresh_session_defers() -> None:
    async with ScriptedHop(MAIL=b"421 4.3.2 busy\r\n") as hop:
        session = await connected(hop)
        assert await deliver(session) is Ending.DEFERRED
        assert not session.alive


async def test_nobody_listening_is_a_connection_failure() -> None:
    async with ScriptedHop() as hop:
        server = hop.server()
    with pytest.raises(ConnectionFailed) as failure:
        await DeliverySession(server).connect()
    assert failure.value.step == "connect"


@pytest.mark.parametrize(
    ("script", "step"),
    [
        ({"GREETING": b"554 5.7.1 go away\r\n"}, "greeting"),
        ({"GREETING": b"421 4.3.2 busy\r\n"}, "greeting"),
        ({"GREETING": CLOSE}, "greeting"),
        ({"GREETING": b"HTTP/1.1 400 Bad Request\r\n"}, "greeting"),
        ({"EHLO": b"421 4.3.2 busy\r\n"}, "ehlo"),
        ({"EHLO": CLOSE}, "ehlo"),
        ({"EHLO": b"502 no\r\n", "HELO": b"502 no\r\n"}, "ehlo"),
    ],
)
async def test_a_session_that_cannot_be_opened_names_the_step(script: dict[str, object], step: str) -> None:
    async with ScriptedHop(**script) as hop:
        with pytest.raises(ConnectionFailed) as failure:
            await connected(hop)
    assert failure.value.step == step


@pytest.mark.parametrize("verb", ["GREETING", "EHLO"])
async def test_a_reply_whose_codes_differ_is_shown_as_the_server_said_it(verb: str) -> None:
    async with ScriptedHop(**{verb: b"220-hop.test\r\n521 5.7.1 blocked\r\n"}) as hop:
        with pytest.raises(ConnectionFailed) as failure:
            await connected(hop)
    assert failure.value.error == "220-hop.test 521 5.7.1 blocked"


async def test_a_slow_greeting_is_waited_for_no_longer_than_its_timeout() -> None:
    async with ScriptedHop(GREETING=HANG) as hop, asyncio.timeout(30):
        with pytest.raises(ConnectionFailed, match="greeting"):
            await connected(hop, timeouts=Timeouts(connect=60, greeting=0.05))


async def test_the_deadline_of_connecting_is_not_that_of_the_greeting() -> None:
    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        writer.write(b"421 4.3.2 busy\r\n")
        writer.close()

    hop = ScriptedHop()
    server = await asyncio.start_server(late, "127.0.0.1", 0)
    hop.port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(ConnectionFailed, match="greeting: refused"):
            await connected(hop, timeouts=Timeouts(connect=0.1, greeting=60))
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf:
        hop.port = deaf.getsockname()[1]
        with socket.create_connection(deaf.getsockname()):  # more are not let in
            async with asyncio.timeout(30):
                with pytest.raises(ConnectionFailed, match="connect: TimeoutError"):
                    await connected(hop, timeouts=Timeouts(connect=0.1, greeting=60))


async def test_a_server_older_than_ehlo_is_greeted_with_helo() -> None:
    async with ScriptedHop(EHLO=b"500 what?\r\n") as hop:
        session = await connected(hop)
        assert await deliver(session) is Ending.ACCEPTED
        await session.close()
    assert hop.commands[:3] == [
        "EHLO mx1.example.org",
        "HELO mx1.example.org",
        "MAIL FROM:<sender@example.org>",
    ]


async def test_a_cancelled_delivery_leaves_the_next_hop_without_the_message() -> None:
    never = asyncio.Event()

    async def content():
        yield MESSAGE
        await never.wait()

    async with ScriptedHop() as hop:
        session = await connected(hop)
        task = asyncio.create_task(session.deliver(envelope(), recipients("a@example.net"), content()))
        async with asyncio.timeout(30):
            while "DATA" not in hop.verbs():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await closed(session)
    assert hop.contents == []


async def test_content_that_cannot_be_read_ends_the_session_before_the_dot() -> None:
    async def content():
        yield MESSAGE
        raise OSError("disk gone")

    async with ScriptedHop() as hop:
        session = await connected(hop)
        with pytest.raises(OSError, match="disk gone"):
            await session.deliver(envelope(), recipients("a@example.net"), content())
        await closed(session)
    assert hop.contents == []


async def test_closing_twice_or_before_connecting_is_harmless() -> None:
    async with ScriptedHop(QUIT=HANG) as hop:
        session = DeliverySession(hop.server(timeouts=Timeouts(quit=0.05)))
        await session.close()
        await session.connect()
        await session.close()
        await session.close()
    assert not session.alive


def test_a_local_hostname_that_could_carry_more_than_a_name_is_refused() -> None:
    hop = ScriptedHop()
    hop.port = 25
    with pytest.raises(ValueError, match="local_hostname"):
        hop.server(local_hostname="mx1.example.org\r\nMAIL")
