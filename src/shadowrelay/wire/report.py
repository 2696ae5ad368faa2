"""Builds DSNs as multipart/report (RFC 3464, RFC 6522; RFC 6533 for addresses in UTF-8).

The text depends only on its inputs, so two nodes that report the same thing write the same message with the
same Message-ID. It is 7-bit whatever it quotes, in short lines: there is no hop that cannot take it
(docs/decisions/0041-reports-fit-every-hop.md).
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import datetime
from email.header import Header

from shadowrelay.core.events.reports import ReportKind, returns_whole_message
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import Envelope, Recipient
from shadowrelay.core.spelling import in_ascii
from shadowrelay.wire.line_ends import all_paired
from shadowrelay.wire.report_fields import (
    ascii_only,
    clean,
    date,
    envelope_id,
    field,
    original_recipient,
    status,
    typed_address,
)

MOST_RETURNED = 1024 * 1024
"""Octets of the longest message that is returned whole; of a longer one, only the header is returned."""

MOST_HEADER = 48 * 1024
"""How many octets a returned header takes at most, in whole lines: a report of 64 KiB fits every server (RFC
5321 4.5.3.1.7).
"""

_LONGEST_LINE = 998
_QUOTED = 76  # octets of a line, "=" included
_MESSAGE_ID = re.compile(r"<[!-;=?-~]+@[!-;=?-~]+>")

_SUBJECTS = {
    ReportKind.FAILED: "Undeliverable message",
    ReportKind.DELAYED: "Delivery delayed",
    ReportKind.RELAYED: "Message relayed",
    ReportKind.DELIVERED: "Message delivered",
    ReportKind.EXPANDED: "Message expanded",
}

_EXPLAINED = {
    ReportKind.FAILED: "Your message could not be delivered to the recipient below.\r\n"
    "It will not be tried again.",
    ReportKind.DELAYED: "Your message has not been delivered to the recipient below yet.\r\n"
    "This is a notice only: you need not send it again.",
    ReportKind.RELAYED: "Your message was handed to a server that does not confirm deliveries.\r\n"
    "You may hear no more of it.",
    ReportKind.DELIVERED: "Your message was delivered to the recipient below.",
    ReportKind.EXPANDED: "Your message was sent on to all who stand behind the address below.\r\n"
    "You hear only of failures from here on.",
}


_PERHAPS = "It may have been delivered all the same: a server took it, and its answer cannot be read."
_TROUBLES = frozenset({ReportKind.FAILED, ReportKind.DELAYED})


def build_report(
    *,
    report_id: MessageId,
    reporting_mta: str,
    envelope: Envelope,
    received_at: datetime,
    recipient: Recipient,
    kind: ReportKind,
    reply: str,
    remote_mta: str | None,
    now: datetime,
    will_retry_until: datetime | None,
    original: bytes,
    original_is_complete: bool,
) -> bytes:
    """A report about one recipient, to the envelope's sender, with CRLF line ends.

    ``reply``: the last reply in one line ('' if there was none), from the server ``remote_mta``, or our own
    without that. ``original``: the message, or its beginning. The message is returned whole only if it
    failed, RET=FULL was given, and it is complete, at most 1 MiB long and fit for 8BITMIME.

    No octet of the report is above 127, and no line is longer than 998 octets.
    """
    if not envelope.sender:
        raise ValueError("nothing is reported to the null reverse-path")
    about = _per_message(reporting_mta, envelope, received_at) + "\r\n"
    about += _per_recipient(recipient, kind, reply, remote_mta, now, will_retry_until)
    whole = returns_whole_message(kind, envelope) and original_is_complete and _returnable(original)
    parts = [
        _part(
            "text/plain; charset=utf-8", _explanation(reporting_mta, recipient, kind, reply, will_retry_until)
        ),
        _part("message/delivery-status", about.encode("ascii")),
        _whole(original) if whole else _header_of(original, smtputf8=envelope.smtputf8),
    ]
    boundary = _boundary(report_id, parts)
    delimiter = b"\r\n--" + boundary.encode()
    header = _header(report_id, reporting_mta, envelope, kind, now, boundary)
    preamble = b"This is a delivery status notification in MIME format."
    body = b"".join(delimiter + b"\r\n" + part for part in parts)
    return header.encode() + b"\r\n" + preamble + body + delimiter + b"--\r\n"


def with_the_header_alone(report: bytes, report_id: MessageId) -> bytes | None:
    """That report with the header in place of the whole message that it returns, for a hop that takes no
    more: RET=FULL is a request (RFC 3461 4.3). None if it is no report that this relay made under that id,
    or returns no whole message.
    """
    own = rb'report-type=delivery-status;\r\n boundary="(%b_*)"\r\n' % _boundary(report_id, []).encode()
    found = re.search(own, report.partition(b"\r\n\r\n")[0] + b"\r\n")
    if found is None:
        return None
    delimiter = b"\r\n--" + found[1]
    first, *parts = report.split(delimiter)
    if len(parts) != 4 or parts[3] != b"--\r\n":
        return None
    header, _, original = parts[2].removeprefix(b"\r\n").partition(b"\r\n\r\n")
    match header.split(b"\r\n"):
        case [b"Content-Type: message/rfc822", b"Content-Transfer-Encoding: 7bit"]:
            pass
        case [b"Content-Type: message/global", b"Content-Transfer-Encoding: base64"]:
            original = base64.b64decode(original)
        case _:
            return None
    parts[2] = b"\r\n" + _header_of(original, smtputf8=True)
    return delimiter.join((first, *parts))


def _header(
    report_id: MessageId, mta: str, envelope: Envelope, kind: ReportKind, now: datetime, boundary: str
) -> str:
    fields = [
        field("Date", date(now)),
        f"From: Mail Delivery System <MAILER-DAEMON@{ascii_only(mta)}>\r\n",
        _to(envelope.sender),
        field("Subject", _SUBJECTS[kind]),
        f"Message-ID: <{report_id}@{ascii_only(mta)}>\r\n",
        "Auto-Submitted: auto-replied\r\n",
        "MIME-Version: 1.0\r\n",
        f'Content-Type: multipart/report; report-type=delivery-status;\r\n boundary="{boundary}"\r\n',
    ]
    if len(envelope.message_id) <= _LONGEST_LINE // 2 and _MESSAGE_ID.fullmatch(envelope.message_id):
        fields.insert(5, f"In-Reply-To: {envelope.message_id}\r\n")
    return "".join(fields)


def _explanation(
    mta: str, recipient: Recipient, kind: ReportKind, reply: str, will_retry_until: datetime | None
) -> bytes:
    lines = [f"This is the mail system at {ascii_only(mta)}.", "", _EXPLAINED[kind]]
    if kind in _TROUBLES and recipient.unread is not None:
        lines.append(_PERHAPS)
    if kind is ReportKind.DELAYED and will_retry_until:
        lines.append(f"It will be tried until {date(will_retry_until)}.")
    lines += ["", f"    {clean(recipient.address)}"]
    if reply:
        lines += [f"    {clean(reply)[:900]}"]
    return ("\r\n".join(lines) + "\r\n").encode()


def _per_message(mta: str, envelope: Envelope, received_at: datetime) -> str:
    """The fields about the message (RFC 3464 2.2)."""
    identity = envelope_id(envelope)
    fields = [field("Original-Envelope-Id", identity)] if identity else []
    fields.append(field("Reporting-MTA", f"dns; {ascii_only(mta)}"))
    fields.append(field("Arrival-Date", date(received_at)))
    return "".join(fields)


def _per_recipient(
    recipient: Recipient,
    kind: ReportKind,
    reply: str,
    remote_mta: str | None,
    now: datetime,
    will_retry_until: datetime | None,
) -> str:
    """The fields about the recipient (RFC 3464 2.3)."""
    original = original_recipient(recipient)
    fields = [f"Original-Recipient: {original}\r\n"] if original else []
    fields.append(f"Final-Recipient: {typed_address(recipient.address)}\r\n")
    fields.append(field("Action", kind))
    fields.append(field("Status", status(kind, reply)))
    if remote_mta:
        fields.append(field("Remote-MTA", f"dns; {ascii_only(remote_mta)}"))
    if reply:
        speaker = "smtp" if remote_mta else "x-shadowrelay"
        fields.append(field("Diagnostic-Code", f"{speaker}; {ascii_only(reply)}"))
    fields.append(field("Last-Attempt-Date", date(now)))
    if kind is ReportKind.DELAYED and will_retry_until:
        fields.append(field("Will-Retry-Until", date(will_retry_until)))
    return "".join(fields)


def _to(sender: str) -> str:
    """The field To: the address, or the name of an empty group if the address is not ASCII (RFC 6854)."""
    if (address := in_ascii(sender)) is not None:
        return f"To: <{clean(address)}>\r\n"
    name = Header(clean(sender), "utf-8", header_name="To").encode(linesep="\r\n")
    return f"To: {name}:;\r\n"


def _whole(original: bytes) -> bytes:
    """The third part of a report that returns the message. Of the types for messages, only message/global may
    have another encoding than 7bit and 8bit (RFC 2046 5.2.1, RFC 6532 3.7).
    """
    if original.isascii():
        return _part("message/rfc822", original)
    return _encoded("message/global", "base64", base64.encodebytes(original).replace(b"\n", b"\r\n"))


def _header_of(original: bytes, *, smtputf8: bool) -> bytes:
    """The third part of a report that returns the header, in whole lines (RFC 6522 4, RFC 6533 6.3)."""
    kept, left = b"", MOST_HEADER
    for line in _header_lines(original):
        left -= len(_quoted(line))
        if left < 0:
            break
        kept += line
    international = smtputf8 and not kept.isascii()
    return _part("message/global-headers" if international else "text/rfc822-headers", kept)


def _header_lines(original: bytes) -> list[bytes]:
    """The lines of the header section, without the empty line, each with its end."""
    if original.startswith(b"\r\n"):
        return []
    head, separator, _ = original.partition(b"\r\n\r\n")
    lines = [line + b"\r\n" for line in head.split(b"\r\n")]
    return lines if separator else lines[:-1]


def _returnable(original: bytes) -> bool:
    """Can a report return the message whole? It and its lines must not be too long (RFC 5322 2.1.1)."""
    if len(original) > MOST_RETURNED or b"\0" in original:
        return False
    return max(map(len, original.split(b"\r\n"))) <= _LONGEST_LINE


def _part(media_type: str, content: bytes) -> bytes:
    """A part as it is, or quoted-printable if it has octets above 127, long lines, NUL, CR or LF alone."""
    longest = max(map(len, content.split(b"\r\n")))
    if content.isascii() and b"\0" not in content and longest <= _LONGEST_LINE and all_paired(content):
        return _encoded(media_type, "7bit", content)
    return _encoded(media_type, "quoted-printable", _quoted(content))


def _quoted(content: bytes) -> bytes:
    """Quoted-printable (RFC 2045 6.7); a CR or LF alone is an octet like others."""
    return b"\r\n".join(map(_quoted_line, content.split(b"\r\n")))


def _quoted_line(line: bytes) -> bytes:
    """In lines of at most 76 octets: the library's may have 77, where the first octet is a space."""
    whole = binascii.b2a_qp(line, istext=False)
    if b"\n" not in whole and len(whole) <= _QUOTED:
        return whole
    rows, row = [], b""
    for at, octet in enumerate(line):
        plain = (33 <= octet <= 126 and octet != 61) or (octet in b" \t" and at + 1 < len(line))
        token = line[at : at + 1] if plain else b"=%02X" % octet
        if len(row) + len(token) >= _QUOTED:
            rows.append(row + b"=")
            row = b""
        row += token
    return b"\r\n".join((*rows, row))


def _encoded(media_type: str, encoding: str, content: bytes) -> bytes:
    return f"Content-Type: {media_type}\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n".encode() + content


def _boundary(report_id: MessageId, parts: list[bytes]) -> str:
    """The MIME boundary, derived from the id; lengthened if a part happens to contain it."""
    boundary = f"=_{report_id}"
    while any(boundary.encode() in part for part in parts):
        boundary += "_"
    return boundary
