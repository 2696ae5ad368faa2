"""What is shown of messages: in lists, one by one, over all nodes, and in Safety Net."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, NotRequired, TypeAlias

from typing_extensions import TypedDict

from shadowrelay.shown.fold import Natural
from shadowrelay.shown.nodes import NodeAnswers
from shadowrelay.shown.rendering import At


class DigestsEntry(TypedDict):
    """``late``: not made when the message came."""

    content: str | None
    envelope: str
    late: bool


class SettledNumber(TypedDict):
    """A recipient of a message whose rows are damaged."""

    number: int
    status: str


class MessageBrief(TypedDict):
    """What is known of a message at once. If its rows are damaged, hardly anything is: null.

    ``worker``: where it is, at a node of several. ``subject``: with encoded words decoded;
    ``subject_header``: as it came.
    """

    id: str
    state: str
    epoch: int | None
    owner: str | None
    exposed: bool | None
    confirmation: str | None
    sender: Annotated[str | None, At("envelope.sender")]
    subject: Annotated[str | None, At("envelope.subject_read")]
    subject_header: Annotated[str | None, At("envelope.subject")]
    size: Annotated[Natural | None, At("envelope.size")]
    received_at: Annotated[str | None, At("came_at")]
    settled_at: str | None
    suspended: Annotated[str | None, At("suspended_until")]
    next_hops: list[str] | None
    damage: str | None
    digests: DigestsEntry | None
    found_at: NotRequired[str | None]
    why: NotRequired[str | None]
    settled: NotRequired[list[SettledNumber]]
    worker: NotRequired[str]


class MessageSummary(MessageBrief):
    """A message in a list. ``recipients``: how many; ``addresses``: the first of them; ``holders``: their
    names.
    """

    recipients: Natural | None
    addresses: NotRequired[list[str]]
    unsettled: NotRequired[Natural]
    holders: list[str] | None


class MessagesPage(TypedDict):
    """``silent``: of a node of several workers, why a list is not whole."""

    messages: list[MessageSummary]
    next: str | None
    silent: NotRequired[list[str]]


def together(pages: Mapping[str, MessagesPage], limit: int) -> MessagesPage:
    """The pages of the workers of a node as one, in the order of the ids, each message with its worker."""
    every: list[Any] = sorted(
        ({**item, "worker": worker} for worker, page in pages.items() for item in page["messages"]),
        key=lambda item: str(item["id"]),
    )
    # No id is on two pages: a page begins after an id.
    shown = [one for one in every if one["id"] <= every[limit - 1]["id"]] if len(every) > limit else every
    more = len(shown) < len(every) or any(page["next"] for page in pages.values())
    return {"messages": shown, "next": shown[-1]["id"] if more else None}


class OutcomeEntry(TypedDict):
    """What a node remembers of a message that is settled: the numbers of recipients."""

    epoch: int
    settled: Annotated[list[int], At("delivered")]
    kept_until: NotRequired[Annotated[str, At("keep_until")]]


class RevokedEntry(TypedDict):
    """What a node remembers of a copy that was revoked."""

    epoch: int
    rank: int
    kept_until: NotRequired[Annotated[str, At("keep_until")]]


class HandedOver(TypedDict):
    """The hop beyond the boundary that handed a message over, and what it calls it."""

    name: Annotated[str, At("peer")]
    database_id: str
    id: Annotated[str, At("their_id")]
    numbers: list[int]


class EnvelopeEntry(TypedDict):
    """The envelope of a message. ``tls``: what its sender wants of TLS, ``required`` or ``waived``."""

    sender: str
    message_id: str
    subject: Annotated[str, At("subject_read")]
    subject_header: Annotated[str, At("subject")]
    size: Natural
    body: str
    smtputf8: bool
    ret: str | None
    envid: str | None
    tls: str | None


class UnreadEntry(TypedDict):
    """A next hop that took the content, and whose answer could not be read."""

    tries: Natural
    host: str


class RecipientEntry(TypedDict):
    """A recipient, and what becomes of it."""

    number: int
    address: str
    next_hop: str
    status: str
    doing: str
    why: str
    attempts: Natural
    next_attempt: str | None
    last_reply: str
    suspended: str | None
    delay_notified: bool
    unread: UnreadEntry | None
    notify: list[str]
    orcpt: str | None
    report: str | None
    journal: str | None


class HolderEntry(TypedDict):
    """A member that holds a copy, or did."""

    name: str
    state: str
    rank: int
    database_id: str
    mark: str | None


class KeptForHop(TypedDict):
    """A hop for which a message is kept until it has delivered."""

    name: Annotated[str, At("hop")]
    database_id: str
    mark: str | None
    recipients: list[int]
    since: str


class RefusalEntry(TypedDict):
    """A member that refused the copy of an exposed message."""

    name: Annotated[str, At("member")]
    reply: str
    at: str


class RememberedMessage(TypedDict):
    """What a node remembers of a message, with a copy of it or without. ``waits_for``, ``found_at``, ``why``:
    of one that is damaged. ``node``: which one says so, if all were asked.
    """

    id: str
    node: NotRequired[str]
    outcome: OutcomeEntry | None
    revoked: Annotated[RevokedEntry | None, At("tombstone")]
    handed_over_by: Annotated[HandedOver | None, At("handed")]
    crashes: list[str]
    waits_for: NotRequired[list[str]]
    found_at: NotRequired[str | None]
    why: NotRequired[str | None]


class GoneMessage(RememberedMessage):
    """A message of which a node has no copy."""

    state: str
    damage: str | None


class DamagedMessage(RememberedMessage, MessageSummary):
    """A message whose rows are damaged."""


class MessageEntry(RememberedMessage, MessageBrief):
    """All that a node knows of a message."""

    unsettled: Natural
    role: str
    stage: str
    rank: int
    owner_database: str
    offered_in: str
    former_owner: str | None
    pending: str | None
    confirm_since: str | None
    check_at: str | None
    ranks_given: Natural
    reports_on: str | None
    content_of: str | None
    request: str | None
    envelope: EnvelopeEntry
    recipients: list[RecipientEntry]
    holders: list[HolderEntry]
    hops: list[KeptForHop]
    refusals: list[RefusalEntry]


MessageAnswer: TypeAlias = MessageEntry | DamagedMessage | GoneMessage


class WaitingEntry(TypedDict):
    """What a message waits for at a node: its first recipient that is not settled tells. ``doing``: as of a
    recipient. ``reason``: why it waits, or the last reply. ``attempts``: of the one that was tried most.
    """

    doing: str | None
    reason: str | None
    attempts: Natural | None
    next_attempt: str | None


class FoundCopy(WaitingEntry):
    """What one node has of a message that was found, or remembers of it."""

    node: str
    state: str
    role: str | None
    stage: str | None
    epoch: int | None
    rank: int | None
    owner: str | None
    exposed: bool | None
    confirmation: str | None
    unsettled: Natural | None
    suspended: str | None
    statuses: dict[str, Natural] | None
    settled_at: str | None
    holders: list[str] | None
    damage: str | None
    outcome: OutcomeEntry | None
    revoked: RevokedEntry | None


class MessageFacts(TypedDict):
    """What is alike at all nodes that have a message."""

    id: str
    sender: str | None
    subject: str | None
    subject_header: NotRequired[str | None]
    message_id: str | None
    size: Natural | None
    received_at: str | None
    recipients: Natural | None
    addresses: list[str] | None
    next_hops: list[str] | None


class FoundMessage(MessageFacts):
    """A message once, with its copies at the nodes."""

    copies: list[FoundCopy]


class FoundHere(TypedDict):
    """What a node must tell of each message that it finds; it tells more, as far as it knows."""

    id: str
    role: str


class FindLook(TypedDict):
    """What a node finds."""

    messages: list[FoundHere]


class ListedMessage(FoundCopy, MessageFacts):
    """A message in a list over all nodes, as the node tells that has it. ``place``: in the list."""

    place: list[int | str]


class NodeListed(NodeAnswers):
    """``total``: how many messages of the list it has."""

    total: Natural | None


class ListAnswer(TypedDict):
    """A page of the messages of all nodes in a state, sorted. ``total``: of all nodes that answer.
    ``next``, ``previous``: give them as ``after`` and ``before``.
    """

    node: str
    total: Natural
    messages: list[ListedMessage]
    nodes: list[NodeListed]
    next: str | None
    previous: str | None


class NodeSearched(NodeAnswers):
    """``until``: all ids from this one on were looked at; null: all."""

    until: str | None


class FoundAnswer(TypedDict):
    """A page of the messages that a query finds on any node."""

    node: str
    query: str
    by: str | None
    messages: list[FoundMessage]
    nodes: list[NodeSearched]
    next: str | None


class TraceEvent(TypedDict):
    """A row of a node's tracking log."""

    node: str
    at: str
    sequence: int
    incarnation: str
    database_id: str
    event: str
    source: str
    context: str
    server: str
    client: str
    recipients: list[str]
    recipient_count: Natural
    status: str
    custom: dict[str, str]
    columns: dict[str, str]


class TraceLook(TypedDict):
    """What a node's tracking log has of a message."""

    events: list[TraceEvent]


class TraceAnswer(TypedDict):
    """The life of a message over all nodes."""

    node: str
    id: str
    events: list[TraceEvent]
    nodes: list[NodeAnswers]
    next: str | None


class KeptRecipient(TypedDict):
    """A recipient of a message in Safety Net."""

    address: str
    next_hop: str
    status: str


class KeptEntry(TypedDict):
    """A message in Safety Net. ``place``: in the list, as ``next`` has it.

    ``worker``: where it is, at a node of several.
    """

    id: str
    place: str
    worker: NotRequired[str]
    settled_at: str
    role: str
    owner: str
    sender: str
    message_id: str
    subject: Annotated[str, At("subject_read")]
    subject_header: NotRequired[Annotated[str, At("subject")]]
    size: Natural
    request: str | None
    damaged: bool
    recipients: list[KeptRecipient]


class SafetyNetPage(TypedDict):
    """``silent``: of a node of several workers, why a list is not whole."""

    messages: list[KeptEntry]
    next: str | None
    silent: NotRequired[list[str]]


def kept_together(pages: Mapping[str, SafetyNetPage], limit: int) -> SafetyNetPage:
    """The same, of Safety Net: in the order of the places."""
    every: list[Any] = sorted(
        ({**item, "worker": worker} for worker, page in pages.items() for item in page["messages"]),
        key=lambda item: _place(item["place"]),
    )
    more = len(every) > limit or any(page["next"] for page in pages.values())
    shown = every[:limit]
    return {"messages": shown, "next": shown[-1]["place"] if more else None}


def _place(text: str) -> tuple[datetime, str]:
    at, _, id_ = text.partition("/")
    return datetime.fromisoformat(at), id_


class DidAnswer(TypedDict):
    """What was done to a message."""

    id: str
    did: str
