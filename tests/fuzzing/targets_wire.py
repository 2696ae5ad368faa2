"""Targets: the grammars of the wire, which are pure."""

from __future__ import annotations

import unicodedata
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain

from shadowrelay.core.delivery import mta_sts
from shadowrelay.core.events.reports import ReportKind
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.messages import Envelope, Recipient
from shadowrelay.wire import addresses, xqdiscard, xshadow
from shadowrelay.wire.esmtp import (
    MAIL_KEYWORDS,
    RCPT_KEYWORDS,
    format_mail,
    format_rcpt,
    parse_mail,
    parse_rcpt,
    refuse_routing,
)
from shadowrelay.wire.header import HeaderScan, lacks_header, received_field
from shadowrelay.wire.replies import Refused, ReplyError, ReplyReader
from shadowrelay.wire.report import build_report
from shadowrelay.wire.xtext import decode_xtext, encode_xtext, is_xtext

from . import seeds
from .registry import Target, cut, must, pieces, text_of

_OFFERED = frozenset({"SIZE", "8BITMIME", "SMTPUTF8", "DSN", "AUTH"})
_NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
_MOST_REPLY = 2_000
_POLICIES = (
    b"version: STSv1\r\nmode: enforce\r\nmx: mail.example.com\r\nmx: *.example.net\r\nmax_age: 604800\r\n",
    b"version: STSv1\nmode: none\nmax_age: 86400\nx: y\n",
)


def _visible(text: str) -> bool:
    return not any(unicodedata.category(character) in {"Cc", "Zl", "Zp", "Cs"} for character in text)


def check_path(data: bytes) -> None:
    """Any text is refused, or is a path whose address is visible, short, and reads back as itself."""
    try:
        _, address, rest = addresses.read_path(text_of(data))
    except addresses.AddressError as error:
        must(str(error).isascii(), "the reason is fit for a reply")
        return
    must(_visible(address) and len(address.encode()) <= addresses.MAX_PATH, "visible and short")
    must(addresses.read_path(f"<{address}>{rest}")[1:] == (address, rest), "reads back")
    local, domain = addresses.split(address)
    must("@" not in domain and domain == domain.lower(), "a domain in lower case")
    must(addresses.is_routed(address) == any(mark in local for mark in "%!@"), "routes are seen")


def check_mail(data: bytes) -> None:
    """Any argument of MAIL is refused with a reply, or is a command that reads back as itself in one line."""
    try:
        mail = parse_mail(text_of(data), keywords=MAIL_KEYWORDS | {"XSHADOW"})
        line = format_mail(mail, _OFFERED)
    except Refused as refused:
        refused.reply.encode()
        return
    must(line.endswith(b"\r\n") and line.count(b"\n") == line.count(b"\r") == 1, "one line")
    again = parse_mail(line[5:-2].decode(), keywords=MAIL_KEYWORDS | {"XSHADOW"})
    must(again == mail, f"{again} is not {mail}")


def check_rcpt(data: bytes) -> None:
    """Any argument of RCPT is refused with a reply, or is a command that reads back as itself; what public
    connectors take of these routes nothing.
    """
    smtputf8, text = data[:1] > b"\x7f", text_of(data[1:])
    try:
        rcpt = parse_rcpt(text, smtputf8=smtputf8, keywords=RCPT_KEYWORDS | {"XFORK"})
        line = format_rcpt(rcpt, _OFFERED)
    except Refused as refused:
        refused.reply.encode()
        return
    with suppress(Refused):
        refuse_routing(rcpt)
        must(not addresses.is_routed(rcpt.address), "no routing by the sender")
    must(smtputf8 or line.isascii(), "ASCII without SMTPUTF8")
    must(line.endswith(b"\r\n") and line.count(b"\n") == line.count(b"\r") == 1, "one line")
    again = parse_rcpt(line[5:-2].decode(), smtputf8=smtputf8, keywords=RCPT_KEYWORDS | {"XFORK"})
    must(again == rcpt, f"{again} is not {rcpt}")


def check_xtext(data: bytes) -> None:
    """Every text survives xtext, and every text is xtext that decodes or a ValueError."""
    text = text_of(data)
    encoded = encode_xtext(text)
    must(is_xtext(encoded) and encoded.isascii() and decode_xtext(encoded) == text, "survives")
    with suppress(ValueError):
        must(decode_xtext(encode_xtext(decode_xtext(text))) == decode_xtext(text), "decodes")


def check_xshadow(data: bytes) -> None:
    """Any text is a greeting, an offer or a fork that is spelt as it was read, or it is Malformed."""
    text = text_of(data)
    with suppress(xshadow.Malformed):
        greeting = xshadow.parse_greeting(text)
        must(xshadow.parse_greeting(xshadow.format_greeting(greeting)) == greeting, "greeting")
    with suppress(xshadow.Malformed):
        offer = xshadow.parse_offer(text)
        must(xshadow.parse_offer(xshadow.format_offer(offer)) == offer, "offer")
    with suppress(xshadow.Malformed):
        fork = xshadow.parse_fork(text)
        must(xshadow.parse_fork(xshadow.format_fork(*fork)) == fork, "fork")


def check_xqdiscard(data: bytes) -> None:
    """Any text is a question, an answer or a list of recipients that is spelt as it was read, or
    Malformed.
    """
    text = text_of(data)
    with suppress(xshadow.Malformed):
        query = xqdiscard.parse_query(text)
        must(xqdiscard.parse_query(xqdiscard.format_query(query)) == query, "query")
    with suppress(xshadow.Malformed):
        line = xqdiscard.parse_line(text)
        must(xqdiscard.parse_line(xqdiscard.format_line(line)) == line, "line")
    with suppress(xshadow.Malformed):
        seen = xqdiscard.parse_seen(text)
        must(seen is None or xqdiscard.parse_seen(xqdiscard.format_seen(seen)) == seen, "seen")
    with suppress(xshadow.Malformed):
        recipients = xqdiscard.parse_recipients(text)
        must(len(recipients) <= 10_001, "bounded")
        must(xqdiscard.parse_recipients(xqdiscard.format_recipients(recipients)) == recipients, "recipients")


def check_replies(data: bytes) -> None:
    """Any octets are replies or a ReplyError, the same however they are cut, and memory held is bounded."""
    sizes, stream = cut(data)

    def read(parts: list[bytes]) -> list[str]:
        reader, found = ReplyReader(_MOST_REPLY), []
        try:
            for part in parts:
                for reply in reader.feed(part):
                    must(str(reply).isprintable() and str(reply).isascii(), "one printable line")
                    reply.encode()
                    found.append(str(reply))
                must(reader._held <= _MOST_REPLY + 4, "bounded")
        except ReplyError:
            found.append("error")
        return found

    # An error in a segment takes the replies before it in the same segment with it.
    whole, cut_up = read(pieces(stream, [1])), read(pieces(stream, sizes))
    must(cut_up == whole or (cut_up[-1:] == whole[-1:] == ["error"]), "the same however it is cut")


def check_header(data: bytes) -> None:
    """Any octets are header and rest without loss, the same however they are cut, and the trace field is
    one field.
    """
    sizes, message = cut(data)

    def scan(parts: list[bytes]) -> tuple[object, ...]:
        scanned, at = HeaderScan(), 0
        while at < len(parts) and not scanned.feed(parts[at]):
            at += 1
        scanned.finish()
        body = scanned.rest + b"".join(parts[at + 1 :])
        above = b"\r\n" if lacks_header(message) else b""
        must(scanned.section + body == above + message, "nothing is lost")
        return scanned.section, scanned.message_id, scanned.subject, scanned.received, scanned.names

    must(scan(pieces(message, sizes)) == scan(pieces(message, [len(message) or 1])), "however it is cut")


def check_trace(data: bytes) -> None:
    """Whatever name EHLO takes, the trace field is one ASCII field of short lines."""
    from shadowrelay.smtp.receiving.session import _NAME

    helo = text_of(data)
    if not (_NAME.fullmatch(helo) or addresses.is_literal(helo)):
        return
    field = received_field(
        helo=helo, address="192.0.2.1", by="mx1.example.org", protocol="ESMTP", message_id="1", date="today"
    )
    lines = field.split(b"\r\n")
    must(
        field.isascii() and lines.pop() == b"" and all(line.startswith(b"\t") for line in lines[1:]),
        "one field",
    )


def check_report(data: bytes) -> None:
    """Whatever a stranger wrote into envelope, reply and message, the report has three parts and whole
    lines.
    """
    words = [text_of(word) for word in data.split(b"\x1e")]
    words += [""] * (7 - len(words))
    address, reply, envid, orcpt, message_id, remote, rest = words[:7]
    kind = list(ReportKind)[len(data) % len(ReportKind)]
    content = rest.encode()
    text = build_report(
        report_id=MessageId("0a1b2c3d-0000-8000-8000-000000000001"),
        reporting_mta="mx1.example.org",
        envelope=Envelope(
            sender="a@example.org", size=len(content), ret="FULL", envid=envid or None, message_id=message_id
        ),
        received_at=_NOW,
        recipient=Recipient(1, address, NextHop("hop"), (), orcpt or None),
        kind=kind,
        reply=reply,
        remote_mta=remote or None,
        now=_NOW,
        will_retry_until=_NOW,
        original=content,
        original_is_complete=True,
    )
    must(text.isascii() and max(map(len, text.split(b"\r\n"))) <= 998, "every hop can take it")
    head = text.partition(b"\r\n\r\n")[0].split(b"\r\n")
    must(
        [line.split(b":")[0] for line in head if line[:1] not in b" \t"][:2] == [b"Date", b"From"],
        "the header",
    )
    # Python's parser takes more than CRLF for a line end, so the original is judged by its boundary alone.
    boundary = head[-1].partition(b'boundary="')[2].rstrip(b'"')
    parts = text.split(b"\r\n--" + boundary)
    must(len(parts) == 5 and parts[4] == b"--\r\n", "three parts and an end")
    status = parts[2].removeprefix(b"\r\n").partition(b"\r\n\r\n")[2].decode()
    groups = [group.replace("\r\n ", " ").splitlines() for group in status.rstrip().split("\r\n\r\n")]
    names = [[line.partition(":")[0] for line in group] for group in groups]
    allowed = {
        "Original-Envelope-Id",
        "Reporting-MTA",
        "Arrival-Date",
        "Original-Recipient",
        "Final-Recipient",
    }
    allowed |= {"Action", "Status", "Remote-MTA", "Diagnostic-Code", "Last-Attempt-Date", "Will-Retry-Until"}
    must(len(names) == 2 and set(chain(*names)) <= allowed, f"two groups of fields: {names}")
    must(all(len(set(group)) == len(group) for group in names), "each field once")


_REPORTS = (
    b"b@example.net\x1e550 5.1.1 no such user\x1eid+2B1\x1erfc822;c@example.net"
    b"\x1e<1@x>\x1ehop\x1eA: b\r\n\r\nc\r\n",
    b"b\r\nX: y@example.net\x1e421\r\nX: y\x1e+0D+0AX:\x1eutf-8;\xc3\xbc+0D+0A"
    b"\x1e<1\r\n@x>\x1eh\r\nX:\x1e\r\n--=_",
)

_DATABASE = b"6f0d7a3e-0000-4000-8000-000000000001"
_QUESTIONS = (
    b"1-3,7",
    b"seen mx1.example.org",
    b"200 SEEN=mx1.example.org;" + _DATABASE + b";0000000000000001:7",
    b"0 CLAIM=mx1.example.org;" + _DATABASE + b";heartbeat-lost,01900000-0000-7000-8000-000000000001;1;1",
)


def check_sts_policy(data: bytes) -> None:
    """Any text is refused as a policy of MTA-STS, or is one that names hosts and ends."""
    try:
        found = mta_sts.parsed(text_of(data), "1", _NOW)
    except mta_sts.InvalidPolicy:
        return
    must(found.mx or found.mode is mta_sts.StsMode.NONE, "names hosts")
    must(all(one.isascii() and one == one.lower() and " " not in one for one in found.mx), "names of hosts")
    must(found.matches("") is False and found.matches("a..b") is False, "no name is no host")
    must(found.max_age.total_seconds() <= mta_sts.LONGEST_AGE, "ends")


TARGETS = (
    Target("sts-policy", check_sts_policy, lambda: _POLICIES),
    Target("path", check_path, lambda: chain(_paths(b"MAIL"), _paths(b"RCPT"))),
    Target("mail", check_mail, lambda: seeds.arguments(b"MAIL")),
    Target(
        "rcpt",
        check_rcpt,
        lambda: (mark + text for text in seeds.arguments(b"RCPT") for mark in (b"a", b"\xff")),
    ),
    Target("xtext", check_xtext, lambda: (b"a+2Bb+3D", "ü+=\x00".encode(), b"+zz", b"+C3+BC")),
    Target("xshadow", check_xshadow, lambda: chain(seeds.arguments(b"XSHADOW"), _offers())),
    Target(
        "xqdiscard", check_xqdiscard, lambda: chain(seeds.arguments(b"XQDISCARD"), seeds.lines(), _QUESTIONS)
    ),
    Target("replies", check_replies, lambda: seeds.chunked(seeds.answers())),
    Target("header", check_header, lambda: seeds.chunked(seeds.contents())),
    Target("trace", check_trace, lambda: (b"mx.example.net", b"[192.0.2.1]", "hôte".encode())),
    Target("report", check_report, lambda: _REPORTS),
)


def _paths(verb: bytes) -> list[bytes]:
    return [argument.partition(b":")[2] for argument in seeds.arguments(verb)]


def _offers() -> list[bytes]:
    found = [
        word for argument in seeds.arguments(b"MAIL") for word in argument.split(b" ") if b"XSHADOW=" in word
    ]
    forks = [
        word for argument in seeds.arguments(b"RCPT") for word in argument.split(b" ") if b"XFORK=" in word
    ]
    return [word.partition(b"=")[2] for word in found + forks]
