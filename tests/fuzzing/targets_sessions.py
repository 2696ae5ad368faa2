"""Targets: whole sessions, of clients, of members, and with hostile servers."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from itertools import chain

from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.members.conversation import Greeting, Query
from shadowrelay.core.messages import Digests, Envelope, Recipient
from shadowrelay.core.reception.redundancy import Leg
from shadowrelay.core.steps import OfferCopy
from shadowrelay.smtp.members.client import MemberConnection, MemberFailed
from shadowrelay.smtp.members.offer import OutgoingOffer
from shadowrelay.smtp.members.session import MemberSession
from shadowrelay.smtp.receiving.content import ContentCheck, DotDecoder
from shadowrelay.smtp.receiving.session import ReceiveSession
from shadowrelay.smtp.sending.connection import LONGEST_REPLY, HopProtocol
from shadowrelay.smtp.sending.message import BareLineEnding, DotStuffer
from shadowrelay.wire import xshadow
from shadowrelay.wire.replies import ReplyReader
from shadowrelay.wire.xshadow import MAX_LINE

from . import seeds, spoken
from .registry import Target, cut, must, pieces

_PEERS = replace(spoken.OPTIONS, max_text_line=None, max_command_line=MAX_LINE, name="members")
_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
_MARK = spoken.OWN
_NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
_GREETING = (
    b"XSHADOW mx1.example.org 6f0d7a3e-0000-4000-8000-000000000001 0000000000000001:0 0000000000000001@0\r\n"
)
_OURS = xshadow.parse_greeting(_GREETING[8:-2].decode())
_ENVELOPE = Envelope(sender="a@example.org", size=12)
_RECIPIENTS = (Recipient(1, "b@example.net", NextHop("inside")),)
_OFFER = OfferCopy(
    to=ServerName("mx2.example.org"),
    message_id=MessageId("01900000-0000-7000-8000-000000000001"),
    epoch=1,
    rank=1,
    envelope=_ENVELOPE,
    recipients=_RECIPIENTS,
    digests=Digests(of_content(b"Hello there\n"), of_envelope(_ENVELOPE, _RECIPIENTS)),
    received_at=_NOW,
)


def _judge(heard: bytes, recorder: spoken.Recorder) -> None:
    replies = ReplyReader(1 << 24).feed(heard)
    must(heard == b"" or heard.endswith(b"\r\n"), "whole replies")
    must(all(line[:3].isdigit() for line in heard.split(b"\r\n")[:-1]), "nothing but replies")
    acknowledged = sum("Queued for the fuzzer" in str(reply) for reply in replies)
    must(acknowledged == len(recorder.kept), "one 250 for each message that was kept")
    must(not any("4.3.0" in str(reply) for reply in replies), "no error of our own")
    must(recorder.open_sinks == 0, "what was begun and not kept was dropped")
    must(recorder.recipients <= spoken.OPTIONS.max_recipients_per_message, "no more recipients than allowed")
    for content in recorder.kept:
        bare = content.replace(b"\r\n", b"")
        must(b"\r" not in bare and b"\n" not in bare, "no bare line end was kept")
        must(len(content) <= spoken.OPTIONS.max_message_size, "no more than the limit was kept")


def _gist(heard: bytes) -> list[bytes]:
    """Every line heard; of the refusals of a content, that it was one."""
    return [b"5" if line[:3] in (b"552", b"554") else line for line in heard.split(b"\r\n")]


def check_session(data: bytes) -> None:
    """Any octets of a client give replies and never an exception, the same however they are cut (but which
    of several faults of a content is named), and only a 250 keeps mail.
    """
    sizes, stream = cut(data)
    heard, kept = spoken.session(pieces(stream, sizes), ReceiveSession, spoken.OPTIONS, desk=False)
    whole, also = spoken.session([stream] if stream else [], ReceiveSession, spoken.OPTIONS, desk=False)
    must((_gist(heard), kept.kept) == (_gist(whole), also.kept), "the same however it is cut")
    _judge(heard, kept)


def check_login(data: bytes) -> None:
    """Whatever a client says over TLS, only the right name and password log in, and only one user sends."""
    sizes, stream = cut(data)
    users = spoken.OneUser()
    options = replace(spoken.OPTIONS, logins=users, tls=_TLS)
    parts = [b"EHLO client.example\r\n", *pieces(stream, sizes)]
    heard, kept = spoken.session(parts, ReceiveSession, options, desk=False, tls=True)
    _judge(heard, kept)
    must(heard.count(b"\r\n235 2.7.0 ") == len(users.right), "a 235 for the right password alone")
    must(len(users.right) <= 1, "one logs in once")
    must({client.login for client in kept.peers} <= {"", *users.right}, "nobody else sends")


def check_proxy(data: bytes) -> None:
    """Whatever comes from a proxy, it is closed without a word, or greeted as one client with an address."""
    sizes, stream = cut(data)
    options = replace(spoken.OPTIONS, proxy_networks=(ip_network("192.0.2.1/32"),))
    heard, kept = spoken.session(pieces(stream, sizes), ReceiveSession, options, desk=False)
    must(heard == b"" or heard.startswith(b"220 "), "a greeting, or nothing")
    must(heard == b"" or stream.startswith((b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n")), "only behind a header")
    _judge(heard, kept)
    must(len({(client.address, client.port) for client in kept.peers}) <= 1, "one client")
    for client in kept.peers:
        must(
            str(ip_address(client.address)) == client.address and 0 <= client.port < 65536, "with an address"
        )


def check_member(data: bytes) -> None:
    """Any octets of a member's caller give replies and never an exception, and before XSHADOW was
    accepted never state.
    """
    sizes, stream = cut(data)
    heard, recorder = spoken.session(pieces(stream, sizes), MemberSession, _PEERS, desk=True)
    must(recorder.before_greeting == 0, "nothing is asked for a caller that is not known")
    must(recorder.greeted or not recorder.kept, "no copy of a caller that is not known")
    _judge(heard, recorder)


def check_called(data: bytes) -> None:
    """Whatever a called member says, the caller gets an answer or MemberFailed, and a copy counts only by a
    2yz with a mark.
    """
    sizes, stream = cut(data)

    async def talk() -> None:
        connection = spoken.called(pieces(stream, sizes))
        try:
            greeting = await connection.greet(_OURS)
            must(isinstance(greeting, Greeting), "a greeting")
            answered, bad = await connection.ask(Query(200))
            must(len(answered.lines) + len(bad) <= 1 << 20, "lines")
        except MemberFailed:
            must(connection._transport.is_closing(), "a session that failed is closed")
            connection = spoken.called(pieces(stream, sizes))
        attempt = await _offered(connection)
        if attempt.leg is Leg.ACKNOWLEDGED:
            must(attempt.mark is not None and attempt.reply[:1] == "2", "a 2yz with a mark")

    spoken.performed(talk())


async def _offered(connection: MemberConnection) -> object:
    async def content() -> object:
        yield b"Subject: x\r\n"
        yield b"\r\ny\r\n"

    digest = _OFFER.digests and _OFFER.digests.content
    return await OutgoingOffer(connection, _OFFER, _MARK, _NOW).send(content(), digest)  # type: ignore[arg-type]


def check_next_hop(data: bytes) -> None:
    """Whatever a next hop says, no more replies are kept than commands were written, and memory held is
    bounded.
    """
    sizes, stream = cut(data)

    async def talk() -> None:
        protocol = HopProtocol(asyncio.get_running_loop())
        protocol.connection_made(spoken.MemoryTransport(protocol))
        protocol.expect(3)
        for part in pieces(stream, sizes):
            protocol.data_received(part)
            must(len(protocol._replies) <= 4, "as many as commands and the greeting")
            must(protocol._reader._held <= LONGEST_REPLY + 4, "bounded")

    spoken.performed(talk())


def _decoded(parts: list[bytes]) -> tuple[bytes, bytes | None]:
    decoder, content = DotDecoder(), b""
    for number, part in enumerate(parts):
        more, rest = decoder.feed(part)
        content += more
        must(len(decoder._window) <= 6, "no more than the possible end is held back")
        if rest is not None:
            return content, rest + b"".join(parts[number + 1 :])
    return content, None


def check_content(data: bytes) -> None:
    """Content is decoded and judged the same however it is cut, and what is accepted is stuffed back to
    what came.
    """
    sizes, stream = cut(data)
    content, rest = _decoded(pieces(stream, sizes))
    whole = _decoded([stream])
    if rest is None:
        must(whole[1] is None, "no end")
        return
    must((content, rest) == whole, "however it is cut")
    end = (b"\r\n" + stream).index(b"\r\n.\r\n")
    must(rest == stream[end + 3 :], "only CRLF.CRLF ends it")

    def judged(parts: list[bytes]) -> object:
        check = ContentCheck(most=3_000, most_header=500, most_line=200)
        refusals = [refusal for part in parts if (refusal := check.feed(part))]
        return (refusals or [check.end()])[0] is None

    accepted = judged(pieces(content, sizes))
    bare = content.replace(b"\r\n", b"")
    reference = b"\r" not in bare and b"\n" not in bare and len(content) <= 3_000
    reference = reference and all(len(line) <= 198 for line in content.split(b"\r\n"))
    header = content if content[:2] != b"\r\n" else b""
    measured = len(
        b"\r\n" if not header else header.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" * (b"\r\n\r\n" in header)
    )
    must(accepted == (reference and measured <= 500), "judged as by whole lines")
    stuffer = DotStuffer()
    try:
        stuffed = b"".join(stuffer.feed(part) for part in pieces(content, sizes)) + stuffer.end()
    except BareLineEnding:
        must(b"\r" in bare or b"\n" in bare, "only for a bare line end")
        return
    must(_decoded([stuffed]) == (content, b""), "stuffed back")


_LOGINS = [
    b"AUTH PLAIN AGFsaWNlAFNlc2FtZQ==\r\nMAIL FROM:<a@b>\r\n",
    b"AUTH PLAIN\r\nAGFsaWNlAFNlc2FtZQ==\r\nAUTH PLAIN AGFsaWNlAFNlc2FtZQ==\r\n",
    b"auth login\r\nYWxpY2U=\r\nU2VzYW1l\r\n",
    b"AUTH SCRAM-SHA-256 bixhPWEsbj1hbGljZSxyPWFiYw==\r\nYz1iaXdzLHI9YWJjLHA9QUFBQQ==\r\n",
    b"AUTH SCRAM-SHA-256\r\nbiwsbj1hbGljZSxyPWFiYw==\r\n*\r\n",
    b"AUTH LOGIN YWxpY2U=\r\n*\r\nAUTH LOGIN =\r\n\r\nMAIL FROM:<a@b>\r\nAUTH PLAIN x\r\n",
    b"AUTH PLAIN AGFsaWNlAHdyb25n\r\nAUTH CRAM-MD5\r\nAUTH\r\nRSET\r\nQUIT\r\n",
]
_V2 = b"\r\n\r\n\0\r\nQUIT\n"
_PROXIED = [
    header + b"EHLO c\r\nMAIL FROM:<a@b>\r\n"
    for header in (
        b"PROXY TCP4 198.51.100.7 192.0.2.2 4711 25\r\n",
        b"PROXY TCP6 2001:db8::7 2001:db8::25 4711 25\r\n",
        b"PROXY UNKNOWN\r\n",
        _V2 + b"\x21\x11\0\x0c\xc6\x33\x64\x07\xc0\0\x02\x02\x12\x67\0\x19",
        _V2 + b"\x21\x21\0\x27" + bytes(range(16)) * 2 + b"\x12\x67\0\x19\x04\0\0",
        _V2 + b"\x20\0\0\0",
    )
]

TARGETS = (
    Target("login", check_login, lambda: seeds.chunked(_LOGINS)),
    Target("proxy", check_proxy, lambda: seeds.chunked(_PROXIED)),
    Target("session", check_session, lambda: seeds.chunked(seeds.clients())),
    Target(
        "member",
        check_member,
        lambda: seeds.chunked(
            data for spoken_ in seeds.members() for data in (b"EHLO mx1.example.org\r\n" + spoken_, spoken_)
        ),
    ),
    Target("called", check_called, lambda: seeds.chunked(chain(seeds.answers(), _after_greeting()))),
    Target("next-hop", check_next_hop, lambda: seeds.chunked(seeds.answers())),
    Target(
        "content", check_content, lambda: seeds.chunked(data + b".\r\nNOOP\r\n" for data in seeds.contents())
    ),
)


def _after_greeting() -> list[bytes]:
    """What follows EHLO in the answers: a session that begins with XSHADOW."""
    return [data.partition(b"250 XQDISCARD\r\n")[2] for data in seeds.answers()]
