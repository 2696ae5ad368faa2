"""Builds DSNs as multipart/report (RFC 3464, RFC 6522; RFC 6533 for addresses in UTF-8).

The text depends only on its inputs, so two nodes that report the same thing write the same message with the
same Message-ID.
"""

from __future__ import annotations

import re
from datetime import datetime

from shadowrelay.core.events.reports import ReportKind, returns_whole_message
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import Envelope, Recipient
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

MOST_HEADER = 64 * 1024
"""How many octets of a header are returned at most, in whole lines."""

_LONGEST_LINE = 998
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
        _part(_status_type(about), about.encode()),
        _part(*_returned(original, envelope, whole=whole)),
    ]
    boundary = _boundary(report_id, parts)
    delimiter = b"\r\n--" + boundary.encode()
    header = _header(report_id, reporting_mta, envelope, kind, now, boundary)
    preamble = b"This is a delivery status notification in MIME format."
    body = b"".join(delimiter + b"\r\n" + part for part in parts)
    return header.encode() + b"\r\n" + preamble + body + delimiter + b"--\r\n"


def _header(
    report_id: MessageId, mta: str, envelope: Envelope, kind: ReportKind, now: datetime, boundary: str
) -> str:
    fields = [
        field("Date", date(now)),
        f"From: Mail Delivery System <MAILER-DAEMON@{ascii_only(mta)}>\r\n",
        f"To: <{clean(envelope.sender)}>\r\n",
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


def _status_type(about: str) -> str:
    return "message/delivery-status" if about.isascii() else "message/global-delivery-status"


def _returned(original: bytes, envelope: Envelope, *, whole: bool) -> tuple[str, bytes]:
    """The third part of the report: (media type, the message or its header)."""
    header = _head(original)
    international = envelope.smtputf8 and not header.isascii()
    if whole:
        return ("message/global" if international else "message/rfc822"), original
    return ("message/global-headers" if international else "text/rfc822-headers"), header


def _head(original: bytes) -> bytes:
    """The header section in whole lines, without its empty line."""
    if original.startswith(b"\r\n"):
        return b""
    head, separator, _ = original[:MOST_HEADER].partition(b"\r\n\r\n")
    if separator:
        return head + b"\r\n"
    return head[: head.rfind(b"\r\n") + 2] if b"\r\n" in head else b""


def _returnable(original: bytes) -> bool:
    """Can a report return the message whole? It and its lines must not be too long (RFC 5322 2.1.1)."""
    if len(original) > MOST_RETURNED or b"\0" in original:
        return False
    return max(map(len, original.split(b"\r\n"))) <= _LONGEST_LINE


def _part(media_type: str, content: bytes) -> bytes:
    encoding = "7bit" if content.isascii() else "8bit"
    return f"Content-Type: {media_type}\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n".encode() + content


def _boundary(report_id: MessageId, parts: list[bytes]) -> str:
    """The MIME boundary, derived from the id; lengthened if a part happens to contain it."""
    boundary = f"=_{report_id}"
    while any(boundary.encode() in part for part in parts):
        boundary += "_"
    return boundary
