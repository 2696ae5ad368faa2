"""Delivery status notifications (DSNs): when a sender gets one, and its id (RFC 3461, RFC 5321 6.1)."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from shadowrelay.core.identifiers import MessageId, RequestId
from shadowrelay.core.messages import Envelope, Recipient, TlsWish


class ReportKind(StrEnum):
    """The Action field of RFC 3464 2.3.3, with the values that this relay uses."""

    FAILED = "failed"
    DELAYED = "delayed"
    RELAYED = "relayed"
    DELIVERED = "delivered"
    EXPANDED = "expanded"


_ASKED_BY = {
    ReportKind.FAILED: "FAILURE",
    ReportKind.DELAYED: "DELAY",
    ReportKind.RELAYED: "SUCCESS",
    ReportKind.DELIVERED: "SUCCESS",
    ReportKind.EXPANDED: "SUCCESS",
}

_UNASKED = ("FAILURE", "DELAY")


def is_due(kind: ReportKind, recipient: Recipient, envelope: Envelope) -> bool:
    """Does the sender get this report?

    The null reverse-path never gets one: it marks reports, and reports about reports would never end.
    NOTIFY=NEVER suppresses every report. Without NOTIFY, failure and delay are reported.
    """
    if not envelope.sender:
        return False
    return _ASKED_BY[kind] in (recipient.notify or _UNASKED)


def returns_whole_message(kind: ReportKind, envelope: Envelope) -> bool:
    """Does the report return the whole message? Only a failure with RET=FULL does (RFC 3461 4.3), and none
    of a message with REQUIRETLS (RFC 8689 5).
    """
    return kind is ReportKind.FAILED and envelope.ret == "FULL" and envelope.tls is not TlsWish.REQUIRED


def is_derived(message_id: MessageId) -> bool:
    """Is the id derived, so that another node may make a message with the same id in other octets?"""
    return message_id[14:15] == "8"


def report_id(message_id: MessageId, recipient_number: int, kind: ReportKind) -> MessageId:
    """The id of a report, derived from its subject: two nodes give the same report the same id."""
    return derived_id("report", message_id, str(recipient_number), kind)


def resubmitted_id(request: RequestId, message_id: MessageId) -> MessageId:
    """The id of the message that a resubmit request makes of another one, on whichever node."""
    return derived_id("resubmit", request, message_id)


def derived_id(*about: str) -> MessageId:
    """A UUID version 8 (RFC 9562 5.8): 122 bits of SHA-256 over the texts, with NUL between them."""
    digest = bytearray(hashlib.sha256("\0".join(about).encode()).digest()[:16])
    digest[6] = 0x80 | (digest[6] & 0x0F)
    digest[8] = 0x80 | (digest[8] & 0x3F)
    text = digest.hex()
    return MessageId("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))
