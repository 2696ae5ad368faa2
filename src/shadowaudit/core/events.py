"""The rows of a tracking log as the audit sees them: kinds of events, and one event about one message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shadowaudit.core.text import number_in, numbers_in


class Kind(StrEnum):
    """The events that say where a message is. The audit reads and counts all others."""

    RECEIVE = "RECEIVE"
    DSN = "DSN"
    HAREDIRECT = "HAREDIRECT"
    HAREDIRECTFAIL = "HAREDIRECTFAIL"
    HARECEIVE = "HARECEIVE"
    HADISCARD = "HADISCARD"
    HADAMAGE = "HADAMAGE"
    HARESTORE = "HARESTORE"
    RESUBMIT = "RESUBMIT"
    TRANSFER = "TRANSFER"
    SEND = "SEND"
    SENDEXTERNAL = "SENDEXTERNAL"
    DELIVER = "DELIVER"
    DUPLICATEDELIVER = "DUPLICATEDELIVER"
    DUPLICATERECEIVE = "DUPLICATERECEIVE"
    FAIL = "FAIL"
    REMOVE = "REMOVE"
    DEFER = "DEFER"
    SUSPEND = "SUSPEND"
    RESUME = "RESUME"
    RETRY = "RETRY"
    LOAD = "LOAD"
    EXPAND = "EXPAND"
    RESOLVE = "RESOLVE"
    REDIRECT = "REDIRECT"
    DROP = "DROP"
    EXPIRE = "EXPIRE"
    POISONMESSAGE = "POISONMESSAGE"
    PROCESS = "PROCESS"
    BACKPRESSURE = "BACKPRESSURE"
    OTHER = "OTHER"
    REPORT = "DSN about it"
    """No event-id: the row DSN of a report, among the rows of the message that it reports on."""
    RESUBMITTED = "RESUBMIT as new"
    """No event-id: RESUBMIT of Safety Net, which begins a message. Other rows RESUBMIT are promotions."""
    RESUBMISSION = "RESUBMIT of it"
    """No event-id: that row among the rows of the message that is given back."""
    SENT_AGAIN = "RESUBMIT past a hop"
    """No event-id: RESUBMIT of what a hop beyond the boundary failed to deliver. It begins a message."""
    SENT_PAST = "RESUBMIT of it past a hop"
    """No event-id: that row among the rows of the message that the hop had taken."""
    JOURNAL = "RECEIVE as copy"
    """No event-id: RECEIVE of a journal copy. No sender was answered."""
    MEMBERS = "RECEIVE to members"
    """No event-id: RECEIVE of the message to the members of a list. No sender was answered."""
    MADE = "RECEIVE to its members"
    """No event-id: that row among the rows of the message to the list."""
    KNOWN = "it is here"
    """No event-id: some row of a report, or of the message to members, among the rows of what led to it."""


DELIVERIES = frozenset({Kind.SEND, Kind.SENDEXTERNAL, Kind.DELIVER})
"""The next hop took responsibility: a second one of these is a duplicate."""

SENT = DELIVERIES | {Kind.DUPLICATEDELIVER}
"""The message was sent, and arrived: a mailbox server that had it already dropped it, or kept it."""

FINALS = SENT | {Kind.FAIL, Kind.REMOVE, Kind.EXPAND}
"""The recipient is settled: nobody owes it anything any more. A list is, when its members are owed."""

ORIGINS = frozenset({Kind.RECEIVE, Kind.DSN, Kind.RESUBMITTED, Kind.SENT_AGAIN, Kind.JOURNAL, Kind.MEMBERS})
"""The message begins: accepted from a sender, or made here."""

OPERATED = frozenset({Kind.RETRY, Kind.SUSPEND, Kind.RESUME, Kind.REMOVE, Kind.FAIL})
"""What an operator's job does. Done to a queue, the row is about no message."""

ABOUT = frozenset({Kind.REPORT, Kind.RESUBMISSION, Kind.SENT_PAST, Kind.MADE, Kind.KNOWN})
"""Rows of another message, which name this one."""

REDUNDANCY = "REDUNDANCY"
"""Source: of HADISCARD, that a hop beyond the boundary said it."""

ADMIN = "ADMIN"
"""Source of what an operator did."""

SAFETY_NET, AGENT, ROUTING = "SAFETYNET", "AGENT", "ROUTING"
"""Sources: RESUBMIT of the first begins a message, RECEIVE of the second is a journal copy, and RECEIVE of
the third the message to the members of a list.
"""

PAST_A_HOP = "/"
"""Stands in the reference of RESUBMIT between a message and the database of the hop that had taken it."""

COMPARED = ORIGINS | FINALS | {Kind.HARECEIVE, Kind.HARESTORE, Kind.HADISCARD}
"""Rows that say which content and envelope they are about, and how many octets."""

KNOWN = frozenset(
    {
        "AGENTINFO", "SUBMIT", "SUBMITDEFER", "SUBMITFAIL", "NOTIFYMAPI", "THROTTLE", "INITMESSAGECREATED",
        "MODERATORAPPROVE", "MODERATORREJECT", "MODERATORSALLNDR", "MODERATORSEXPIRE", "MODERATIONEXPIRE",
        "BADMAIL", "DELIVERFAIL", "DUPLICATEEXPAND", "DUPLICATEREDIRECT", "JOURNAL", "JOURNALREPORT",
        "MAPISUBMITFAIL", "ORARLOOP", "POISON", "PREPROCESSED", "SUPPRESSED", "PROCESSMEETINGMESSAGE",
        "MEETINGMESSAGEDELETED", "RESUBMITDEFER", "RESUBMITFAIL", "INITMESSAGE",
    }
)  # fmt: skip
"""Exchange's other events: they say nothing about where a message is."""

SAYS_WHO_ASKED = "01.00.0001.000"
"""From this schema-version on, FAIL names the recipients for which no report was asked (``S:NoReport``)."""

FIRST_SCHEMA = "01.00.0000.000"

SCHEMAS = frozenset({FIRST_SCHEMA, SAYS_WHO_ASKED})
"""Of our logs: those whose rows the audit knows the meaning of."""

STOP = "stop"
"""When the snapshot was taken that ends a log."""

DISCARDED = "ExplicitlyDiscarded"
SETTLED_ELSEWHERE = frozenset({DISCARDED, "DeliveredElsewhere"})
"""Reasons of HADISCARD that say: delivered, and the owner told us so."""

UNACKNOWLEDGED = frozenset({"Orphaned", "Rejected", "Revoked"})
"""Reasons of HADISCARD that say: the sender never got a 250 for this copy."""

DISCARDS = SETTLED_ELSEWHERE | UNACKNOWLEDGED | {"Superseded", "Expired"}
"""All reasons of HADISCARD."""


_VALUES: Mapping[str, frozenset[str]] = {
    "Damaged": frozenset({"content", "rows"}),
    "InDoubt": frozenset({"true"}),
    "Replication": frozenset({"Failed", "Unknown"}),
    "Role": frozenset({"primary", "shadow"}),
    "Taken": frozenset({"start", "hourly", STOP}),
}
"""Entries of custom-data with few values. A row with another value is unreadable."""


def kind_of(event_id: str) -> Kind:
    """The kind of that event-id. OTHER if the event does not say where a message is."""
    try:
        return Kind(event_id)
    except ValueError:
        return Kind.OTHER


def kind_by(kind: Kind, source: str, reference: str) -> Kind:
    """The kind of a row of ours with that event, source and reference."""
    if kind is Kind.RESUBMIT and source == SAFETY_NET:
        return Kind.RESUBMITTED
    if kind is Kind.RESUBMIT and PAST_A_HOP in reference:
        return Kind.SENT_AGAIN
    if kind is Kind.RECEIVE and reference:
        return {AGENT: Kind.JOURNAL, ROUTING: Kind.MEMBERS}.get(source, kind)
    return kind


def is_derived(message: str) -> bool:
    """Was that id derived (a UUID of version 8), and not drawn?"""
    return message[14:15] == "8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One row about one message. Order within a database is (incarnation's place, sequence)."""

    node: str
    database: str
    boot: str
    sequence: int
    at: int  # milliseconds since 1970, by the node's own clock
    kind: Kind
    epoch: int = 1
    recipients: tuple[int, ...] = ()
    reason: str = ""  # source-context up to its first semicolon
    peer: str = ""  # the other side of the event
    reference: str = ""
    source: str = ""
    entries: Mapping[str, str] = field(default_factory=dict)  # custom-data
    addresses: tuple[str, ...] = ()
    related: tuple[str, ...] = ()  # Exchange's: what these addresses were before
    size: int | None = None  # octets of the content
    sender: str = ""  # ``<>`` for the null reverse-path
    message: str = ""  # the message's id
    subject: str = ""
    context: str = ""  # the whole source-context
    status: tuple[str, ...] = ()  # recipient-status
    schema: str = SAYS_WHO_ASKED  # schema-version
    line: str = ""  # the row itself: evidence

    @property
    def operated(self) -> bool:
        """Did an operator's job do it? RESUME without a job releases what was set aside."""
        return self.source == ADMIN and "Job" in self.entries

    @property
    def why(self) -> str:
        """Who asked for what the row tells, and for which reason. Empty if no operator did."""
        by, reason = self.entries.get("Operator", ""), self.entries.get("Reason", "")
        return f"by {by}{f': {reason}' if reason else ''}" if by and self.source == ADMIN else ""

    @property
    def teller(self) -> tuple[str, tuple[str, int]]:
        """Of HADISCARD: the database whose word it was, and its mark then: in which incarnation its log had
        got to which row. Or "" and such a mark.
        """
        boot, _, told = self.reference.rpartition(":")
        database, row = self.entries.get("TellerDb", ""), number_in(told)
        return (database, (boot, row)) if database and row >= 0 else ("", ("", -1))

    @property
    def by_a_hop(self) -> bool:
        """Is it a word of a hop beyond the boundary?"""
        return self.kind is Kind.HADISCARD and self.source == REDUNDANCY

    @property
    def beside(self) -> bool:
        """Is it about a copy on the machine of its owner?"""
        return is_beside(self.entries)


def is_beside(entries: Mapping[str, str]) -> bool:
    """Do owner and holder stand on one machine? What is lost with it is lost on both: no second copy."""
    host = entries.get("Host", "")
    return bool(host) and host in (entries.get("ShadowHost"), entries.get("OwnerHost"))


def listed(text: str) -> tuple[str, ...]:
    """The members of a list column: joined with ``;``, one that holds ``;`` in single quotes."""
    if "'" not in text:
        return tuple(text.split(";")) if text else ()
    members: list[str] = []
    at = 0
    while at <= len(text):
        end = -1
        if text.startswith("'", at):
            end = text.find("';", at + 1)
            if end < 0 and text.endswith("'") and len(text) > at + 1:
                end = len(text) - 1
        if end >= 0 and ";" in text[at + 1 : end]:
            members.append(text[at + 1 : end])
            at = end + 2
        else:
            end = text.find(";", at)
            end = len(text) if end < 0 else end
            members.append(text[at:end])
            at = end + 1
    return tuple(members)


def entries_of(custom_data: str) -> dict[str, str]:
    """Custom-data by name, without types; of several with one name the first counts."""
    found: dict[str, str] = {}
    for entry in custom_data.split(";"):
        name, equals, text = entry.partition("=")
        if equals:
            found.setdefault(name.partition(":")[2] or name, text)
    return found


def numbers_of(entries: Mapping[str, str]) -> tuple[int, ...] | None:
    """The numbers of recipients in custom-data of ours. None if an entry that counts has no valid value."""
    if number_in(entries.get("Epoch", "1")) < 1:
        return None
    if any(entries.get(name) not in (None, *values) for name, values in _VALUES.items()):
        return None
    return numbers_in(entries.get("Recipients", ""))


def closes(entries: Mapping[str, str]) -> bool:
    """Does a row LOAD with these entries close a snapshot? Then it is about no message."""
    return "Count" in entries


def about_none(kind: Kind, entries: Mapping[str, str]) -> bool:
    """Is a row of that kind with these entries about no message? It closes a snapshot, is a queue's act, or
    tells of the node.
    """
    if kind is Kind.LOAD:
        return closes(entries)
    return kind is Kind.BACKPRESSURE or (kind in OPERATED and "Queue" in entries)


def canonical(address: str) -> str:
    """As two addresses that mean the same mailbox are equal: the domain in lower case."""
    local, at, domain = address.rpartition("@")
    return local + at + domain.lower()
