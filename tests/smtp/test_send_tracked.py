"""What a session says to a hop that tracks, and what it takes of its replies."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_hop import ScriptedHop, envelope, recipients

from shadowrelay.core.decisions import VerdictKind
from shadowrelay.core.delivery.hop_shadows import Tracker
from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.identifiers import (
    Beginning,
    DatabaseId,
    Incarnation,
    Lineage,
    Mark,
    MessageId,
    ServerName,
)
from shadowrelay.core.members.conversation import Greeting, Query
from shadowrelay.settings.pinned import pinned_certificate
from shadowrelay.smtp.sending.connection import unmarked
from shadowrelay.smtp.sending.hop import Pinned
from shadowrelay.smtp.sending.session import ConnectionFailed, DeliverySession
from shadowrelay.wire.replies import Reply

ID = MessageId("01900000-0000-7000-8000-000000000001")
EDGE = ServerName("edge.example.net")
DATABASE = DatabaseId("6f0d7a3e-0000-4000-8000-0000000000e1")
RUN = Incarnation("e" * 16)
OURS = Greeting(
    ServerName("mx1.example.org"), Lineage(DATABASE, (Beginning(Incarnation("a" * 16), 0),), 5), None, 1
)
OFFERS = ("PIPELINING", "STARTTLS", "XSHADOW 1", "XQDISCARD")
HELLO = f"250 2.0.0 {EDGE} {DATABASE} {RUN}:7 {RUN}@0 {RUN}:7\r\n".encode()
MARKED = {
    "XSHADOW": HELLO,
    "MAIL": f"250 2.1.0 sender ok {RUN}:7\r\n".encode(),
    "RCPT": f"250 2.1.5 recipient ok {RUN}:7\r\n".encode(),
    "DATA": f"354 go ahead {RUN}:7\r\n".encode(),
    "DOT": f"250 2.0.0 queued {RUN}:9\r\n".encode(),
}


NOTHING = f"251 2.0.0 No discard events {RUN}:9\r\n".encode()


class Talk:
    """Introduces us, and remembers nothing."""

    tracking = True

    def may_track(self) -> bool:
        return self.tracking

    async def greet(self, session: DeliverySession) -> None:
        await session.say_hello(OURS)

    async def ask(self, session: DeliverySession) -> None:
        await session.ask_hop(Query(200))


def server(hop: ScriptedHop, certificate: Path, name: str = EDGE) -> Any:
    pinned = Pinned({pinned_certificate(certificate): ServerName(name)}, certificate, certificate)
    return hop.server(tls="opportunistic", pinned=pinned)


async def connected(hop: ScriptedHop, certificate: Path, **named: str) -> DeliverySession:
    session = DeliverySession(server(hop, certificate, **named), None, Talk())
    await session.connect()
    return session


async def deliver(session: DeliverySession, *to: str) -> Any:
    try:
        return await session.deliver(
            envelope(), recipients(*(to or ("a@example.net",))), b"Subject: x\r\n\r\nText\r\n", message_id=ID
        )
    finally:
        await session.close()


async def test_a_message_is_tracked_under_our_id_and_numbers(tls: ssl.SSLContext, certificate: Path) -> None:
    async with ScriptedHop(offers=OFFERS, tls=tls, **MARKED, XQDISCARD=NOTHING) as hop:
        result = await deliver(await connected(hop, certificate), "a@example.net", "b@example.net")
    assert result.tracks == Tracker(EDGE, DATABASE, Mark(RUN, 9))
    assert [one.reply for one in result.results] == ["250 2.0.0 queued"] * 2
    said = [command for command in hop.commands if "XSHADOW" in command or "XFORK" in command]
    assert said == [
        f"XSHADOW mx1.example.org {DATABASE} {'a' * 16}:5 {'a' * 16}@0",
        f"MAIL FROM:<sender@example.org> XSHADOW={ID}".replace("sender@example.org", envelope().sender),
        "RCPT TO:<a@example.net> XFORK=1",
        "RCPT TO:<b@example.net> XFORK=2",
    ]
    assert hop.verbs()[-2:] == ["XQDISCARD", "QUIT"]


@pytest.mark.parametrize(
    ("script", "reply"),
    [
        ({"RCPT": f"550 5.1.1 unknown {RUN}:7\r\n".encode()}, "550 5.1.1 unknown"),
        ({"MAIL": f"451 4.3.0 later {RUN}:7\r\n".encode()}, "451 4.3.0 later"),
        ({"DOT": b"554 5.6.0 no\r\n"}, "554 5.6.0 no"),
    ],
)
async def test_what_the_hop_refuses_is_not_tracked_and_its_reply_is_kept_without_the_mark(
    tls: ssl.SSLContext, certificate: Path, script: dict[str, bytes], reply: str
) -> None:
    async with ScriptedHop(offers=OFFERS, tls=tls, **MARKED | script) as hop:
        result = await deliver(await connected(hop, certificate))
    assert (result.tracks, result.results[0].reply) == (None, reply)
    assert "XQDISCARD" not in hop.verbs()  # there is nothing to ask about


async def test_where_redundancy_is_switched_off_a_hop_is_not_told_to_track_more(
    tls: ssl.SSLContext, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Talk, "tracking", False)
    async with ScriptedHop(offers=OFFERS, tls=tls, **MARKED) as hop:
        result = await deliver(await connected(hop, certificate))
    assert (result.tracks, result.results[0].ending) == (None, Ending.ACCEPTED)
    assert not [command for command in hop.commands if "XSHADOW=" in command or "XFORK=" in command]


async def test_a_hop_whose_250_has_no_mark_tracks_nothing(tls: ssl.SSLContext, certificate: Path) -> None:
    async with ScriptedHop(offers=OFFERS, tls=tls, **MARKED | {"DOT": b"250 2.0.0 queued\r\n"}) as hop:
        result = await deliver(await connected(hop, certificate))
    assert (result.tracks, result.results[0].ending) == (None, Ending.ACCEPTED)


@pytest.mark.parametrize("answer", [b"550 5.7.1 not you\r\n", b"451 4.3.0 not now\r\n"])
async def test_a_hop_that_does_not_want_to_know_us_gets_ordinary_mail(
    tls: ssl.SSLContext, certificate: Path, answer: bytes
) -> None:
    async with ScriptedHop(offers=OFFERS, tls=tls, XSHADOW=answer) as hop:
        result = await deliver(await connected(hop, certificate))
    assert (result.tracks, result.results[0].ending) == (None, Ending.ACCEPTED)
    assert not [command for command in hop.commands if "XSHADOW=" in command or "XFORK=" in command]


@pytest.mark.parametrize("answer", [b"250 2.0.0 what\r\n", b"250 2.0.0 " + b"x " * 6 + b"\r\n"])
async def test_a_greeting_that_cannot_be_read_fails_the_connection(
    tls: ssl.SSLContext, certificate: Path, answer: bytes
) -> None:
    async with ScriptedHop(offers=OFFERS, tls=tls, XSHADOW=answer) as hop:
        with pytest.raises(ConnectionFailed) as failed:
            await connected(hop, certificate)
    assert failed.value.step == "xshadow"


async def test_a_wrong_certificate_ends_it_before_any_mail_also_where_tls_is_opportunistic(
    tls: ssl.SSLContext, certificate: Path, tmp_path: Path
) -> None:
    async with ScriptedHop(offers=OFFERS, tls=tls) as hop:
        pins = server(hop, certificate)
        other = replace(pins, pinned=replace(pins.pinned, peers={b"another one": EDGE}))
        with pytest.raises(ConnectionFailed) as failed:
            await DeliverySession(other, None, Talk()).connect()
    assert (failed.value.step, hop.connections) == ("tls", 1)
    assert hop.verbs() == ["EHLO", "STARTTLS"]


async def test_what_a_hop_offers_in_clear_text_is_not_taken_up(certificate: Path) -> None:
    async with ScriptedHop(offers=("PIPELINING", "XSHADOW 1", "XQDISCARD")) as hop:
        result = await deliver(await connected(hop, certificate))
    assert result.tracks is None
    assert "XSHADOW" not in hop.verbs()


@pytest.mark.parametrize("offers", [("XSHADOW 2 3", "XQDISCARD"), ("XSHADOW 1",), ("XQDISCARD",), ()])
async def test_a_hop_that_does_not_offer_both_in_our_version_is_not_told(
    tls: ssl.SSLContext, certificate: Path, offers: tuple[str, ...]
) -> None:
    async with ScriptedHop(offers=("PIPELINING", "STARTTLS", *offers), tls=tls) as hop:
        await deliver(await connected(hop, certificate))
    assert "XSHADOW" not in hop.verbs()


async def test_lines_that_cannot_be_read_are_skipped_and_the_others_count(
    tls: ssl.SSLContext, certificate: Path
) -> None:
    answer = (
        f"250-2.0.0 4 {ID} 1 delivered=relayed 1-2\r\n250-2.0.0 5 {ID} 1 delivered *\r\n"
        f"250-2.0.0 nonsense\r\n250 2.0.0 6 {ID} 1 delivered=failed 3 {RUN}:12\r\n"
    ).encode()
    async with ScriptedHop(offers=OFFERS, tls=tls, **MARKED, XQDISCARD=answer) as hop:
        session = await connected(hop, certificate)
        answered, bad = await session.ask_hop(Query(200, after=Mark(RUN, 3)))
        await session.close()
    assert [(line.event, line.verdict.recipients) for line in answered.lines] == [(4, (1, 2)), (6, (3,))]
    assert {line.verdict.kind for line in answered.lines} == {VerdictKind.DELIVERED}
    assert answered.mark == Mark(RUN, 12)
    assert len(bad) == 2
    assert f"XQDISCARD 200 AFTER={RUN}:3" in hop.commands


@pytest.mark.parametrize("answer", [b"503 5.5.1 no\r\n", b"251 2.0.0 none\r\n"])
async def test_a_refusal_or_an_answer_without_a_mark_is_no_answer(
    tls: ssl.SSLContext, certificate: Path, answer: bytes
) -> None:
    async with ScriptedHop(offers=OFFERS, tls=tls, **MARKED, XQDISCARD=answer) as hop:
        session = await connected(hop, certificate)
        with pytest.raises(ConnectionFailed):
            await session.ask_hop(Query(200))
        assert not session.alive


def test_only_a_mark_is_taken_off() -> None:
    for text in ("queued", "", "queued as 12:34", f"{RUN}:", f"x {RUN}:1x"):
        assert unmarked(Reply(250, "2.0.0", text)) == (Reply(250, "2.0.0", text), None)
    assert unmarked(Reply(250, None, ("a", f"b {RUN}:4"))) == (Reply(250, None, ("a", "b")), Mark(RUN, 4))
    assert unmarked(Reply(250, None, f"{RUN}:4")) == (Reply(250, None, ""), Mark(RUN, 4))
