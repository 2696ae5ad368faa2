"""What is shown of queues: the backlog by next hop, copies for members, and mail kept for hops."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NotRequired

from typing_extensions import TypedDict

from shadowrelay.shown.fold import (
    FIRST,
    MOST,
    OLDEST,
    SAID,
    Fields,
    Folding,
    Natural,
    Newest,
    Oldest,
    Rule,
    Sum,
    by,
    highest,
    queue_of,
    worst,
)
from shadowrelay.shown.rendering import At

MOST_ATTEMPTS = 20


_STATES = worst("suspended", "resting", "active", "ready", "retry", "asking")


def _hinders(status: str, queue: Fields) -> Any:
    """The rank of a state. A queue whose messages are suspended one by one may go on elsewhere."""
    assert _STATES.rank is not None
    each_alone = status == "suspended" and not queue.get("suspension")
    return (each_alone, _STATES.rank(status, queue))


def _waits_longest(_: Sequence[str], at: Folding) -> str:
    waiting = [one for one in at.answers if one["awaits"]]
    return str(min(waiting, key=lambda one: one["awaits_since"])["awaits"]) if waiting else ""


def _newest(values: Sequence[Sequence[dict[str, Any]]], _: Folding) -> list[dict[str, Any]]:
    every = (attempt for one in values for attempt in one)
    return sorted(every, key=lambda one: str(one["at"]), reverse=True)[:MOST_ATTEMPTS]


class SuspensionEntry(TypedDict):
    """A suspension that is in force."""

    operator: str
    reason: str
    since: Annotated[str, At("changed_at")]
    until: str | None


class HostEntry(TypedDict):
    """One host of a next hop."""

    host: Annotated[str, FIRST]
    route: Annotated[str, FIRST]
    group: Annotated[int, FIRST]
    preference: Annotated[int, FIRST]
    weight: Annotated[int, FIRST]
    sessions: Sum
    failures: Annotated[Natural, highest()]
    last_error: Annotated[str, FIRST, At("error")]
    rests_until: Newest


def _latest_reply(_: Sequence[str], at: Folding) -> str:
    return str(max(at.answers, key=lambda one: str(one.get("last_reply_at") or ""))["last_reply"])


class NextHopEntry(TypedDict):
    """What is known of a next hop, whether mail waits for it or not. ``rate``: messages that it took in the
    last minute. ``last_reply``: of the last attempt.
    """

    sessions: Sum
    places: Sum
    failures: Annotated[Natural, MOST]
    failing_since: Oldest
    rests_until: Newest
    awaits: Annotated[str, Rule(_waits_longest)]
    awaits_since: Oldest
    rate: Sum
    last_reply: Annotated[str, Rule(_latest_reply)]
    last_reply_at: Newest
    hosts: Annotated[list[HostEntry], by("group", "route", "host")]


class QueueEntry(NextHopEntry):
    """The backlog for one next hop. What hinders it comes first, then what moves it."""

    identity: Annotated[str, queue_of("next_hop")]
    next_hop: Annotated[str, FIRST]
    status: Annotated[str, Rule(FIRST.of, _hinders)]
    messages: Sum
    waiting: Sum
    recipients: Sum
    active: Sum
    asking: Sum
    exposed: Sum
    unread: Sum
    oldest: Annotated[str, OLDEST]
    next_attempt: Oldest
    overdue_since: Oldest
    last_error: Annotated[str, SAID]
    why: Annotated[str, SAID]
    suspension: Annotated[SuspensionEntry | None, SAID]


class HopShadowQueueEntry(TypedDict):
    """Mail that a hop took and has not delivered yet. It is no backlog."""

    identity: Annotated[str, queue_of("next_hop", "Shadow\\")]
    next_hop: Annotated[str, FIRST, At("hop")]
    messages: Sum
    oldest: Oldest
    state: Annotated[str, worst("given_up", "failing", "untried", "reachable")]
    failures: Annotated[Natural, MOST]
    error: Annotated[str, FIRST]


class HeldForHop(TypedDict):
    """The copies held for a member that are for one next hop."""

    next_hop: Annotated[str, FIRST]
    messages: Sum
    recipients: Sum


class ShadowQueueEntry(TypedDict):
    """Copies held for another member, its owner."""

    identity: Annotated[str, queue_of("primary", "Shadow\\")]
    primary: Annotated[str, FIRST]
    primary_state: Annotated[str, worst("unreachable", "not_configured", "untried", "reachable")]
    messages: Sum
    oldest: Annotated[str, OLDEST]
    next_hops: Annotated[list[HeldForHop], by("next_hop")]
    next: Annotated[str, FIRST]


class QueuesLook(TypedDict):
    """All queues of a node."""

    queues: Annotated[list[QueueEntry], by("next_hop")]
    hop_shadow_queues: Annotated[list[HopShadowQueueEntry], by("next_hop")]
    shadow_queues: Annotated[list[ShadowQueueEntry], by("primary", nodes=True)]


class AttemptEntry(TypedDict):
    """An attempt to deliver a message lately."""

    at: str
    message: str
    host: str
    outcome: str
    reply: str
    seconds: float


_VARIES = re.compile(r"\w*\d\w*")
"""A word with a digit: the number of a message, a time, or a code, in a reply."""


def alike(attempts: Iterable[AttemptEntry]) -> list[tuple[AttemptEntry, int, float]]:
    """Attempts with the same end at the same host as one: the last, how many, and what the longest took."""
    found: dict[tuple[str, ...], list[AttemptEntry]] = {}
    for one in attempts:
        key = (one["host"], one["outcome"], one["reply"][:3], _VARIES.sub("#", one["reply"]))
        found.setdefault(key, []).append(one)
    return [(some[0], len(some), max(one["seconds"] for one in some)) for some in found.values()]


class HopLook(NextHopEntry):
    """All that a node knows of one next hop. ``queue``: None if it has no mail for it."""

    queue: QueueEntry | None
    error: Annotated[str, SAID]
    suspension: Annotated[SuspensionEntry | None, SAID]
    attempts: Annotated[list[AttemptEntry], Rule(_newest)]


class QueuesPage(TypedDict):
    """The queues of a node, page by page. ``silent``: why the queues of a worker are missing."""

    queues: list[QueueEntry]
    hop_shadow_queues: list[HopShadowQueueEntry]
    next: str | None
    silent: NotRequired[list[str]]


class ShadowQueuesPage(TypedDict):
    """The copies that a node holds for others, page by page."""

    shadow_queues: list[ShadowQueueEntry]
    next: str | None
    silent: NotRequired[list[str]]
