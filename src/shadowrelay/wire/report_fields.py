"""The fields of a DSN, spelt so that no value can begin another field."""

from __future__ import annotations

import re
from datetime import datetime

from shadowrelay.core.events.reports import ReportKind
from shadowrelay.core.messages import Envelope, Recipient
from shadowrelay.core.spelling import canonical, in_ascii
from shadowrelay.wire.addresses import is_literal
from shadowrelay.wire.xtext import decode_xtext

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# C0, DEL, C1, and characters that some readers take for a line end or cannot encode.
_BREAKING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NOT_ASCII = re.compile("[^\x20-\x7e]")
_NOT_QCHAR = re.compile(r"[^!-*,-<>-\[\]-~]")
_EMBEDDED = re.compile(r"\\x\{([0-9A-Fa-f]{1,6})\}")
_REPLY = re.compile(r"([245])(\d\d)(?:[ -](?:\1\.(\d{1,3})\.(\d{1,3})(?= |$))?|$)", re.ASCII)
_FOLD_AT = 76
_LONGEST_TEXT = 900

_SUBJECT_OF_CODE = {
    "421": "4.3.2",
    "450": "4.2.0",
    "451": "4.3.0",
    "452": "4.3.1",
    "500": "5.5.2",
    "501": "5.5.4",
    "502": "5.5.1",
    "503": "5.5.1",
    "504": "5.5.4",
    "550": "5.2.0",
    "551": "5.1.6",
    "552": "5.3.4",
    "553": "5.1.3",
    "555": "5.5.4",
}
"""The closest status for a reply code that comes without an enhanced code (RFC 3463, RFC 5248)."""

_WITHOUT_REPLY = {
    ReportKind.FAILED: "5.0.0",
    ReportKind.DELAYED: "4.0.0",
    ReportKind.RELAYED: "2.0.0",
    ReportKind.DELIVERED: "2.0.0",
    ReportKind.EXPANDED: "2.0.0",
}
_CLASSES = {
    ReportKind.FAILED: "45",
    ReportKind.DELAYED: "4",
    ReportKind.RELAYED: "2",
    ReportKind.DELIVERED: "2",
    ReportKind.EXPANDED: "2",
}

EXPIRED = "4.4.7"
"""Delivery time expired: the status of a failed recipient that never got a reply."""


def clean(text: str) -> str:
    """The text with each control character written as ``\\x{HEX}``."""
    return _BREAKING.sub(lambda found: f"\\x{{{ord(found[0]):X}}}", text)


def ascii_only(text: str) -> str:
    """The text with each character that is not printable ASCII written as ``\\x{HEX}``."""
    return _NOT_ASCII.sub(lambda found: f"\\x{{{ord(found[0]):X}}}", text)


def date(moment: datetime) -> str:
    """RFC 5322 3.3 date-time. Refuses naive datetimes."""
    if moment.tzinfo is None:
        raise ValueError("a datetime without time zone has no place here")
    day, month = _DAYS[moment.weekday()], _MONTHS[moment.month - 1]
    return f"{day}, {moment.day:02d} {month} {moment:%Y %H:%M:%S %z}"


def status(kind: ReportKind, reply: str) -> str:
    """The Status field (RFC 3464 2.3.4): the reply's enhanced code, or the closest status for its code.

    A failure may keep a status of class 4: it was tried until the message expired. A reply whose class does
    not fit the kind tells nothing.
    """
    found = _REPLY.match(reply)
    if not reply and kind is ReportKind.FAILED:
        return EXPIRED
    if found is None or found[1] not in _CLASSES[kind]:
        return _WITHOUT_REPLY[kind]
    if found[3]:
        return f"{found[1]}.{int(found[3])}.{int(found[4])}"
    return _SUBJECT_OF_CODE.get(found[1] + found[2], f"{found[1]}.0.0")


def mta(server: str) -> str:
    """``host:port`` as a name of type dns: without the port; an address becomes a literal (RFC 3461 9.2)."""
    host = server.rpartition(":")[0]
    if is_literal(literal := f"[IPv6:{host}]" if ":" in host else f"[{host}]"):
        return literal
    return host


def field(name: str, value: str) -> str:
    """``Name: value`` and CRLF, folded at spaces. The value must be clean."""
    lines, line = [], f"{name}:"
    for word in value[:_LONGEST_TEXT].split(" "):
        if len(line) + 1 + len(word) > _FOLD_AT and not line.endswith(":") and line.strip() and word:
            lines.append(line)
            line = ""
        line += " " + word
    return "\r\n".join([*lines, line]) + "\r\n"


def typed_address(address: str) -> str:
    """``rfc822;`` and the address in ASCII, or else ``utf-8;`` and its 7-bit form (RFC 3464 2.3.2, RFC 6533
    3).
    """
    if (plain := in_ascii(address)) is not None:
        return f"rfc822; {clean(plain)}"[:_LONGEST_TEXT]
    local, at, domain = address.rpartition("@")
    return f"utf-8; {_escaped(local + at + canonical(domain))}"[:_LONGEST_TEXT]


def original_recipient(recipient: Recipient) -> str | None:
    """ORCPT with its xtext decoded, in ASCII; None if it is absent, malformed, or too long for a line."""
    kind, separator, address = (recipient.orcpt or "").partition(";")
    if not separator or not kind or not address:
        return None
    if kind.lower() == "utf-8":
        found = f"utf-8; {_escaped(_EMBEDDED.sub(_character, _decoded(address)))}"
    else:
        found = f"{ascii_only(kind)}; {ascii_only(_decoded(address))}"
    return found if len(found) <= _LONGEST_TEXT else None


def _escaped(address: str) -> str:
    """utf-8-addr-xtext of RFC 6533 3: what is not printable ASCII, and ``\\ + =``, as ``\\x{HEX}``."""
    return _NOT_QCHAR.sub(lambda found: f"\\x{{{ord(found[0]):X}}}", address)


def _character(found: re.Match[str]) -> str:
    """The character that ``\\x{HEX}`` stands for; itself if there is no such character."""
    point = int(found[1], 16)
    return chr(point) if point < 0x110000 else found[0]


def envelope_id(envelope: Envelope) -> str | None:
    """ENVID with its xtext decoded, in ASCII (``ascii_only``); None if it is absent."""
    return ascii_only(_decoded(envelope.envid)) if envelope.envid else None


def _decoded(text: str) -> str:
    try:
        return decode_xtext(text)
    except ValueError:
        return text
