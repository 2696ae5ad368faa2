"""Filters: what they are told, what they decide and change, and what becomes of mail without them."""

from __future__ import annotations

import asyncio
import struct
import tracemalloc
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sending import MESSAGE, sender, sent
from stations import Station, boundary, eventually, full, settings, station

from shadowrelay.core.messages import Role
from shadowrelay.service.connectors import for_senders
from tests.neighbours import milter
from tests.neighbours.milter import NEEDED, OwnFilter, filtering, serving

pytestmark = NEEDED

STRICT: dict[str, Any] = {"reject_message_on_shadow_failure": True, "shadow_attempt_timeout": "10s"}
QUICKLY = {"connect_timeout": "1s", "command_timeout": "1s", "content_timeout": "1s"}
LARGE = b"Subject: large\r\nMessage-ID: <2@example.org>\r\n\r\n" + (b"x" * 78 + b"\r\n") * 16000


def asks(*filters: OwnFilter | str, of: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """The settings of nodes that ask these filters, named f0, f1, … ``of``: of their connector."""
    tables = {
        f"f{number}": {"address": one if isinstance(one, str) else one.address, **changes}
        for number, one in enumerate(filters)
    }
    return {"receive": {"filters": tables, **(of or {})}, **STRICT}


def says(*answers: Any) -> milter.Saying:
    return lambda _: answers


def at_the_end(*answers: Any) -> dict[str, milter.Saying]:
    return {"EndOfMessage": says(*answers)}


async def both(owner: Station, holder: Station) -> bytes:
    """The octets of the one message, which both nodes have, with one digest."""
    (ours,), (held,) = await owner.copies(), await holder.copies()
    assert (ours.role, held.role) == (Role.PRIMARY, Role.SHADOW)
    assert ours.digests == held.digests
    octets = await owner.octets(ours.id)
    assert await holder.octets(held.id) == octets
    assert ours.envelope.size == len(octets)
    return octets


# What a filter is told


async def test_a_filter_is_told_all_in_order_and_then_the_message_is_made_redundant(tmp_path: Path) -> None:
    async with (
        filtering(OwnFilter(), tmp_path / "f") as own,
        boundary(tmp_path, "mx1", "mx2", **asks(own)) as (owner, holder),
        sender(owner) as client,
    ):
        own.answers["EndOfMessage"] = lambda _: own.macros.setdefault("copies", "none") and None
        await client.begin("b@example.net", "c@example.net", parameters=" SIZE=500 BODY=8BITMIME")
        content = MESSAGE.replace(b"Date: Sat,", b"Date:\tSat,\r\n ")
        assert (await client.content(content)).startswith("250 ")
        assert own.names() == [
            *("Connect", "Helo", "EnvelopeFrom", "EnvelopeRecipient", "EnvelopeRecipient", "Data"),
            *("Header", "Header", "Header", "EndOfHeaders", "Body", "EndOfMessage", "Close"),
        ]
        (connect,), (helo,), (mail,) = map(own.all, ("Connect", "Helo", "EnvelopeFrom"))
        assert (str(connect.address), connect.hostname, helo.hostname) == (
            "127.0.0.1", "unknown", "client.example",
        )  # fmt: skip
        assert (mail.sender, mail.arguments) == (b"<a@example.org>", [b"SIZE=500", b"BODY=8BITMIME"])
        assert [one.recipient for one in own.all("EnvelopeRecipient")] == [
            b"<b@example.net>",
            b"<c@example.net>",
        ]
        assert [(one.name, one.value) for one in own.all("Header")] == [
            ("Subject", b"hello"),
            ("Message-ID", b"<1@example.org>"),
            ("Date", b"Sat,\n  21 Nov 2026 10:00:00 +0000"),
        ]
        assert b"".join(one.content for one in own.all("Body")) == b"body\r\n"
        (ours,) = await owner.copies()
        asked = ("i", "j", "{daemon_name}", "{client_addr}", "{mail_addr}")
        assert {key: own.macros[key] for key in asked} == {
            "i": ours.id, "j": full("mx1"), "{daemon_name}": "default", "{client_addr}": "127.0.0.1",
            "{mail_addr}": "a@example.org",
        }  # fmt: skip
        assert own.macros["{rcpt_addr}"] == "c@example.net"
        octets = await both(owner, holder)
        assert octets.startswith(b"Received: from client.example")
        assert octets.endswith(content)


async def test_a_large_body_comes_in_parts_and_is_offered_to_nobody_before(tmp_path: Path) -> None:
    """The answer to the end of the message waits until nothing has come to the holder for sure."""
    seen: list[Any] = []
    async with (
        filtering(OwnFilter()) as own,
        boundary(tmp_path, "mx1", "mx2", **asks(own)) as (owner, holder),
    ):
        own.answers["EndOfMessage"] = lambda _: seen.extend([owner.files(), holder.files()]) and None
        assert (await sent(owner, LARGE)).startswith("250 ")
        assert max(own.chunks) == 65535
        assert sum(own.chunks) == len(LARGE.partition(b"\r\n\r\n")[2])
        assert [len(files) for files in seen] == [1, 0]
        assert (await both(owner, holder)).endswith(LARGE)
        assert len(owner.files()) == len(holder.files()) == 1


async def test_what_a_filter_does_not_want_to_hear_or_answer_is_left_out(tmp_path: Path) -> None:
    flags = milter.said.ProtocolFlags
    wants = flags.NO_HELO | flags.NO_BODY | flags.NR_HEADER | flags.NR_SENDER | flags.HEADER_LEADING_SPACE
    async with (
        filtering(OwnFilter(wants=int(wants))) as own,
        boundary(tmp_path, "mx1", "mx2", **asks(own)) as (owner, holder),
    ):
        own.answers.update(at_the_end(milter.said.AddHeader("X-Seen", b" yes"), milter.said.Continue()))
        assert (await sent(owner, MESSAGE)).startswith("250 ")
        assert not {"Helo", "Body"} & set(own.names())
        assert own.all("Header")[0].value == b" hello"
        assert b"\r\nX-Seen: yes\r\n\r\nbody" in await both(owner, holder)


@pytest.mark.parametrize(("version", "heard"), [(2, False), (3, False), (4, True)])
async def test_a_filter_of_a_version_before_4_does_not_know_data_and_is_not_told_of_it(
    tmp_path: Path, version: int, heard: bool
) -> None:
    async with (
        filtering(OwnFilter(version=version)) as own,
        boundary(tmp_path, "mx1", "mx2", **asks(own)) as (owner, _),
    ):
        assert (await sent(owner, MESSAGE)).startswith("250 ")
        assert ("Data" in own.names()) is heard
        assert "EndOfMessage" in own.names()


async def test_a_filter_that_skips_the_rest_of_the_body_gets_one_part(tmp_path: Path) -> None:
    async with (
        filtering(OwnFilter(wants=int(milter.said.ProtocolFlags.SKIP))) as own,
        boundary(tmp_path, "mx1", "mx2", **asks(own)) as (owner, holder),
    ):
        own.answers["Body"] = says(milter.said.Skip())
        assert (await sent(owner, LARGE)).startswith("250 ")
        assert len(own.chunks) == 1
        assert "EndOfMessage" in own.names()
        assert (await both(owner, holder)).endswith(LARGE)


# What it decides


@pytest.mark.parametrize(
    ("event", "reply"),
    [
        ("EnvelopeFrom", "550 5.7.1"),
        ("Header", "550 5.7.1"),
        ("Body", "550 5.7.1"),
        ("EndOfMessage", "550 5.7.1"),
    ],
)
async def test_what_is_rejected_is_kept_nowhere(tmp_path: Path, event: str, reply: str) -> None:
    async with (
        filtering(OwnFilter({event: says(milter.said.Reject())})) as own,
        boundary(tmp_path, "mx1", "mx2", **asks(own)) as (owner, holder),
        sender(owner) as client,
    ):
        said = await client.begin("b@example.net")
        if event == "EnvelopeFrom":
            assert said == "503 5.5.1 MAIL needed first"
        else:
            assert await client.content(LARGE) == "550 5.7.1 Refused by policy"
        await eventually(lambda: owner.connectors[1].sessions == 1)
        assert await owner.copies() == await holder.copies() == []
        assert owner.files() == holder.files() == []
        own.answers.clear()
        assert (await client.say("RSET")).startswith("250 ")
        await client.begin("b@example.net")
        assert (await client.content(MESSAGE)).startswith("250 ")  # in the same session


async def test_a_recipient_is_refused_at_rcpt_and_the_others_get_the_message(tmp_path: Path) -> None:
    def judged(event: Any) -> Sequence[Any] | None:
        answers = {
            b"<no@example.net>": [milter.said.ReplyCode(b"550 5.1.1 Not that one\0")],
            b"<later@example.net>": [milter.said.TemporaryFailure()],
        }
        return answers.get(event.recipient)

    async with (
        filtering(OwnFilter({"EnvelopeRecipient": judged})) as own,
        boundary(tmp_path, "mx1", "mx2", **asks(own)) as (owner, _),
        sender(owner) as client,
    ):
        assert await client.begin("b@example.net", "no@example.net") == "550 5.1.1 Not that one"
        assert (await client.say("RCPT TO:<later@example.net>")).startswith("451 4.7.1 ")
        assert (await client.content(MESSAGE)).startswith("250 ")
        (ours,) = await owner.copies()
        assert [one.address for one in ours.recipients] == ["b@example.net"]


@pytest.mark.parametrize(
    ("said", "reply"),
    [
        (b"451 4.7.1 Greylisted, try again\0", "451 4.7.1 Greylisted, try again"),
        (b"550-5.7.1 One\r\n550 5.7.1 100%% two\0", "550-5.7.1 One|550 5.7.1 100% two"),
        (b"554 No code\0", "554 5.7.1 No code"),
        (b"421 4.3.2 Away\0", "451 4.3.2 Away"),
        (b"250 2.0.0 Fine\0", "451 4.7.1 Mail cannot be checked for now, try again later"),
        (b"what\0", "451 4.7.1 Mail cannot be checked for now, try again later"),
    ],
)
async def test_the_reply_of_a_filter_is_said_as_far_as_it_is_one(
    tmp_path: Path, said: bytes, reply: str
) -> None:
    async with (
        filtering(OwnFilter(at_the_end(milter.said.ReplyCode(said)))) as own,
        boundary(tmp_path, "mx1", "mx2", **asks(own)) as (owner, _),
    ):
        assert await sent(owner, MESSAGE) == reply
        assert await owner.copies() == []


async def test_a_discarded_message_gets_its_250_and_a_row(tmp_path: Path) -> None:
    async with (
        filtering(OwnFilter(at_the_end(milter.said.Discard()))) as own,
        boundary(tmp_path, "mx1", "mx2", **asks(own)) as (owner, holder),
    ):
        assert (await sent(owner, LARGE)).startswith("250 2.6.0 ")
        assert await owner.copies() == await holder.copies() == []
        assert owner.files() == []
        (row,) = await owner.tracked()
        assert (row["event-id"], row["source"], row["recipient-address"]) == (
            "DROP",
            "AGENT",
            "b@example.net",
        )
        assert "S:Filter=f0" in row["custom-data"]


async def test_filters_are_asked_in_order_each_with_what_the_one_before_made(tmp_path: Path) -> None:
    async with filtering(OwnFilter()) as first, filtering(OwnFilter()) as second:
        first.answers.update(at_the_end(milter.said.AddHeader("X-First", b"1"), milter.said.Accept()))
        second.answers.update(at_the_end(milter.said.ChangeHeader(1, "x-first", b"2"), milter.said.Accept()))
        async with boundary(tmp_path, "mx1", "mx2", **asks(first, second)) as (owner, holder):
            assert (await sent(owner, MESSAGE)).startswith("250 ")
            assert "X-First" in [one.name for one in second.all("Header")]
            octets = await both(owner, holder)
            assert b"\r\nx-first: 2\r\n" in octets
            assert b"X-First" not in octets


async def test_one_that_has_accepted_hears_no_more_and_the_next_one_decides(tmp_path: Path) -> None:
    async with filtering(OwnFilter()) as first, filtering(OwnFilter()) as second:
        first.answers["EnvelopeFrom"] = says(milter.said.Accept())
        second.answers.update(at_the_end(milter.said.Reject()))
        async with boundary(tmp_path, "mx1", "mx2", **asks(first, second)) as (owner, _):
            assert (await sent(owner, MESSAGE)).startswith("550 ")
            assert first.names()[:3] == ["Connect", "Helo", "EnvelopeFrom"]
            assert "EnvelopeRecipient" not in first.names()


# What it changes


async def test_both_copies_have_what_the_filter_made_of_the_header(tmp_path: Path) -> None:
    content = b"Subject: hello\r\nX-A: 1\r\nX-A: 2\r\nX-A: 3\r\n\r\nbody\r\n"
    async with (
        filtering(OwnFilter()) as own,
        boundary(tmp_path, "mx1", "mx2", **asks(own)) as (owner, holder),
    ):
        m = milter.said
        own.answers.update(
            at_the_end(
                m.ChangeHeader(2, "x-a", b""),
                m.ChangeHeader(1, "Subject", b"[list] hello\n folded"),
                m.InsertHeader(0, "X-Top", b"t"),
                m.InsertHeader(2, "X-Third", b"3"),
                m.AddHeader("X-Last", b"l"),
                m.ChangeHeader(1, "X-New", b"n"),
                m.ChangeHeader(7, "X-Gone", b""),
                m.Continue(),
            )
        )
        assert (await sent(owner, content)).startswith("250 ")
        octets = await both(owner, holder)
        head, _, body = octets.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        assert lines[0].startswith(b"Received: ")
        at = lines.index(b"X-Top: t")
        assert lines[at:] == [
            b"X-Top: t", b"Subject: [list] hello", b" folded", b"X-Third: 3", b"X-A: 1",
            b"X-A: 3", b"X-Last: l", b"X-New: n",
        ]  # fmt: skip
        assert body == b"body\r\n"
        row = next(one for one in await owner.tracked() if one["event-id"] == "RECEIVE")
        assert row["message-subject"] == "[list] hello folded"


@pytest.mark.parametrize("content", [MESSAGE, LARGE])
@pytest.mark.parametrize("parts", [1, 40])
async def test_another_body_takes_the_place_of_the_body(tmp_path: Path, content: bytes, parts: int) -> None:
    part = b"other " * 10000 + b"\r\n"
    async with (
        filtering(OwnFilter()) as own,
        boundary(tmp_path, "mx1", "mx2", **asks(own, of={"max_text_line": 100_000})) as (owner, holder),
    ):
        m = milter.said
        own.answers.update(at_the_end(*[m.ReplaceBody(part)] * parts, m.AddHeader("X-B", b"1"), m.Continue()))
        assert (await sent(owner, content)).startswith("250 ")
        head, _, body = (await both(owner, holder)).partition(b"\r\n\r\n")
        assert body == part * parts
        assert head.endswith(b"X-B: 1")
        assert len(owner.files()) == len(holder.files()) == (len(head + body) > 64 * 1024)


async def test_recipients_come_and_go_and_the_sender_changes(tmp_path: Path) -> None:
    async with (
        filtering(OwnFilter()) as own,
        boundary(tmp_path, "mx1", "mx2", **asks(own)) as (owner, holder),
    ):
        m = milter.said
        assert (await sent(owner, MESSAGE)).startswith("250 ")  # now a session with the holder is open
        own.answers.update(
            at_the_end(
                m.AddRecipient("<more@example.net>"),
                m.AddRecipientPar("plain@example.net", "NOTIFY=NEVER"),
                m.RemoveRecipient("<C@example.net>"),
                m.ChangeSender("<bounces@example.org>"),
                m.Continue(),
            )
        )
        assert (await sent(owner, MESSAGE, "b@example.net", "c@example.net")).startswith("250 ")
        ours, held = (await owner.copies())[-1], (await holder.copies())[-1]
        assert [one.address for one in ours.recipients] == [
            "b@example.net",
            "more@example.net",
            "plain@example.net",
        ]
        assert ours.envelope.sender == "bounces@example.org"
        assert (held.envelope, held.recipients) == (ours.envelope, ours.recipients)
        assert held.digests == ours.digests


async def test_without_a_recipient_left_the_message_is_dropped(tmp_path: Path) -> None:
    async with (
        filtering(
            OwnFilter(at_the_end(milter.said.RemoveRecipient("<b@example.net>"), milter.said.Accept()))
        ) as own,
        boundary(tmp_path, "mx1", "mx2", **asks(own)) as (owner, _),
    ):
        assert (await sent(owner, MESSAGE)).startswith("250 ")
        assert await owner.copies() == []
        assert await owner.events() == ["DROP"]


@pytest.mark.parametrize(
    "edit",
    [
        lambda: milter.said.AddHeader("X", b"a\nBcc: everybody@example.net"),
        lambda: milter.said.AddHeader("X", b"a\rb"),
        lambda: milter.said.AddHeader("X Y", b"a"),
        lambda: milter.said.AddHeader("X", b"a" * 1000),
        lambda: milter.said.AddHeader("X", b"a\n " * 90_000),
        lambda: milter.said.AddRecipient("<j\u00fcrgen@example.net>"),
        lambda: milter.said.ReplaceBody(b"bare\nline ends\n"),
        lambda: milter.said.AddRecipient("no address"),
        lambda: milter.said.ChangeSender("<a@>"),
    ],
)
@pytest.mark.parametrize("when_down", ["tempfail", "accept"])
async def test_a_change_that_no_message_may_have_is_a_filter_that_is_down(
    tmp_path: Path, edit: Any, when_down: str
) -> None:
    changes = [milter.said.AddHeader("X-Before", b"1"), edit(), milter.said.Accept()]
    async with (
        filtering(OwnFilter(at_the_end(*changes))) as own,
        boundary(tmp_path, "mx1", "mx2", **asks(own, when_down=when_down)) as (owner, holder),
    ):
        reply = await sent(owner, MESSAGE)
        if when_down == "tempfail":
            assert reply == "451 4.7.1 Mail cannot be checked for now, try again later"
            assert await owner.copies() == []
            return
        assert reply.startswith("250 ")
        octets = await both(owner, holder)
        assert octets.endswith(MESSAGE)
        assert b"X-Before" not in octets
        assert "S:Unfiltered=f0" in (await owner.tracked())[-1]["custom-data"]


# When it is down


CONTINUE = struct.pack("!Ic", 1, b"c")
STATES = "OCHMRTLNBE"


def misbehaving(states: str, how: str) -> Any:
    """A filter that answers Continue up to a packet of that letter, and then does something else. Each
    connection has the next letter, the last one has no end.
    """
    letters = iter(states + states[-1] * 100)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state = next(letters)
        try:
            while True:
                head = await reader.readexactly(4)
                packet = await reader.readexactly(int.from_bytes(head, "big"))
                letter = packet[:1].decode()
                if letter == state:
                    if how != "closes":
                        writer.write(ODD[how])
                        await reader.read()
                    return writer.transport.abort()
                if letter == "O":
                    writer.write(struct.pack("!IcIII", 13, b"O", 6, 0x1F, 0))
                elif letter not in "DAQ":
                    writer.write(CONTINUE)
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()

    return serve


ODD = {
    "hangs": b"",
    "babbles": b"220 mx.example.net ESMTP, and this is no packet\r\n",
    "drips": struct.pack("!Ic", 9, b"y"),
    "grows": struct.pack("!Ic", 1 << 30, b"y"),
}


async def outcome(to: Station) -> str:
    """The last reply to a message, wherever it was refused."""
    async with sender(to) as client:
        for command in ("EHLO client.example", "MAIL FROM:<a@example.org>", "RCPT TO:<b@example.net>"):
            if not (reply := await client.say(command)).startswith("250"):
                return reply
        return await client.content(MESSAGE)


@pytest.mark.parametrize("how", ["closes", *ODD])
async def test_a_filter_that_fails_in_any_state_puts_mail_off_or_is_left_out(
    tmp_path: Path, how: str
) -> None:
    quickly = QUICKLY if how in ("hangs", "drips") else {}
    async with (
        serving(misbehaving(STATES, how)) as address,
        boundary(tmp_path, "mx1", "mx2", **asks(address, **quickly)) as (owner, holder),
    ):
        replies = await asyncio.gather(*[outcome(owner) for _ in STATES])
        assert set(replies) == {"451 4.7.1 Mail cannot be checked for now, try again later"}
        assert await owner.copies() == await holder.copies() == []
    async with serving(misbehaving(STATES, how)) as address:
        accept = asks(address, **quickly, when_down="accept")
        async with boundary(tmp_path / "accepts", "mx1", "mx2", **accept) as (owner, holder):
            replies = await asyncio.gather(*[outcome(owner) for _ in STATES])
            assert {reply[:10] for reply in replies} == {"250 2.6.0 "}
            assert len(await owner.copies()) == len(await holder.copies()) == len(STATES)
            rows = [one for one in await owner.tracked() if one["event-id"] == "RECEIVE"]
            assert len(rows) == len(STATES)
            assert all("S:Unfiltered=f0" in one["custom-data"] for one in rows)


async def test_a_filter_that_is_not_there_puts_mail_off(tmp_path: Path) -> None:
    async with serving(misbehaving("O", "closes")) as address:
        pass
    for number, gone in enumerate((address, f"unix:{tmp_path}/nothing")):
        async with boundary(tmp_path / str(number), "mx1", "mx2", **asks(gone)) as (owner, _):
            assert (await outcome(owner)).startswith("451 4.7.1 ")


async def test_all_filters_together_have_so_much_time_however_often_they_say_that_they_go_on(
    tmp_path: Path,
) -> None:
    async def busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """At the end it says that it goes on, again and again."""
        passes = misbehaving("E", "hangs")
        serving_it = asyncio.ensure_future(passes(reader, writer))
        while not serving_it.done() and not writer.is_closing():
            await asyncio.sleep(0.2)
            writer.write(struct.pack("!Ic", 1, b"p"))

    async with serving(busy) as address:
        told = asks(address)
        told["receive"]["max_filter_time"] = "2s"
        async with boundary(tmp_path, "mx1", "mx2", **told) as (owner, _):
            assert (await outcome(owner)).startswith("451 4.7.1 ")
            assert await owner.copies() == []


async def test_the_name_of_a_client_may_be_anything_that_a_client_may_say(tmp_path: Path) -> None:
    name = "x" * 80 + "..y"
    async with (
        filtering(OwnFilter()) as own,
        boundary(tmp_path, "mx1", "mx2", **asks(own, when_down="accept")) as (owner, _),
        sender(owner) as client,
    ):
        assert (await client.say(f"EHLO {name}")).startswith("250")
        assert (await client.say("MAIL FROM:<>", "RCPT TO:<b@example.net>")).startswith("250 ")
        assert (await client.content(MESSAGE)).startswith("250 ")
        assert own.all("EnvelopeFrom")[0].sender == b"<>"


# Not through here


async def test_what_was_sent_again_is_known_by_what_the_client_sent(tmp_path: Path) -> None:
    """The filter makes other octets each time, as a signature does. The member is away, so the 250 waits."""
    count = iter(range(100))
    own = OwnFilter(
        {"EndOfMessage": lambda _: [milter.said.AddHeader("X", b"%d" % next(count)), milter.said.Accept()]}
    )
    async with filtering(own):
        alone = asks(own) | {"reject_message_on_shadow_failure": False}
        alone["receive"]["max_acknowledgement_delay"] = "5s"
        async with boundary(tmp_path, "mx1", "mx2", **alone) as (owner, away):
            for connector in away.connectors:
                await connector.stop(0)
            for number in range(2):
                async with sender(owner) as client:
                    await client.begin("b@example.net")
                    client.send(b"BDAT %d LAST\r\n" % len(MESSAGE) + MESSAGE)
                    await eventually(lambda wanted=number + 1: len(own.all("EndOfMessage")) == wanted)

                    async def kept() -> bool:
                        return bool(await owner.copies())

                    await eventually(kept)

            async def repeated() -> bool:
                return "DUPLICATERECEIVE" in await owner.events()

            await eventually(repeated)
            assert len(await owner.copies()) == 1


async def test_memory_stays_flat_whatever_size_the_message_and_its_new_body_have(tmp_path: Path) -> None:
    """A filter reads 24 MiB, and puts 24 MiB of another body in its place."""
    size, part = 24 << 20, b"y" * 78 + b"\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                packet = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                letter = packet[:1]
                if letter == b"O":
                    writer.write(struct.pack("!IcIII", 13, b"O", 6, 0x1F, 0))
                elif letter == b"E":
                    block = part * 800
                    for _ in range(size // len(block)):
                        writer.write(struct.pack("!Ic", len(block) + 1, b"b") + block)
                        await writer.drain()
                if letter not in b"ODAQ":
                    writer.write(CONTINUE)
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()

    large = b"Subject: large\r\n\r\n" + (b"x" * 78 + b"\r\n") * (size // 80)
    async with (
        serving(serve) as address,
        boundary(tmp_path, "mx1", "mx2", **asks(address)) as (owner, holder),
        sender(owner) as client,
    ):
        await client.begin("b@example.net")
        tracemalloc.start()
        try:
            client.send(b"DATA\r\n")
            assert (await client.reply()).startswith("354 ")
            for at in range(0, len(large), 1 << 18):
                client.send(large[at : at + (1 << 18)])
                await client.writer.drain()
            assert (await client.say(".")).startswith("250 ")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 8 << 20
        (ours,) = await owner.copies()
        assert ours.envelope.size > size - (1 << 20)
        assert len(owner.files()) == len(holder.files()) == 1


async def test_filters_come_and_go_with_the_settings_file_for_sessions_that_begin_after_it(
    tmp_path: Path,
) -> None:
    async with (
        filtering(OwnFilter(at_the_end(milter.said.Reject()))) as own,
        boundary(tmp_path, "mx1", "mx2", **STRICT) as (owner, _),
        sender(owner) as before,
    ):
        assert (await sent(owner, MESSAGE)).startswith("250 ")
        file = settings(tmp_path, "mx1", ["mx2"], **asks(own))
        connector = owner.connectors[1]
        connector.become(for_senders(owner.node, "default", file.receive["default"], file, connector))
        assert (await sent(owner, MESSAGE)).startswith("550 ")
        await before.begin("b@example.net")
        assert (await before.content(MESSAGE)).startswith("250 ")  # it began without one


# What is shown of it


async def test_a_filter_that_is_down_is_told_until_it_decides_again(tmp_path: Path) -> None:
    """Its answer to MAIL is no sign that it is up: it is the end of the content that it fails."""
    async with (
        filtering(OwnFilter()) as own,
        boundary(tmp_path, "mx1", "mx2", **asks(own, when_down="accept", **QUICKLY)) as (owner, _),
    ):
        (watch,) = owner.node.filters()
        moments = count(1)
        watch.clock = lambda: datetime(2026, 11, 21, 12, 0, next(moments), tzinfo=UTC)
        assert owner.node.warning() == ""
        own.answers["EndOfMessage"] = lambda _: []
        for at in (1, 2):
            assert (await sent(owner, MESSAGE)).startswith("250 ")
            assert (watch.name, watch.connector) == ("f0", "default")
            told = owner.node.warning()
            since, asked = (f"2026-11-21T12:00:0{second}.000Z" for second in (1, at))
            assert told.startswith(f"filter f0 of default is down since {since}, asked last at {asked}, "), (
                told
            )
            assert told.endswith("mail is taken without it: no answer in time"), told
        assert (watch.failures, watch.unfiltered, watch.seconds.number) == (2, 2, 2)
        assert watch.seconds.total >= 2.0
        async with sender(owner) as client:
            await client.begin()
            assert owner.node.warning() != ""
        own.answers.clear()
        assert (await sent(owner, MESSAGE.replace(b"hello", b"again"))).startswith("250 ")
        assert owner.node.warning() == ""
        assert (watch.failures, watch.unfiltered, watch.seconds.number) == (2, 2, 4)


async def test_mail_that_is_not_taken_in_the_end_was_not_taken_without_a_filter(tmp_path: Path) -> None:
    found = await station(tmp_path, "mx1", ["mx2"], **asks(f"unix:{tmp_path}/none", when_down="accept"))
    try:
        assert (await sent(found, MESSAGE)).startswith("451 4.4.0 ")
        (watch,) = found.node.filters()
        assert (watch.failures, watch.unfiltered) == (1, 0)
    finally:
        await found.stop()


async def test_mail_that_is_put_off_for_a_filter_is_not_told_as_taken(tmp_path: Path) -> None:
    async with (
        boundary(tmp_path, "mx1", "mx2", **asks(f"unix:{tmp_path}/none")) as (owner, _),
        sender(owner) as client,
    ):
        assert (await client.begin()).startswith("503 ")  # RCPT, for MAIL was put off
        (watch,) = owner.node.filters()
        assert "f0 of default is down since" in owner.node.warning()
        assert "mail is put off: connection lost" in owner.node.warning()
        assert (watch.failures, watch.unfiltered) == (1, 0)
