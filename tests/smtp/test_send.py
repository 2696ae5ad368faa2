"""Outcomes per recipient, as a next hop's replies and failures make them."""

from __future__ import annotations

import asyncio

import pytest
from scripted_hop import CLOSE, HANG, ScriptedHop, envelope, original, recipients

from shadowrelay.core.delivery.settling import Ending
from shadowrelay.smtp.sending.session import ConnectionFailed, DeliveryResult, DeliverySession, Timeouts

MESSAGE = b"Subject: hello\r\n\r\nText.\r\n"
TWO = ("a@example.net", "b@example.net")
NO_PIPELINING = ("8BITMIME",)
BOTH_WAYS = pytest.mark.parametrize("offers", [("PIPELINING", "8BITMIME"), NO_PIPELINING])


async def send(hop: ScriptedHop, *to: str, content: bytes = MESSAGE, **server: object) -> DeliveryResult:
    session = DeliverySession(hop.server(**server))
    await session.connect()
    try:
        return await session.deliver(envelope(), recipients(*(to or TWO)), content)
    finally:
        await session.close()


def endings(result: DeliveryResult) -> list[Ending]:
    return [one.ending for one in result.results]


@BOTH_WAYS
async def test_an_accepted_message_is_accepted_for_every_recipient(offers: tuple[str, ...]) -> None:
    async with ScriptedHop(offers=offers) as hop:
        result = await send(hop)
    assert endings(result) == [Ending.ACCEPTED] * 2
    assert [one.reply for one in result.results] == ["250 2.0.0 queued"] * 2
    assert [original(content) for content in hop.contents] == [MESSAGE]
    assert hop.verbs() == ["EHLO", "MAIL", "RCPT", "RCPT", "DATA", "QUIT"]


async def test_commands_are_written_in_one_go_only_where_pipelining_is_offered() -> None:
    # The hop never answers RCPT: whoever waits for that reply does not get as far as DATA.
    async with ScriptedHop(RCPT=b"") as pipelined, ScriptedHop(RCPT=b"", offers=NO_PIPELINING) as lockstep:
        quick = Timeouts(rcpt=0.05, data=0.05)
        await send(pipelined, timeouts=quick)
        await send(lockstep, timeouts=quick)
    assert "DATA" in pipelined.verbs()
    assert lockstep.verbs() == ["EHLO", "MAIL", "RCPT"]


@BOTH_WAYS
async def test_a_refused_mail_command_settles_every_recipient(offers: tuple[str, ...]) -> None:
    refusal = b"503 5.5.1 MAIL first\r\n"
    async with ScriptedHop(offers=offers, MAIL=b"550 5.7.1 no\r\n", RCPT=refusal, DATA=refusal) as hop:
        result = await send(hop)
    assert endings(result) == [Ending.REJECTED] * 2
    assert {one.reply for one in result.results} == {"550 5.7.1 no"}
    assert hop.contents == []


@BOTH_WAYS
async def test_each_recipient_gets_the_reply_to_its_own_rcpt(offers: tuple[str, ...]) -> None:
    answers = [b"550 5.1.1 unknown\r\n", b"250 2.1.5 ok\r\n", b"450 4.2.1 busy\r\n"]
    async with ScriptedHop(offers=offers, RCPT=answers) as hop:
        result = await send(hop, *TWO, "c@example.net")
    assert endings(result) == [Ending.REJECTED, Ending.ACCEPTED, Ending.DEFERRED]
    assert result.results[0].reply == "550 5.1.1 unknown"


async def test_without_any_recipient_a_pipelined_354_is_answered_by_a_lone_dot() -> None:
    async with ScriptedHop(RCPT=b"550 5.1.1 unknown\r\n", DOT=b"554 5.5.1 no recipients\r\n") as hop:
        session = DeliverySession(hop.server())
        await session.connect()
        result = await session.deliver(envelope(), recipients(*TWO), MESSAGE)
        assert endings(result) == [Ending.REJECTED] * 2
        assert hop.contents == [b".\r\n"]
        assert session.alive
        await session.close()


async def test_without_any_recipient_and_pipelining_no_data_is_asked_for() -> None:
    async with ScriptedHop(offers=NO_PIPELINING, RCPT=b"550 5.1.1 unknown\r\n") as hop:
        await send(hop)
    assert "DATA" not in hop.verbs()


async def test_recipients_past_the_limit_are_named_when_others_were_taken() -> None:
    async with ScriptedHop(RCPT=[b"250 ok\r\n", b"452 4.5.3 too many\r\n"]) as hop:
        result = await send(hop)
    assert endings(result) == [Ending.ACCEPTED, Ending.DEFERRED]
    assert result.overflow == (2,)


async def test_a_full_mailbox_is_not_a_limit_on_recipients() -> None:
    async with ScriptedHop(RCPT=[b"250 ok\r\n", b"452 4.2.2 mailbox full\r\n"]) as hop:
        assert (await send(hop)).overflow == ()


TOO_MANY = (
    *("452 too many", "452 4.5.3 too many", "450 4.5.3 too many", "552 too many recipients"),
    *("552 5.5.3 too many recipients", "550 5.5.3 too many recipients", "552-too\r\n552 many"),
)


@pytest.mark.parametrize("offers", [("PIPELINING",), NO_PIPELINING])
@pytest.mark.parametrize("reply", TOO_MANY)
async def test_too_many_recipients_is_no_failure_once_some_were_taken(
    reply: str, offers: tuple[str, ...]
) -> None:
    answers = [b"250 ok\r\n", b"550 5.1.1 unknown\r\n", f"{reply}\r\n".encode()]
    async with ScriptedHop(offers=offers, RCPT=answers) as hop:
        session = DeliverySession(hop.server())
        await session.connect()
        result = await session.deliver(
            envelope(), recipients(*(f"{one}@example.net" for one in "abcd")), MESSAGE
        )
        await session.close()
    assert endings(result) == [Ending.ACCEPTED, Ending.REJECTED, Ending.DEFERRED, Ending.DEFERRED]
    assert result.overflow == (3, 4)


@pytest.mark.parametrize(
    ("reply", "ending"),
    [
        ("552 5.2.2 mailbox full", Ending.REJECTED),
        ("552 5.3.4 too big", Ending.REJECTED),
        ("550 too many recipients", Ending.REJECTED),
        ("452 4.2.2 mailbox full", Ending.DEFERRED),
    ],
)
async def test_other_refusals_after_a_recipient_was_taken_are_about_the_recipient(
    reply: str, ending: Ending
) -> None:
    async with ScriptedHop(RCPT=[b"250 ok\r\n", f"{reply}\r\n".encode()]) as hop:
        result = await send(hop)
    assert endings(result) == [Ending.ACCEPTED, ending]
    assert result.overflow == ()


@pytest.mark.parametrize(
    ("reply", "ending"),
    [
        ("452 4.5.3 too many", Ending.DEFERRED),
        ("552 5.5.3 too many", Ending.DEFERRED),
        ("552 mailbox full", Ending.REJECTED),
        ("550 5.5.3 too many", Ending.REJECTED),
    ],
)
async def test_a_hop_that_takes_nobody_names_no_recipients_past_its_limit(reply: str, ending: Ending) -> None:
    async with ScriptedHop(RCPT=f"{reply}\r\n".encode()) as hop:
        result = await send(hop)
    assert endings(result) == [ending] * 2
    assert result.overflow == ()


@pytest.mark.parametrize(
    ("reply", "ending"),
    [
        (b"451 4.3.0 later\r\n", Ending.DEFERRED),
        (b"554 5.6.0 never\r\n", Ending.REJECTED),
        (b"250 2.0.0 Duplicate dropped\r\n", Ending.DUPLICATE),
        (b"421 4.3.2 shutting down\r\n", Ending.DEFERRED),
        (b"399 what\r\n", Ending.UNREADABLE),
        (b"gibberish\r\n", Ending.UNREADABLE),
        (CLOSE, Ending.IN_DOUBT),
    ],
)
async def test_the_reply_to_the_final_dot_decides(reply: bytes, ending: Ending) -> None:
    async with ScriptedHop(DOT=reply) as hop:
        assert endings(await send(hop)) == [ending] * 2


async def test_silence_after_the_final_dot_is_in_doubt() -> None:
    async with ScriptedHop(DOT=HANG) as hop:
        result = await send(hop, timeouts=Timeouts(final_dot=0.05, quit=0.05))
    assert endings(result) == [Ending.IN_DOUBT] * 2
    assert not result.results[0].remote


@pytest.mark.parametrize("verb", ["RCPT", "DATA"])
async def test_a_session_lost_before_the_dot_defers(verb: str) -> None:
    async with ScriptedHop(**{verb: CLOSE}) as hop:
        result = await send(hop)
    assert endings(result) == [Ending.DEFERRED] * 2
    assert result.results[0].reply == f"451 4.4.2 Session lost at {verb}"


async def test_421_between_recipients_defers_those_without_a_final_answer_and_ends_the_session() -> None:
    answers = [b"550 5.1.1 unknown\r\n", b"250 ok\r\n", b"421 4.3.2 bye\r\n"]
    async with ScriptedHop(RCPT=answers) as hop:
        session = DeliverySession(hop.server())
        await session.connect()
        result = await session.deliver(
            envelope(), recipients(*TWO, "c@example.net", "d@example.net"), MESSAGE
        )
        assert endings(result) == [Ending.REJECTED] + [Ending.DEFERRED] * 3
        assert result.results[1].reply == "421 4.3.2 bye"
        assert not session.alive


async def test_multi_line_replies_and_several_in_one_segment_stay_paired() -> None:
    async with ScriptedHop(
        MAIL=b"250-2.1.0 sender\r\n250 2.1.0 ok\r\n",
        RCPT=[b"550-5.1.1 no such\r\n550 5.1.1 user\r\n250-fine\r\n250 really\r\n", b""],
    ) as hop:
        result = await send(hop)
    assert endings(result) == [Ending.REJECTED, Ending.ACCEPTED]
    assert result.results[0].reply == "550 5.1.1 no such user"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (b"250-first\r\n550 5.7.1 second\r\n", "250-first 550 5.7.1 second"),
        (b"gibberish \x07\r\n", "gibberish ?"),
    ],
    ids=["codes that differ", "gibberish"],
)
@pytest.mark.parametrize("verb", ["MAIL", "RCPT", "DATA", "DOT"])
async def test_what_is_no_reply_is_shown_as_the_server_said_it(verb: str, said: bytes, shown: str) -> None:
    async with ScriptedHop(**{verb: said}) as hop:
        if verb == "MAIL":
            with pytest.raises(ConnectionFailed) as failure:
                await send(hop)
            assert failure.value.error == shown
            return
        result = await send(hop)
    assert endings(result) == [Ending.UNREADABLE if verb == "DOT" else Ending.DEFERRED] * 2
    unread = "451 4.5.0 It took the content, its answer cannot be read"
    told = unread if verb == "DOT" else f"451 4.4.2 Session lost at {verb}"
    assert {one.reply for one in result.results} == {f"{told}: {shown}"}


async def test_a_reply_beyond_32_kib_still_means_what_its_code_says() -> None:
    long = b"".join(b"250-2.0.0 " + b"x" * 400 + b"\r\n" for _ in range(100)) + b"250 2.0.0 done\r\n"
    async with ScriptedHop(DOT=long) as hop:
        result = await send(hop)
    assert endings(result) == [Ending.ACCEPTED] * 2
    assert len(result.results[0].reply) <= 600


async def test_a_reply_that_never_ends_is_given_up_in_time() -> None:
    async with ScriptedHop(offers=NO_PIPELINING, MAIL=b"250-" + b"x" * 400_000) as hop:
        with pytest.raises(ConnectionFailed, match="mail"):
            await send(hop, timeouts=Timeouts(mail=0.2, quit=0.05))


async def test_what_arrives_unasked_ends_the_session_before_the_next_message() -> None:
    async with ScriptedHop(DOT=b"250 2.0.0 one\r\n550 5.0.0 unasked\r\n") as hop:
        session = DeliverySession(hop.server())
        await session.connect()
        result = await session.deliver(envelope(), recipients(*TWO), MESSAGE)
        assert [one.reply for one in result.results] == ["250 2.0.0 one"] * 2
        with pytest.raises(ConnectionFailed, match="unasked") as failure:
            await session.deliver(envelope(), recipients(*TWO), MESSAGE)
        assert failure.value.reused  # a fresh session is tried at once
        assert not session.alive


async def test_control_characters_in_a_reply_do_not_reach_the_result() -> None:
    async with ScriptedHop(DOT=b"550 5.0.0 a\x00b\x1b[31m\xff\r\n") as hop:
        result = await send(hop)
    assert result.results[0].reply.isprintable()
    assert result.results[0].reply.isascii()


async def test_lmtp_gives_one_reply_for_each_recipient_taken() -> None:
    dot = b"250 2.1.5 stored\r\n452 4.2.2 full\r\n250 2.1.5 Duplicate dropped\r\n"
    rcpt = [b"250 ok\r\n", b"550 5.1.1 unknown\r\n", b"250 ok\r\n", b"250 ok\r\n"]
    async with ScriptedHop(RCPT=rcpt, DOT=dot) as hop:
        result = await send(hop, *TWO, "c@example.net", "d@example.net", protocol="lmtp")
    assert hop.commands[0] == "LHLO mx1.example.org"
    assert endings(result) == [Ending.ACCEPTED, Ending.REJECTED, Ending.DEFERRED, Ending.DUPLICATE]


async def test_each_answer_of_an_lmtp_server_is_told_when_it_comes() -> None:
    told: list[tuple[int, Ending]] = []

    async def heard(answer: DeliveryResult) -> None:
        told.extend((one.number, one.ending) for one in answer.results)

    async with ScriptedHop(DOT=b"250 2.1.5 one\r\n452 4.2.2 two\r\n") as hop:
        timeouts = Timeouts(final_dot=0.2, quit=0.05)
        session = DeliverySession(hop.server(protocol="lmtp", timeouts=timeouts))
        await session.connect()
        task = asyncio.create_task(
            session.deliver(envelope(), recipients(*TWO, "c@example.net"), MESSAGE, heard=heard)
        )
        async with asyncio.timeout(30):
            while len(told) < 2:
                assert not task.done()
                await asyncio.sleep(0.01)
        assert told == [(1, Ending.ACCEPTED), (2, Ending.DEFERRED)]
        result = await task
    assert endings(result) == [Ending.ACCEPTED, Ending.DEFERRED, Ending.IN_DOUBT]
    assert len(told) == 2


async def test_lmtp_recipients_not_answered_before_the_session_is_lost_are_in_doubt() -> None:
    async with ScriptedHop(DOT=[b"250 2.1.5 stored\r\n"]) as hop:
        timeouts = Timeouts(final_dot=0.2, quit=0.05)
        result = await send(hop, protocol="lmtp", timeouts=timeouts)
    assert endings(result) == [Ending.ACCEPTED, Ending.IN_DOUBT]


async def test_behind_what_cannot_be_read_no_answer_of_an_lmtp_server_counts() -> None:
    dot = b"250 2.1.5 stored\r\nrubbish\r\n250 2.1.5 whose?\r\n"
    async with ScriptedHop(DOT=dot) as hop:
        result = await send(hop, *TWO, "c@example.net", "d@example.net", protocol="lmtp")
    assert endings(result) == [Ending.ACCEPTED] + [Ending.UNREADABLE] * 3


async def test_lmtp_without_any_recipient_does_not_wait_for_replies_that_never_come() -> None:
    async with ScriptedHop(RCPT=b"550 5.1.1 unknown\r\n") as hop:
        assert endings(await send(hop, protocol="lmtp")) == [Ending.REJECTED] * 2
    assert hop.contents == []
