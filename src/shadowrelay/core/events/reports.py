"""Delivery status notifications: who is told of what, and under which id (RFC 3461, RFC 5321 6.1)."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import Envelope, Recipient


class ReportKind(StrEnum):
    """The Action of RFC 3464 2.3.3, as far as a relay has use for it."""

    FAILED = "failed"
    DELAYED = "delayed"
    RELAYED = "relayed"
    DELIVERED = "delivered"


_ASKED_BY = {
    ReportKind.FAILED: "FAILURE",
    ReportKind.DELAYED: "DELAY",
    ReportKind.RELAYED: "SUCCESS",
    ReportKind.DELIVERED: "SUCCESS",
}

_UNASKED = ("FAILURE", "DELAY")


def is_due(kind: ReportKind, recipient: Recipient, envelope: Envelope) -> bool:
    """Whether the sender is told.

    Nothing is ever sent to the null reverse-path: it marks reports themselves, and a report of a report
    would never end. NOTIFY=NEVER silences everything. Without NOTIFY, failure and delay are reported.
    """
    if not envelope.sender:
        return False
    return _ASKED_BY[kind] in (recipient.notify or _UNASKED)


def returns_whole_message(kind: ReportKind, envelope: Envelope) -> bool:
    """Whether the report carries the message, not only its header: RET=FULL, failures only (RFC 3461 4.3)."""
    return kind is ReportKind.FAILED and envelope.ret == "FULL"


def is_derived(message_id: MessageId) -> bool:
    """Was the id derived, so that another node may make a message of the same id, in octets of its own?"""
    return message_id[14:15] == "8"


def report_id(message_id: MessageId, recipient_number: int, kind: ReportKind) -> MessageId:
    """The id of the report, derived and not drawn, so that two nodes cannot make two.

    The form is a UUID version 8 (RFC 9562 5.8): 122 bits of SHA-256 over what the report is about.
    """
    about = f"report\0{message_id}\0{recipient_number}\0{kind}"
    digest = bytearray(hashlib.sha256(about.encode()).digest()[:16])
    digest[6] = 0x80 | (digest[6] & 0x0F)
    digest[8] = 0x80 | (digest[8] & 0x3F)
    text = digest.hex()
    return MessageId("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))
