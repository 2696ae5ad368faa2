"""What is shown of what all members have in common: jobs, suspended queues, resubmit requests, the switch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NotRequired

from typing_extensions import TypedDict

from shadowrelay.shown.fold import ALL, ANY, FIRST, LEAST, NODE, SAID, SUM, Natural, Sum, SumByName, by, fold
from shadowrelay.shown.nodes import NodeAnswers, node_name, of_node
from shadowrelay.shown.rendering import At
from shadowrelay.shown.status import OfWorkers


class HavingEntry(TypedDict):
    """Whether a member has a record, since when, and why not."""

    name: Annotated[str, FIRST, At("member")]
    has: Annotated[bool, ALL]
    at: Annotated[str | None, LEAST]
    why: Annotated[str, SAID]


class RecordEntry(TypedDict):
    """Who made a record, and at which member it was changed last."""

    id: str
    operator: str
    reason: str
    revision: int
    changed_by: str
    changed_at: str


class ChangedEntry(RecordEntry):
    """A record that others may change. ``last_operator``: who did last; null if nobody did."""

    last_operator: str | None


# Jobs


class FilterEntry(TypedDict, total=False):
    """The conditions of a job: ages in seconds, sizes in octets."""

    ids: list[str]
    queue: str
    sender: str
    recipient: str
    domain: str
    subject: str
    error: str
    suspended: bool
    older: float
    younger: float
    larger: int
    smaller: int


class JobCounts(TypedDict):
    """How far a job is, in messages."""

    did: Sum
    late: Sum
    waiting: Sum
    pending: Sum


class JobNode(NodeAnswers, JobCounts):
    """How far a node is with a job. ``after``: the id that it has come to."""

    has: Annotated[bool, ALL]
    done: Annotated[bool, ALL]
    closed: Annotated[bool, ALL]
    after: Annotated[str | None, FIRST]


def job_nodes(entries: Sequence[JobNode]) -> list[JobNode]:
    """One entry for each node: how far its workers are, together."""
    nodes = dict.fromkeys(node_name(one["node"]) for one in entries)
    return [fold(JobNode, of_node(entries, node), node) for node in nodes]


class JobMade(ChangedEntry):
    """A job without how far it is."""

    verb: str
    filter: FilterEntry
    made_by: str
    made_at: str
    until: str | None
    with_report: bool
    state: str


class JobEntry(JobMade, JobCounts):
    """A job, and how far each member is."""

    phase: str
    nodes: list[JobNode]


class JobsPage(TypedDict):
    """A page of jobs."""

    jobs: list[JobEntry]
    next: str | None


class SampledRecipient(TypedDict):
    """A recipient of a message in a preview."""

    address: str
    next_hop: str
    last_reply: str


class SampledMessage(TypedDict):
    """A message that a filter means. ``node``: where it is; its own node does not say so."""

    node: NotRequired[str]
    id: str
    received_at: str
    sender: str
    size: Natural
    subject: str
    subject_header: NotRequired[str]
    message_id: str
    suspended: str | None
    recipients: list[SampledRecipient]


class MailCounts(TypedDict):
    """How much mail is meant."""

    messages: Sum
    recipients: Sum
    octets: Sum


class JobPreviewNode(NodeAnswers, MailCounts):
    """What one node counts."""

    sample: list[SampledMessage]


class JobPreview(MailCounts):
    """What a job would be about. ``whole``: all nodes answered."""

    filter: FilterEntry
    whole: bool
    nodes: list[JobPreviewNode]
    sample: list[SampledMessage]


# Suspended queues


class SuspendedAt(NodeAnswers):
    """Whether a node has the record, and how many attempts are under way there."""

    has: bool
    sending: Natural | None


class SuspensionRecord(RecordEntry):
    """A suspended queue. ``pending``: a member has not heard of it, or still sends."""

    queue: Annotated[str, At("next_hop")]
    suspended: bool
    pending: bool
    until: str | None
    spans: list[list[str]]
    nodes: list[SuspendedAt]


class SuspensionsPage(TypedDict):
    """A page of suspended queues."""

    suspensions: list[SuspensionRecord]
    next: str | None


# Resubmit requests


class SelectorEntry(TypedDict):
    """What a resubmit request is about."""

    since: str
    until: str
    to: Annotated[list[str], At("next_hops")]
    sender: str | None
    recipient: str | None
    message_id: str | None
    network_message_id: str | None


class ResubmitMade(ChangedEntry):
    """A resubmit request without its progress."""

    number: int
    state: str
    made_by: str
    made_at: str
    selector: SelectorEntry
    gone: list[str]


class ResubmitCounts(TypedDict):
    """How far a request is, in messages. ``left``: null if no node has said so."""

    made: Sum
    skipped: SumByName
    left: Annotated[Natural | None, SUM]


class ResubmitProgress(ResubmitCounts):
    """How far a node is with the mail of one owner."""

    node: str
    owner: str
    rate: float | None
    reached: Annotated[str | None, At("place.at")]
    done: bool


class ResubmitEntry(ResubmitCounts):
    """A request, and how far each node is."""

    request: ResubmitMade
    open: bool
    done: bool
    progress: list[ResubmitProgress]
    members: Annotated[list[HavingEntry], At("having")]


class ResubmitsPage(TypedDict):
    """A page of requests."""

    requests: list[ResubmitEntry]
    next: str | None


class ResubmitChanged(TypedDict):
    """A request as it is now."""

    request: ResubmitMade


class NodeEstimate(MailCounts):
    """What a node would make again."""

    node: str
    refused: dict[str, Natural]
    reaches_back_to: str | None


class ShareEstimate(MailCounts):
    """What holders have of one owner. ``at_most``: some may be counted twice."""

    owner: str
    at_most: Annotated[bool, At("most")]
    holders: dict[str, MailCounts]


class HeldEstimate(ShareEstimate):
    """What holders would make for an owner."""

    why: str


class UnreachableEstimate(TypedDict):
    """A member that cannot be asked, and what others hold for it."""

    member: str
    since: Annotated[str | None, At("away.since")]
    why: Annotated[str, At("away.why")]
    answered_at: str | None
    answered_in: float | None
    held: ShareEstimate


class ResubmitPreview(MailCounts):
    """What a request would do."""

    at_most: bool
    nodes: list[NodeEstimate]
    held: list[HeldEstimate]
    unreachable: list[UnreachableEstimate]
    refused: dict[str, Natural]
    warnings: list[str]


# The switch of shadow redundancy, settings of all members, and members


class SwitchEntry(TypedDict):
    """The switch as an operator set it."""

    on: Annotated[bool, At("value")]
    revision: int
    operator: str
    reason: str
    changed_by: str
    changed_at: str


class RedundancyEntry(OfWorkers):
    """The switch of shadow redundancy. ``overruled``: the settings file says otherwise."""

    name: Annotated[str, NODE]
    on: Annotated[bool, ALL, At("redundancy")]
    settings_file: Annotated[bool, ALL, At("file")]
    overruled: Annotated[bool, ANY]
    queued: Sum
    exposed: Sum
    held: Sum
    switch: Annotated[SwitchEntry | None, FIRST]
    members: Annotated[list[HavingEntry], by("name")]


class SetEntry(TypedDict):
    """The last change of a setting for all members. ``value``: null if it was unset."""

    value: str | int | bool | None
    revision: int
    operator: str
    reason: str
    changed_by: str
    changed_at: str


class SettingEntry(TypedDict):
    """A setting that may be set for all members. ``value``: the one in force on the node that was asked.
    ``pending``: of a span, another value may be in force on a member, so the longest one counts.
    """

    key: str
    value: str | int | bool
    settings_file: str | int | bool
    pending: bool
    set: SetEntry | None
    members: Annotated[list[HavingEntry], by("name")]


class SettingsAnswer(TypedDict):
    """The settings that may be set for all members."""

    name: str
    settings: list[SettingEntry]


# ``from`` is a keyword.
MemberEntry = TypedDict(
    "MemberEntry",
    {"name": str, "address": str, "site": str, "host": str, "from": Annotated[str, At("source")]},
)


class MembersAnswer(TypedDict):
    """The members, and where a node has each from."""

    name: str
    members: Sequence[MemberEntry]


class AnnouncedAnswer(TypedDict):
    """A member that the authority announced. ``new``: it was not known."""

    name: str
    new: bool


class RetiredAnswer(TypedDict):
    """What became of a member that is gone for good. ``already``: it was said before."""

    name: str
    retired: bool
    already: bool
    promoted: Natural
    copies_lost: Natural
    events_dropped: Natural
    did: list[str]
    to_do: str
