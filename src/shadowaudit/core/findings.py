"""The classes of what may be found about a message, and what each of them means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """VIOLATION: the promise was broken. UNPROVEN: evidence is missing. NOTE: allowed, counted and named."""

    VIOLATION = "violation"
    UNPROVEN = "unproven"
    NOTE = "note"


class Class(StrEnum):
    """What was found about a message."""

    LOST = "lost"
    PARTIALLY_LOST = "partially-lost"
    DUPLICATE = "duplicate"
    ONE_COPY = "acknowledged-with-one-copy"
    LATE_COPY = "redundant-after-acknowledgement"
    FALSE_COPY = "copy-never-held"
    VANISHED = "vanished-copy"
    PREMATURE_DISCARD = "discarded-before-delivery"
    UNKNOWN_ORIGIN = "unknown-origin"
    INCONSISTENT = "rows-contradict"
    ALTERED = "altered"
    MISDELIVERED = "misdelivered"
    REPORT_MISSING = "report-missing"
    RESUBMITTED_OUTSIDE = "resubmitted-across-the-boundary"
    RESUBMITTED_EARLY = "resubmitted-though-never-delivered"
    RESUBMITTED_AGAIN = "resubmitted-again"
    DELIVERED_AFTER_REMOVAL = "delivered-after-removal"
    DAMAGED = "damaged-everywhere"
    UNEXPLAINED = "duplicate-unexplained"
    UNDIGESTED = "digest-missing"
    UNPROVEN_LOSS = "fate-not-known"
    OPEN = "open-at-the-end-of-the-log"
    IN_TRANSIT = "in-transit"
    ALLOWED_DUPLICATE = "duplicate-allowed"
    DUPLICATE_DROPPED = "duplicate-dropped-at-mailbox"
    EXPOSED = "exposed"
    PROMOTED = "promoted-rightly"
    PROMOTED_UNVERIFIED = "promoted-unverified"
    FALSE_PROMOTION = "promoted-falsely"
    HOLDERS_WORD = "settled-by-holders-word"
    ORPHAN = "orphan-shadow"
    LATE_DISCARD = "late-discard"
    NEVER_ACKNOWLEDGED = "delivered-never-acknowledged"
    REPORT_UNKNOWN = "report-not-known"
    RESUBMITTED_UNVERIFIED = "resubmitted-unverified"
    REMOVED = "removed"
    REMOVED_TOO_LATE = "removed-too-late"
    SUSPENDED = "suspended"
    SET_ASIDE = "set-aside"
    IN_DOUBT = "sent-in-doubt"


_V, _U, _N = Severity.VIOLATION, Severity.UNPROVEN, Severity.NOTE

MEANING: dict[Class, tuple[Severity, str]] = {
    Class.LOST: (_V, "acknowledged; no recipient was delivered or bounced, and no node holds it"),
    Class.PARTIALLY_LOST: (_V, "acknowledged; some recipients were neither delivered nor bounced, nor held"),
    Class.DUPLICATE: (_V, "delivered more than once to a recipient, without a cause that the promise allows"),
    Class.ONE_COPY: (_V, "acknowledged without a second copy, and without saying so"),
    Class.LATE_COPY: (_V, "the second copy was made only after the acknowledgement"),
    Class.FALSE_COPY: (_V, "the owner says that a server holds a copy, whose complete log knows of none"),
    Class.VANISHED: (_V, "a node had it, said nothing of its end, and its next snapshot does not list it"),
    Class.PREMATURE_DISCARD: (_V, "a holder was told of a delivery that no node's log shows"),
    Class.UNKNOWN_ORIGIN: (_V, "delivered or owned by a node whose complete log never received it"),
    Class.INCONSISTENT: (_V, "rows that cannot be so: they contradict those of their node, or themselves"),
    Class.ALTERED: (_V, "held or sent with another content, envelope, size or recipient than accepted"),
    Class.MISDELIVERED: (_V, "delivered to another address than it was accepted for"),
    Class.REPORT_MISSING: (_V, "bounced, and no node made the report that its sender is owed"),
    Class.RESUBMITTED_OUTSIDE: (_V, "given back to a recipient whose mail crossed the boundary, or bounced"),
    Class.RESUBMITTED_EARLY: (_V, "given back to a recipient to whom no node had delivered it"),
    Class.RESUBMITTED_AGAIN: (_V, "given back, though it had been given back itself"),
    Class.DELIVERED_AFTER_REMOVAL: (_V, "delivered by a node that knew that an operator had removed it"),
    Class.DAMAGED: (
        _V,
        "acknowledged; every copy is damaged, and it is set aside: not lost, never delivered",
    ),
    Class.UNEXPLAINED: (_U, "delivered more than once; the cause may be in rows that are missing"),
    Class.UNDIGESTED: (_U, "a row lacks a digest that other rows of its message have"),
    Class.UNPROVEN_LOSS: (_U, "not settled in the logs at hand, and some that may know are missing"),
    Class.OPEN: (_U, "not settled when the log ends, and no snapshot says that it is still held"),
    Class.IN_TRANSIT: (_N, "not settled yet; a snapshot says that a node holds it"),
    Class.ALLOWED_DUPLICATE: (_N, "delivered more than once, for a cause that the promise allows"),
    Class.DUPLICATE_DROPPED: (_N, "a second delivery that the mailbox server dropped"),
    Class.EXPOSED: (_N, "had one copy for a while, as the policy allows, and the log says so"),
    Class.PROMOTED: (_N, "a holder took it over, and the owner's own log agrees that it had to"),
    Class.PROMOTED_UNVERIFIED: (_N, "a holder took it over; the logs cannot tell whether it had to"),
    Class.FALSE_PROMOTION: (_N, "a holder took it over, although its owner had lost nothing"),
    Class.HOLDERS_WORD: (_N, "settled by what a holder was told; the owner's own row is not at hand"),
    Class.ORPHAN: (_N, "a copy of what the sender never got a 250 for, or one that outlived the message"),
    Class.LATE_DISCARD: (_N, "a holder let its copy go long after the message was settled"),
    Class.NEVER_ACKNOWLEDGED: (
        _N,
        "delivered, though its sender got no reply: it died before it could answer",
    ),
    Class.REPORT_UNKNOWN: (_N, "bounced without a report; its log is too old to say whether one was wanted"),
    Class.RESUBMITTED_UNVERIFIED: (_N, "given back; the logs cannot tell whether it was delivered before"),
    Class.REMOVED: (_N, "an operator removed it: an outcome, as a delivery is"),
    Class.REMOVED_TOO_LATE: (
        _N,
        "delivered by a node that had not heard of the removal: it was still pending",
    ),
    Class.SUSPENDED: (_N, "not settled yet; a node holds it, and an operator suspended it"),
    Class.SET_ASIDE: (_N, "set aside for an operator"),
    Class.IN_DOUBT: (_N, "sent while a holder could not be asked"),
}
"""Severity and meaning of each class; docs/audit.md lists them, and a test compares."""


BROKEN: dict[Class, str] = {
    Class.LOST: "lost",
    Class.PARTIALLY_LOST: "lost for some recipients",
    Class.DAMAGED: "damaged in every copy",
    Class.MISDELIVERED: "delivered to another address",
    Class.ALTERED: "altered",
    Class.DUPLICATE: "delivered twice without a cause",
    Class.REPORT_MISSING: "bounced without a report",
    Class.DELIVERED_AFTER_REMOVAL: "delivered after removal",
    Class.ONE_COPY: "acknowledged with one copy",
    Class.LATE_COPY: "acknowledged before the second copy was made",
    Class.FALSE_COPY: "said to have a copy that nobody held",
    Class.PREMATURE_DISCARD: "discarded before delivery",
    Class.VANISHED: "dropped by a node without a word",
    Class.UNKNOWN_ORIGIN: "sent without being received",
    Class.RESUBMITTED_OUTSIDE: "given back across the boundary",
    Class.RESUBMITTED_EARLY: "given back though never delivered",
    Class.RESUBMITTED_AGAIN: "given back a second time",
    Class.INCONSISTENT: "logged with rows that contradict",
}
"""What happened to the messages of each violation, worst first: it follows *was* or *were*."""

_SENDER = (
    "Ask its sender for it again: below stand the time, the sender, the recipients and the subject, and "
    "violations.csv has all."
)
_SAY = "ask again with --lost and the name of the node, if it was."
_LOGS = "Give the logs of all nodes, closed (stop the node, or wait until it closes its file), and ask again."
_DEFECT = "A correct node writes no such rows. Keep the logs of all nodes, and report a defect with them."

ADVICE: dict[Class, str] = {
    Class.LOST: f"Look for a disk that can be put back: its node delivers what it finds. {_SENDER}",
    Class.PARTIALLY_LOST: f"The recipients that are named here did not get it. {_SENDER}",
    Class.DAMAGED: "Put back a disk or a backup that has a good copy: the node mends its own from "
    "there. Else ask the sender for it again.",
    Class.MISDELIVERED: "Tell the recipient who should have got it, and who got it instead. " + _DEFECT,
    Class.ALTERED: "Compare what was delivered with what the sender has. Look at the disk and the memory of "
    "the node whose row is the first that differs.",
    Class.DUPLICATE: f"Tell the recipients, if the content calls for it. {_DEFECT}",
    Class.REPORT_MISSING: "Tell the sender that the message did not arrive: no report did.",
    Class.DELIVERED_AFTER_REMOVAL: "Whoever asked for the removal has to know that it was delivered. "
    + _DEFECT,
    Class.ONE_COPY: "Nothing is missing now; until it was delivered, one disk had the only copy. " + _DEFECT,
    Class.LATE_COPY: "Nothing is missing now; for a moment one disk had the only copy. " + _DEFECT,
    Class.FALSE_COPY: "See whether the disk of that server was replaced or set back: " + _SAY,
    Class.PREMATURE_DISCARD: f"Treat it as lost until its recipients say otherwise. {_SENDER}",
    Class.VANISHED: f"See whether the disk of that node was replaced or set back: {_SAY} {_DEFECT}",
    Class.UNKNOWN_ORIGIN: "See whether rows were added to that log, or a node uses another's name. "
    + _DEFECT,
    Class.RESUBMITTED_OUTSIDE: "People outside may have it twice: tell them, if the content calls for it. "
    + _DEFECT,
    Class.RESUBMITTED_EARLY: "See how the original ended: it is judged by itself. " + _DEFECT,
    Class.RESUBMITTED_AGAIN: "Its recipients may have it several times. " + _DEFECT,
    Class.INCONSISTENT: "See whether somebody edited the log, or two nodes use one name. " + _DEFECT,
    Class.UNEXPLAINED: _LOGS,
    Class.UNPROVEN_LOSS: "Give the logs that are named as missing; for a lost disk say --lost and the "
    "name of its node. " + _LOGS,
    Class.UNDIGESTED: "See whether somebody edited the log: without the digest nothing shows what was held.",
    Class.OPEN: f"{_LOGS} While nodes run, say --allow-open.",
}
"""What to do now about each violation, and about each thing that is not proven."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something found about one message. ``rows``: indexes of the events that prove it."""

    what: Class
    detail: str
    recipients: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()

    @property
    def severity(self) -> Severity:
        return MEANING[self.what][0]


def combined(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """One finding of each class: what was found of it on several nodes, together."""
    found: dict[Class, Finding] = {}
    for one in findings:
        known = found.get(one.what)
        found[one.what] = one if known is None else _both(known, one)
    return tuple(found.values())


def _both(one: Finding, other: Finding) -> Finding:
    detail = one.detail if other.detail in one.detail else f"{one.detail}; {other.detail}"
    recipients = tuple(sorted({*one.recipients, *other.recipients}))
    return Finding(one.what, detail, recipients, tuple(dict.fromkeys((*one.rows, *other.rows))))
