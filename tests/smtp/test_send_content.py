"""What leaves for a next hop: octets, extensions, and what is refused without asking it."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from aiosmtpd.smtp import SMTP as Server
from hypothesis import given
from hypothesis import strategies as st
from scripted_hop import CLOSE, ScriptedHop, envelope, original, recipients

from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.events.reports import ReportKind
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.messages import Envelope, Recipient
from shadowrelay.database.content import ContentDamaged
from shadowrelay.smtp.sending.message import BareLineEnding, DotStuffer
from shadowrelay.smtp.sending.session import DeliveryResult, DeliverySession, Timeouts
from shadowrelay.wire.report import build_report

OURS, ANOTHER = (MessageId(f"0a1b2c3d-0000-8000-8000-00000000000{n}") for n in (1, 2))
AT = datetime(2026, 11, 21, 10, tzinfo=UTC)

MESSAGE = b"Subject: hello\r\n\r\nText.\r\n"
LARGE = (b"x" * 998 + b"\r\n") * 20_000
DOTTED = b".\r\n..\r\n.a\r\n\r\n.\r\nb.\r\n...\r\n"


async def send(
    hop: ScriptedHop,
    content: bytes | AsyncIterator[bytes] = MESSAGE,
    *,
    about: Envelope | None = None,
    to: list[Recipient] | None = None,
    **options: object,
) -> DeliveryResult:
    session = DeliverySession(hop.server())
    await session.connect()
    try:
        return await session.deliver(
            about or envelope(), to or recipients("a@example.net"), content, **options
        )
    finally:
        await session.close()


def report(report_id: MessageId, ret: str = "FULL") -> bytes:
    """A report that returns a message of 4,000 octets, or its header."""
    return build_report(
        report_id=report_id,
        reporting_mta="mx1.example.org",
        envelope=Envelope(sender="a@example.org", size=4000, ret=ret),
        received_at=AT,
        recipient=Recipient(1, "b@example.net", NextHop("hop")),
        kind=ReportKind.FAILED,
        reply="550 5.1.1 no such user",
        remote_mta=None,
        now=AT,
        will_retry_until=None,
        original=b"Subject: hello\r\n\r\n" + b"a line\r\n" * 500,
        original_is_complete=True,
    )


async def stream(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def status(result: DeliveryResult) -> list[str]:
    return [one.reply.split(" ")[1] for one in result.results]


@pytest.mark.parametrize("content", [b"", DOTTED, MESSAGE, b"\r\n", b"a\x00b\xff\r\n", b"x" * 5000 + b"\r\n"])
async def test_content_arrives_octet_for_octet(content: bytes) -> None:
    async with ScriptedHop() as hop:
        result = await send(hop, content)
    assert result.results[0].ending is Ending.ACCEPTED
    assert original(hop.contents[0]) == content


async def test_content_without_a_last_line_end_gets_one() -> None:
    async with ScriptedHop() as hop:
        await send(hop, b"no end")
    assert hop.contents == [b"no end\r\n.\r\n"]


@given(st.data())
def test_stuffing_does_not_depend_on_where_blocks_end(data: st.DataObject) -> None:
    words = st.lists(st.sampled_from([b".", b"..", b"a", b"\r\n", b"\r\n.\r\n", b"\r\n."]), max_size=12)
    content = b"".join(data.draw(words)) + b"\r\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=6)))
    stuffer = DotStuffer()
    edges = [0, *cuts, len(content)]
    sent = b"".join(stuffer.feed(content[a:b]) for a, b in pairwise(edges))
    lines = content.split(b"\r\n")
    expected = b"\r\n".join(b"." + line if line.startswith(b".") else line for line in lines)
    assert sent + stuffer.end() == expected + b".\r\n"


@pytest.mark.parametrize(
    "bare", [b"a\nb\r\n", b"a\rb\r\n", b"a\r\r\n", b"\n.\r\n", b"a\n.\nb\r\n", b"a\r", b"\ra\n\r\n"]
)
def test_a_bare_line_ending_is_found_wherever_a_block_ends(bare: bytes) -> None:
    for cut in range(len(bare) + 1):
        stuffer = DotStuffer()
        with pytest.raises(BareLineEnding):  # noqa: PT012
            stuffer.feed(bare[:cut])
            stuffer.feed(bare[cut:])
            stuffer.end()


async def test_a_bare_line_ending_never_reaches_the_next_hop() -> None:
    async with ScriptedHop() as hop:
        result = await send(hop, b"a\r\n\n.\r\nMAIL FROM:<forged@example.org>\r\n")
    assert hop.contents == []
    assert result.results[0].ending is Ending.REJECTED
    assert status(result) == ["5.6.11"]


async def test_a_large_stream_leaves_at_the_pace_of_the_reader_in_flat_memory() -> None:
    piece, count, made = b"x" * 1022 + b"\r\n", 25 * 1024, 0
    resumed = asyncio.Event()

    async def content() -> AsyncIterator[bytes]:
        nonlocal made
        for _ in range(count // 256):
            made += 1
            yield piece * 256

    async with ScriptedHop(pause=resumed.wait) as hop:
        hop.keep_contents = False
        session = DeliverySession(hop.server())
        await session.connect()
        delivering = asyncio.create_task(
            session.deliver(envelope(size=count * 1024), recipients("a@example.net"), content())
        )
        before = -1
        async with asyncio.timeout(30):
            while made != before or not made:
                before = made
                await asyncio.sleep(0.05)
        assert made < count // 256 // 2  # the reader stopped, so did we
        tracemalloc.start()
        resumed.set()
        result = await delivering
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await session.close()
    assert result.results[0].ending is Ending.ACCEPTED
    assert made == count // 256
    assert hop.octets == count * 1024 + 3
    assert peak < 8 * 2**20


async def test_a_next_hop_that_stops_reading_is_given_up_before_the_dot() -> None:
    never = asyncio.Event()
    async with ScriptedHop(pause=never.wait) as hop:
        session = DeliverySession(hop.server(timeouts=Timeouts(block=0.1)))
        await session.connect()
        result = await session.deliver(envelope(), recipients("a@example.net"), LARGE)
    assert result.results[0].ending is Ending.DEFERRED
    assert not session.alive


async def test_a_refusal_in_the_middle_of_the_content_is_shown_and_decides_nothing() -> None:
    async with ScriptedHop(EARLY=b"552 5.3.4 too much\r\n") as hop:

        async def content() -> AsyncIterator[bytes]:
            yield MESSAGE
            await asyncio.sleep(0.1)
            yield MESSAGE

        result = await send(hop, content())
    assert result.results[0].ending is Ending.DEFERRED
    assert result.results[0].reply == "451 4.4.2 Session lost at content: 552 5.3.4 too much"
    assert hop.contents == []


async def test_a_positive_reply_before_the_dot_takes_nothing() -> None:
    async with ScriptedHop(EARLY=b"250 2.0.0 queued\r\n") as hop:

        async def content() -> AsyncIterator[bytes]:
            yield MESSAGE
            await asyncio.sleep(0.1)

        result = await send(hop, content())
    assert result.results[0].ending is Ending.DEFERRED
    assert hop.contents == []


async def test_a_refusal_followed_by_a_closed_connection_is_shown() -> None:
    async def leave() -> None:
        await asyncio.sleep(0.05)
        raise ConnectionResetError

    async with ScriptedHop(EARLY=b"552 5.3.4 too much\r\n", pause=leave) as hop:
        result = await send(hop, LARGE)
    assert result.results[0].reply == "451 4.4.2 Session lost at content: 552 5.3.4 too much"


async def test_a_session_lost_in_the_last_block_is_lost_before_the_dot() -> None:
    async def leave() -> None:
        await asyncio.sleep(0.05)
        raise ConnectionResetError

    async with ScriptedHop(pause=leave) as hop:
        session = DeliverySession(hop.server())
        await session.connect()
        assert session._connection
        hop.narrow(session._connection.protocol.transport)
        result = await session.deliver(envelope(), recipients("a@example.net"), LARGE[: 200 * 1000])
    assert result.results[0].ending is Ending.DEFERRED


async def test_an_independent_server_understands_us() -> None:
    received = []

    class Handler:
        async def handle_DATA(self, server: object, session: object, given: object) -> str:
            received.append((given.mail_from, given.rcpt_tos, given.original_content))
            return "250 OK"

    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: Server(Handler(), enable_SMTPUTF8=True), "127.0.0.1", 0)
    hop = ScriptedHop()
    hop.port = listening.sockets[0].getsockname()[1]
    result = await send(hop, MESSAGE + DOTTED, about=envelope(sender=""))
    listening.close()
    assert result.results[0].reply == "250 OK"
    assert received == [("<>", ["a@example.net"], MESSAGE + DOTTED)]


async def test_parameters_are_passed_on_where_they_are_offered() -> None:
    about = envelope(body="8BITMIME", smtputf8=True, ret="HDRS", envid="q+2Bx", size=5)
    to = recipients("a@example.net", notify=("SUCCESS", "DELAY"), orcpt="rfc822;A@example.net")
    offers = ("PIPELINING", "SIZE 1000", "8BITMIME", "SMTPUTF8", "DSN")
    async with ScriptedHop(offers=offers) as full, ScriptedHop(offers=()) as bare:
        assert (await send(full, about=about, to=to)).dsn_offered
        result = await send(bare, about=about, to=to)
    assert full.commands[1:3] == [
        f"MAIL FROM:<sender@example.org> SIZE={len(MESSAGE)} BODY=8BITMIME SMTPUTF8 RET=HDRS ENVID=q+2Bx",
        "RCPT TO:<a@example.net> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;A@example.net",
    ]
    assert bare.commands[1:3] == ["MAIL FROM:<sender@example.org>", "RCPT TO:<a@example.net>"]
    assert not result.dsn_offered
    assert result.results[0].ending is Ending.ACCEPTED  # declared 8-bit, but it is not


async def test_eight_bit_content_is_declared_even_if_the_sender_did_not() -> None:
    async with ScriptedHop() as hop:
        await send(hop, b"\xc3\xa4\r\n")
    assert hop.commands[1].endswith("BODY=8BITMIME")


@pytest.mark.parametrize(
    ("content", "options"),
    [(b"\xc3\xa4\r\n", {}), (stream(MESSAGE), {"eight_bit": True})],
)
async def test_eight_bit_content_is_not_sent_to_a_hop_without_8bitmime(
    content: bytes, options: dict[str, bool]
) -> None:
    async with ScriptedHop(offers=("PIPELINING",)) as hop:
        result = await send(hop, content, **options)
    assert result.results[0].ending is Ending.REJECTED
    assert not result.results[0].remote
    assert status(result) == ["5.6.3"]
    assert "MAIL" not in hop.verbs()


async def test_a_streamed_body_that_cannot_be_read_again_is_believed_to_be_what_it_declares() -> None:
    async with ScriptedHop(offers=("PIPELINING",)) as hop:
        assert status(await send(hop, stream(MESSAGE), about=envelope(body="8BITMIME"))) == ["5.6.3"]
        assert status(await send(hop, stream(MESSAGE))) == ["2.0.0"]


@pytest.mark.parametrize("declared", ["7BIT", "8BITMIME"])
@pytest.mark.parametrize(
    ("content", "offers", "found"),
    [
        (MESSAGE, (), "2.0.0"),
        (MESSAGE, ("SMTPUTF8", "8BITMIME"), "2.0.0"),
        ("Subject: a\r\n\r\nä\r\n".encode(), (), "5.6.3"),
        ("Subject: a\r\n\r\nä\r\n".encode(), ("8BITMIME",), "2.0.0"),
        ("Subject: ä\r\n\r\na\r\n".encode(), ("8BITMIME",), "5.6.9"),
        ("Subject: ä\r\n\r\na\r\n".encode(), (), "5.6.3"),
        ("\r\nä\r\n\r\n".encode(), ("8BITMIME",), "2.0.0"),
        (b"Subject: a\r\n" * 30_000 + "X: ä\r\n\r\n".encode(), ("8BITMIME",), "5.6.9"),
    ],
)
async def test_what_a_streamed_content_holds_decides_whatever_was_declared(
    content: bytes, offers: tuple[str, ...], found: str, declared: str
) -> None:
    """Wherever its pieces end."""
    about = envelope(size=len(content), body=declared, smtputf8=True)
    async with ScriptedHop(offers=offers) as hop:
        for size in (1, 2, 3, 7, len(content)) if len(content) < 100 else (len(content),):
            pieces = [content[at : at + size] for at in range(0, len(content), size)]
            result = await send(hop, stream(*pieces), about=about, afresh=lambda made=pieces: stream(*made))
            assert status(result) == [found]


async def test_a_content_that_proves_damaged_when_it_is_looked_at_is_not_refused_for_what_it_holds() -> None:
    async def damaged() -> AsyncIterator[bytes]:
        yield b"\xff"
        raise ContentDamaged("the octets differ from the digest")

    async with ScriptedHop(offers=()) as hop:
        session = DeliverySession(hop.server())
        await session.connect()
        with pytest.raises(ContentDamaged):
            await session.deliver(envelope(), recipients("a@example.net"), damaged(), afresh=damaged)
        assert not session.alive
    assert "MAIL" not in hop.verbs()


async def test_a_non_ascii_recipient_alone_is_refused_where_smtputf8_is_missing() -> None:
    async with ScriptedHop() as hop:
        result = await send(
            hop, about=envelope(smtputf8=True), to=recipients("ä@example.net", "b@example.net")
        )
    assert [one.ending for one in result.results] == [Ending.REJECTED, Ending.ACCEPTED]
    assert status(result)[0] == "5.6.7"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("info@bücher.example", "info@xn--bcher-kva.example"),
        ("Info@STRASSE.Bücher.example", "Info@strasse.xn--bcher-kva.example"),
        ("a@straße.example", "a@xn--strae-oqa.example"),
        ("a@例え.テスト", "a@xn--r8jz45g.xn--zckzah"),
        ('"a b"@bücher.example', '"a b"@xn--bcher-kva.example'),
        ("a@_x.bücher.example", "a@_x.xn--bcher-kva.example"),
    ],
)
async def test_a_domain_in_unicode_is_an_a_label_where_smtputf8_is_missing(address: str, said: str) -> None:
    about = envelope(sender=address, smtputf8=True, body="8BITMIME")
    async with ScriptedHop(offers=()) as bare, ScriptedHop(offers=("SMTPUTF8", "8BITMIME", "DSN")) as full:
        for hop in (bare, full):
            result = await send(hop, about=about, to=recipients(address))
            assert result.results[0].ending is Ending.ACCEPTED
    assert bare.commands[1:3] == [f"MAIL FROM:<{said}>", f"RCPT TO:<{said}>"]
    assert full.commands[1].startswith(f"MAIL FROM:<{address}> ")
    assert full.commands[2] == f"RCPT TO:<{address}>"


@pytest.mark.parametrize("address", ["ä@bücher.example", f"a@{'ü' * 63}.example", "a@xn--ü.example"])
async def test_an_address_that_has_no_spelling_in_ascii_is_refused_where_smtputf8_is_missing(
    address: str,
) -> None:
    async with ScriptedHop(offers=("8BITMIME",)) as hop:
        to = await send(hop, to=recipients(address))
        sender = await send(hop, about=envelope(sender=address, smtputf8=True))
    assert status(to) == status(sender) == ["5.6.7"]
    assert "MAIL" not in hop.verbs()


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_non_ascii_header_needs_smtputf8_but_a_non_ascii_body_does_not(streamed: bool) -> None:
    header, body = "Subject: ä\r\n\r\n".encode(), "Subject: a\r\n\r\nä\r\n".encode()
    about = envelope(smtputf8=True, body="8BITMIME")
    async with ScriptedHop() as hop:
        results = [
            await send(
                hop,
                stream(content) if streamed else content,
                about=about,
                afresh=lambda content=content: stream(content[:20], content[20:]),
            )
            for content in (header, body)
        ]
    assert status(results[0]) == ["5.6.9"]
    assert results[1].results[0].ending is Ending.ACCEPTED
    assert original(hop.contents[0]) == body


async def test_a_message_past_the_hops_size_is_not_sent() -> None:
    async with ScriptedHop(offers=("SIZE 20",)) as hop:
        result = await send(hop)
    assert result.results[0].reply.startswith("552 5.3.4 ")
    assert "MAIL" not in hop.verbs()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("limit", "mine", "sent"), [(2000, True, True), (2000, False, False), (300, True, False)]
)
async def test_our_report_past_the_hops_size_returns_less_of_the_message(
    limit: int, *, mine: bool, sent: bool, streamed: bool
) -> None:
    whole = report(OURS if mine else ANOTHER)
    async with ScriptedHop(offers=(f"SIZE {limit}",)) as hop:
        result = await send(
            hop,
            stream(whole) if streamed else whole,
            about=Envelope(sender="", size=len(whole)),
            message_id=OURS,
            afresh=lambda: stream(whole[:20], whole[20:]),
        )
    if not sent:
        assert result.results[0].reply.startswith("552 5.3.4 ")
        return
    assert result.results[0].ending is Ending.ACCEPTED
    got = original(hop.contents[0])
    assert len(got) <= limit
    assert b"Content-Type: text/rfc822-headers\r\n" in got
    assert b"Subject: hello\r\n" in got
    assert f"SIZE={len(got)}" in hop.commands[1]


TOO_LONG = b"552 5.3.4 too long\r\n"
OK = b"250 2.0.0 ok\r\n"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("script", "connections"),
    [
        ({"DOT": [TOO_LONG, OK]}, 1),
        ({"DOT": [b"552 too long\r\n", OK]}, 1),
        ({"DOT": [b"554 5.2.3 too long\r\n", OK]}, 1),
        ({"MAIL": [TOO_LONG, OK]}, 1),
        ({"RCPT": [TOO_LONG, OK]}, 1),
        ({"DOT": [TOO_LONG, OK], "MAIL": [OK, CLOSE, OK]}, 2),
        ({"DOT": [b"552-5.3.4 too long\r\n552 5.3.4 by far\r\n", OK]}, 1),
    ],
)
async def test_our_report_that_a_hop_refuses_as_too_long_returns_less_of_the_message(
    script: dict[str, list[object]], connections: int, *, streamed: bool
) -> None:
    whole = report(OURS)
    answers = {verb: list(replies) for verb, replies in script.items()}  # each is given once
    async with ScriptedHop(offers=("SIZE",), **answers) as hop:
        result = await send(
            hop,
            stream(whole) if streamed else whole,
            about=Envelope(sender="", size=len(whole)),
            message_id=OURS,
            afresh=lambda: stream(whole[:20], whole[20:]),
        )
    assert (result.results[0].ending, hop.connections) == (Ending.ACCEPTED, connections)
    assert b"Content-Type: text/rfc822-headers\r\n" in original(hop.contents[-1])
    assert len(original(hop.contents[-1])) < 2000


@pytest.mark.parametrize(
    ("reply", "of", "ret"),
    [
        (b"552 5.2.2 the mailbox is full\r\n", "us", "FULL"),
        (b"554 5.6.0 no\r\n", "us", "FULL"),
        (b"452 4.3.4 too long for now\r\n", "us", "FULL"),
        (TOO_LONG, "another", "FULL"),
        (TOO_LONG, "a sender", "FULL"),
        (TOO_LONG, "us", "HDRS"),
    ],
)
async def test_what_another_form_would_not_help_is_not_sent_again(reply: bytes, of: str, ret: str) -> None:
    whole = report(ANOTHER if of == "another" else OURS, ret)
    sender = "s@example.org" if of == "a sender" else ""
    async with ScriptedHop(DOT=[reply, OK]) as hop:
        result = await send(hop, whole, about=Envelope(sender=sender, size=len(whole)), message_id=OURS)
    assert result.results[0].reply == reply.decode().strip()
    assert len(hop.contents) == 1


async def test_a_report_that_is_too_long_without_the_message_too_is_refused() -> None:
    whole = report(OURS)
    async with ScriptedHop(DOT=TOO_LONG) as hop:
        result = await send(hop, whole, about=Envelope(sender="", size=len(whole)), message_id=OURS)
    assert (result.results[0].ending, len(hop.contents)) == (Ending.REJECTED, 2)


@pytest.mark.parametrize("size", ["SIZE", "SIZE 0", "SIZE lots"])
async def test_a_size_offer_without_a_limit_limits_nothing(size: str) -> None:
    async with ScriptedHop(offers=(size,)) as hop:
        assert (await send(hop)).results[0].ending is Ending.ACCEPTED


@pytest.mark.parametrize("address", ["a@b\r\nRCPT TO:<c@d>", "a> NOTIFY=NEVER@b", "a b@c", "@x:a@b", ""])
async def test_an_address_that_would_break_the_command_is_refused_without_asking(address: str) -> None:
    async with ScriptedHop() as hop:
        result = await send(hop, to=recipients(address, "b@example.net"))
    assert [one.ending for one in result.results] == [Ending.REJECTED, Ending.ACCEPTED]
    assert hop.verbs().count("RCPT") == 1
