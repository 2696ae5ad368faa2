"""Answers to a final dot over loopback, against the oracle of RFC 5321 4.2.1 and RFC 2033 4.2."""

from __future__ import annotations

import asyncio

import pytest
from odd_answers import SILENT, UNREADABLE, Odd, OddHop, answers, read_by_rfc
from scripted_hop import QUICK, envelope, recipients

from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.identifiers import NextHop
from shadowrelay.smtp.sending.session import ConnectionFailed, DeliverySession, NextHopServer, Timeouts

MESSAGE = b"Subject: x\r\n\r\nbody\r\n"
THREE = recipients("a@example.net", "b@example.net", "c@example.net")
SEEDS = 200


def session(hop: OddHop, protocol: str, **changes: object) -> DeliverySession:
    settings = {
        "name": NextHop("hop"),
        "host": "127.0.0.1",
        "port": hop.port,
        "local_hostname": "mx1.example.org",
        "tls": "none",
        "protocol": protocol,
        "timeouts": QUICK,
    }
    return DeliverySession(NextHopServer(**settings | changes))  # type: ignore[arg-type]


async def sent(hop: OddHop, protocol: str, **changes: object) -> list[Ending]:
    talk = session(hop, protocol, **changes)
    await talk.connect()
    try:
        result = await talk.deliver(envelope(), THREE, MESSAGE)
    finally:
        talk.abort()
    return [one.ending for one in result.results]


def expected(codes: list[str], protocol: str) -> list[Ending]:
    """What the answers mean. Of 3yz nobody can say what it answers."""
    meant: list[Ending] = []
    for code in codes:
        match code[0], code:
            case "2", _:
                meant.append(Ending.ACCEPTED)
            case "4", _:
                meant.append(Ending.DEFERRED)
            case "5", _:
                meant.append(Ending.REJECTED)
            case _, answer if answer == SILENT:
                meant.append(Ending.IN_DOUBT)
            case _:
                return meant + [Ending.UNREADABLE] * (3 - len(meant))
    return meant if protocol == "lmtp" else meant * 3


@pytest.mark.parametrize("protocol", ["smtp", "lmtp"])
async def test_each_answer_ends_as_the_rfc_reads_it(protocol: str) -> None:
    due = 3 if protocol == "lmtp" else 1
    met: set[Ending] = set()
    for seed in range(SEEDS):
        said = answers(seed, due)
        async with OddHop(Odd(said)) as hop, asyncio.timeout(30):
            got = await sent(hop, protocol)
        codes = read_by_rfc(said, due)
        assert got == expected(codes, protocol), (seed, said[:200])
        met |= set(got)
    assert met >= {Ending.ACCEPTED, Ending.DEFERRED, Ending.REJECTED, Ending.UNREADABLE}


@pytest.mark.parametrize("ends", ["close", "reset"])
async def test_an_answer_cut_at_each_octet_is_one_only_when_it_is_whole(ends: str) -> None:
    whole = b"250-one\r\n250 two\r\n"
    for at in range(1, len(whole) + 1):
        async with OddHop(Odd(whole[:at], ends=ends)) as hop, asyncio.timeout(30):
            got = await sent(hop, "smtp")
        assert got == [Ending.ACCEPTED if at == len(whole) else Ending.UNREADABLE] * 3, at


async def test_a_hop_that_answers_nothing_leaves_the_message_in_doubt_as_ever() -> None:
    async with OddHop(Odd(b"")) as hop:
        assert await sent(hop, "smtp") == [Ending.IN_DOUBT] * 3


async def test_an_answer_that_does_not_end_is_unreadable_when_its_time_is_over() -> None:
    async with OddHop(Odd(b"250-ok\r\n250 o", ends="stay")) as hop:
        timeouts = Timeouts(final_dot=0.2, quit=0.05)
        assert await sent(hop, "smtp", timeouts=timeouts) == [Ending.UNREADABLE] * 3


async def test_an_answer_of_ten_megabytes_counts_as_what_it_says() -> None:
    long = (b"250-2.0.0 " + b"x" * 1013 + b"\n") * 10_240
    async with OddHop(Odd(long + b"250 2.0.0 done\r\n")) as hop:
        assert await sent(hop, "smtp") == [Ending.ACCEPTED] * 3
    async with OddHop(Odd(long + b"550 no\r\n")) as hop:
        assert await sent(hop, "smtp") == [Ending.UNREADABLE] * 3
    async with OddHop(Odd(b"250 " + b"x" * (10 << 20) + b"\r\n")) as hop:
        assert await sent(hop, "smtp") == [Ending.ACCEPTED] * 3


@pytest.mark.parametrize("protocol", ["smtp", "lmtp"])
@pytest.mark.parametrize(
    "early", [b"250 ok\r\n", b"250 ok\r\n" * 3, b"550 5.7.1 no\r\n", b"25", b"\r\n", b"2"]
)
async def test_what_came_before_the_dot_is_no_answer(early: bytes, protocol: str) -> None:
    """Today's code word 550 neither bounces the message, nor does 250 settle it: nothing was taken."""
    async with OddHop(Odd(b"250 late\r\n" * 3, early=early)) as hop:
        assert await sent(hop, protocol) == [Ending.DEFERRED] * 3
        assert hop.taken == 0


async def test_one_reply_too_many_ends_the_session_and_the_message_stays_delivered() -> None:
    async with OddHop(Odd(b"250 one\r\n250 two\r\n", ends="stay")) as hop:
        talk = session(hop, "smtp")
        await talk.connect()
        first = await talk.deliver(envelope(), THREE, MESSAGE)
        assert [one.ending for one in first.results] == [Ending.ACCEPTED] * 3
        with pytest.raises(ConnectionFailed) as failure:
            await talk.deliver(envelope(), THREE, MESSAGE)
        assert failure.value.reused
        assert hop.taken == 1


async def test_a_hop_that_speaks_before_it_is_greeted_gets_nothing() -> None:
    class Hasty(OddHop):
        async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 one\r\n250 two\r\n")
            await reader.read()

    async with Hasty(Odd(b"")) as hop:
        with pytest.raises(ConnectionFailed, match="it spoke before it was asked: 250 two"):
            await session(hop, "smtp").connect()


def test_the_oracle_tells_silence_from_what_cannot_be_read() -> None:
    assert read_by_rfc(b"", 1) == [SILENT]
    assert read_by_rfc(b"250 a\n25", 3) == ["250", UNREADABLE, UNREADABLE]
