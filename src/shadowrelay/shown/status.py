"""What is shown of a node: its status, its members, and what an operator has it do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Annotated, Any, Literal, NotRequired, cast

from typing_extensions import TypedDict

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.members.pace import Amount, share
from shadowrelay.core.pressure import PERCENT
from shadowrelay.core.workers import node_of, number_of, workers_called
from shadowrelay.shown.fold import (
    ALL_ASKED,
    ALONE,
    EACH_ONCE,
    FIRST,
    LAST_OF_ALL,
    LEAST,
    MODEL_OF_ALL,
    MOST,
    NEWEST,
    NODE,
    OLDEST,
    SAID,
    SORTED_UNION,
    UNION,
    Anywhere,
    Everywhere,
    Fields,
    Folding,
    Natural,
    Newest,
    Oldest,
    Rule,
    Sum,
    SumByName,
    by,
    fold,
    worst,
)
from shadowrelay.shown.reading import NOT_TOLD_NUMBER, LikeItself, is_told
from shadowrelay.shown.rendering import At

STATES = ("unreachable", "not_configured", "untried", "reachable")
"""Of a member, the worst first."""


# Rules of their own


def _alike(values: Sequence[str], at: Folding) -> str:
    """What all workers say alike, or each that says something, with its number."""
    if len(set(values)) == 1:
        return values[0]
    told = zip(at.answers, values, strict=True)
    return "; ".join(f"{workers_called([one['name']])}: {text}" for one, text in told if text)


def _not_ready(values: Sequence[str], at: Folding) -> str:
    return "" if any(one["ready"] for one in at.answers) else _alike(values, at)


def _warned(values: Sequence[str], at: Folding) -> str:
    """What workers warn of; and of a node that takes mail, which of its workers do not."""
    ready = any(one["ready"] for one in at.answers)
    idle = [
        f"{workers_called([one['name']])} takes no mail: {one['not_ready_because']}"
        for one in at.answers
        if ready and not one["ready"]
    ]
    return "; ".join(filter(None, (_alike(values, at), *idle)))


_AMOUNTS = ("messages", "messages_of", "octets", "octets_of")


def _progress(values: Sequence[float | None], at: Folding) -> float | None:
    """The share of the work of all: messages and octets, as each of them counts it."""
    if all(one is None for one in values):
        return None
    if not all(is_told(one[what]) for one in at.answers for what in _AMOUNTS):
        return cast(float, NOT_TOLD_NUMBER)
    done, of = (
        Amount(*(sum(one[f"{what}{end}"] for one in at.answers) for what in ("messages", "octets")))
        for end in ("", "_of")
    )
    return round(share(done, of), 4)


def _ended(values: Sequence[str | None], _: Folding) -> str | None:
    """How it ended for all; None while it runs for one."""
    return None if not all(values) else next((one for one in values if one != "done"), "done")


def _until(values: Sequence[str | None], at: Folding) -> str | None:
    """When the last of those that have mail at risk says that it ends; None if one does not know."""
    ends = [value for one, value in zip(at.answers, values, strict=True) if one.get("at_risk", True)]
    return max(filter(None, ends), default=None) if all(ends) else None


def _of_the_drain(values: Sequence[str | None], at: Folding) -> str | None:
    """What those say that are as the node is: drained if all are."""
    drained = all(one.get("draining") for one in at.answers)
    alike = [
        value for one, value in zip(at.answers, values, strict=True) if drained or not one.get("draining")
    ]
    return next(filter(None, alike), alike[0])


_OF_THE_DRAIN = Rule(_of_the_drain)


def members_seen(peers: Iterable[Fields], own: str) -> list[dict[str, Any]]:
    """The members that workers of the node ``own`` know, as nodes, without that one.

    Of a node of several workers: ``workers`` has their names, ``away`` those that cannot be reached.
    """
    by_node: dict[str, list[Fields]] = {}
    for peer in peers:
        by_node.setdefault(node_of(ServerName(peer["name"])), []).append(peer)
    return [_member(node, some) for node, some in by_node.items() if node != node_of(ServerName(own))]


_MEMBERS = Rule(
    lambda values, at: members_seen((peer for one in values for peer in one), at.node), alone=True
)


def _member(node: str, found: Sequence[Fields]) -> dict[str, Any]:
    if len(found) == 1 and found[0]["name"] == node:
        return dict(found[0])
    some = [one for one in found if not one["retired"]] or found
    names = sorted({one["name"] for one in some}, key=lambda one: number_of(ServerName(one)))
    away = {one["name"] for one in some if one["state"] == STATES[0]}
    return {
        **fold(PeerEntry, found, node),
        "workers": names,
        "away": [name for name in names if name in away],
    }


def _how_bad(state: str, one: Fields) -> tuple[bool, int, str, int]:
    """The worst state, the longest silence, the most mail held for it; who is retired counts last."""
    place = STATES.index(state) if state in STATES else 0
    return one["retired"], place, one["since"] or "~", -one["shadow_held"]


def _address(values: Sequence[str], at: Folding) -> str:
    return next(
        (value for one, value in zip(at.answers, values, strict=True) if one["name"] == at.node), values[0]
    )


def _next(values: Sequence[str], at: Folding) -> str:
    """What happens next with the worst worker, with its number if it is not alike for all."""
    if not values[0] or len({one["next"] for one in at.answers if not one["retired"]}) < 2:
        return values[0]
    return f"{workers_called([at.answers[0]['name']])}: {values[0]}"


class PeerEntry(TypedDict):
    """A member as a node sees it. Of one of several ``workers`` some may be ``away``: out of reach.
    ``retired_by``: the operator who said that it is gone.
    """

    name: Annotated[str, NODE]
    site: Annotated[str, FIRST]
    host: Annotated[str, FIRST]
    address: Annotated[str, Rule(_address)]
    state: Annotated[str, Rule(FIRST.of, _how_bad)]
    since: Annotated[str | None, FIRST]
    last_contact: Newest
    step: Annotated[str, FIRST]
    error: Annotated[str, FIRST]
    failures: Annotated[Natural, FIRST]
    retired: Everywhere
    retired_by: Annotated[str, SAID]
    database_id: Annotated[str | None, ALONE]
    incarnation: Annotated[str | None, ALONE]
    sequence: Annotated[int | None, ALONE]
    applied: Annotated[str | None, ALONE]
    shadow_held: Sum
    holds_ours: Sum
    events_waiting: Sum
    next: Annotated[str, Rule(_next)]
    workers: NotRequired[Annotated[list[str], UNION]]
    away: NotRequired[Annotated[list[str], UNION]]


class RoundEntry(TypedDict):
    """What a round of a scrub read, and what of it is not sound. ``operator``: who had it begin at once."""

    round: Annotated[int, LEAST, At("number")]
    began_at: Oldest
    messages: Annotated[Sum, At("done.messages")]
    messages_of: Annotated[Sum, At("of.messages")]
    octets: Annotated[Sum, At("done.octets")]
    octets_of: Annotated[Sum, At("of.octets")]
    damaged_content: Annotated[Sum, At("contents")]
    damaged_rows: Annotated[Sum, At("rows")]
    mended: Sum
    unreadable: Sum
    compared: Sum
    damaged_indexes: Sum
    rebuilt: Annotated[list[str], SORTED_UNION]
    operator: Annotated[str, SAID]


class WholeRound(RoundEntry):
    """The last complete round since the start."""

    at_once: Everywhere
    complete_at: Annotated[str | None, LAST_OF_ALL]
    seconds: Annotated[float, MOST]


class ScrubEntry(RoundEntry):
    """The round under way, and the last complete one."""

    interval: Annotated[float, MOST]
    progress: Annotated[float | None, Rule(_progress)]
    at_once: Anywhere
    complete_at: Annotated[str | None, LAST_OF_ALL]
    last: Annotated[WholeRound | None, MODEL_OF_ALL]


class LateEntry(TypedDict):
    """250s that wait for next hops: a node that is alone acknowledges late."""

    longest: Annotated[float, MOST]
    waiting: Sum


class CorruptDatabase(TypedDict):
    """What the start did with a corrupt transport database."""

    outcome: str
    kept_as: str
    lost: dict[str, Natural]
    messages_missing: bool


class CountsEntry(TypedDict):
    """How many messages are where."""

    queued: Sum
    exposed: Sum
    asking: Sum
    in_doubt: Sum
    set_aside: Sum
    damaged: Sum
    damaged_aside: Sum
    promoting: Sum
    shadow_held: Sum
    safety_net: Sum
    oldest_queued: Oldest
    oldest_held: Oldest


class RiskEntry(TypedDict):
    """Mail of which one copy can be reached now, and why. ``member``: who is away. ``until``: when that ends
    by itself; None: not known. ``advice``: what the operator can do.
    """

    cause: Annotated[str, FIRST]
    member: Annotated[str, FIRST]
    messages: Sum
    since: Oldest
    until: Annotated[str | None, LAST_OF_ALL]
    advice: Annotated[str, FIRST]


_RISKS = Rule(by("member", "cause", nodes=True).of, alone=True)


class HeldBackEntry(TypedDict):
    """A client that had too much in a minute. ``limit``: connections, messages or recipients. ``who``: a
    network, or a user.
    """

    connector: Annotated[str, FIRST]
    limit: Annotated[str, FIRST]
    who: Annotated[str, FIRST]
    times: Sum
    last: Annotated[str, NEWEST]


def _last_first(values: Sequence[Sequence[Fields]], at: Folding) -> list[Fields]:
    found: list[Fields] = by("connector", "limit", "who").of(values, at)
    return sorted(found, key=lambda one: one["last"], reverse=True)


class PressureEntry(TypedDict):
    """How scarce a resource is: ``level`` low, medium, high or full. ``reading``: percent, or a count.
    ``limits``: the readings of low to medium, medium to high, high to medium and medium to low.
    """

    resource: Annotated[str, FIRST]
    level: Annotated[str, worst("full", "high", "medium", "low")]
    reading: Annotated[float, MOST]
    limits: Annotated[list[float], FIRST]


def reading_told(one: PressureEntry) -> str:
    """``97 %``, or a count."""
    number = f"{one['reading']:,.1f}".removesuffix(".0")
    return f"{number} %" if one["resource"] in PERCENT else number


def limits_told(one: PressureEntry) -> str:
    """``96/99/97/94``, as in the settings. A node of an older release does not say them."""
    limits = one.get("limits")
    return "/".join(f"{limit:.0f}" for limit in limits) if isinstance(limits, list) else "–"


class StatusEntry(CountsEntry):
    """How a node is. ``at_risk``: messages in transit of which one copy can be reached now."""

    name: Annotated[str, NODE]
    site: Annotated[str, FIRST]
    host: Annotated[str, FIRST]
    version: Annotated[str, EACH_ONCE]
    started_at: Annotated[str, NEWEST]
    uptime: Annotated[float, LEAST]
    ready: Anywhere
    not_ready_because: Annotated[str, Rule(_not_ready)]
    warning: Annotated[str, Rule(_warned)]
    draining: Everywhere
    drain_operator: Annotated[str, _OF_THE_DRAIN]
    drain_ordered_at: Annotated[str | None, _OF_THE_DRAIN]
    redundancy: Everywhere
    settings: Annotated[dict[str, str], FIRST]
    database_id: Annotated[str | None, ALONE]
    incarnation: Annotated[str | None, ALONE]
    sequence: Annotated[int | None, ALONE]
    at_risk: Sum
    at_risk_since: Oldest
    at_risk_until: Annotated[str | None, Rule(_until)]
    risks: Annotated[list[RiskEntry], _RISKS]
    overdue_since: Oldest
    refused: Sum
    kept_for_hops: Sum
    acknowledged_late: LateEntry
    held_back: Annotated[list[HeldBackEntry], Rule(_last_first)]
    pressure: Annotated[list[PressureEntry], by("resource")]
    discard_events: Sum
    commits: Sum
    resubmitted: Sum
    scrub: ScrubEntry
    indexes_rebuilt: Sum
    corrupt_database: Annotated[CorruptDatabase | None, SAID]
    peers: Annotated[list[PeerEntry], _MEMBERS]


def _each_second(values: Sequence[Sequence[int]], _: Folding) -> list[int]:
    """Sums of what came in each second; the last one of each is now."""
    back = zip_longest(*map(reversed, values), fillvalue=0)
    return [sum(one) for one in back][::-1]


EachSecond = Annotated[list[Natural], Rule(_each_second)]


class RatesLook(TypedDict):
    """How many messages came in each of the last seconds: the charts of the console."""

    accepted: EachSecond
    delivered: EachSecond
    deferred: EachSecond
    failed: EachSecond


class WorkerAnswered(TypedDict):
    """Whether a worker of a node answers, and why not."""

    worker: int
    name: str
    answers: bool
    why: str


class OfWorkers(TypedDict, total=False):
    """``workers``: what each worker of a node of several answers, or why it does not."""

    workers: Annotated[list[dict[str, Any]], UNION, LikeItself(WorkerAnswered)]


class StatusAnswer(StatusEntry, OfWorkers):
    """How the node is that answers."""


class ScrubAnswer(ScrubEntry, OfWorkers):
    """How far a scrub is. ``begun``: the round that an operator began just now."""

    begun: NotRequired[Annotated[int, LEAST]]


class DrainEntry(OfWorkers):
    """What is left of a drain. ``drain_operator``: who had it begin, or end; '' if nobody did."""

    name: Annotated[str, NODE]
    draining: Everywhere
    drain_operator: Annotated[str, _OF_THE_DRAIN]
    drain_ordered_at: Annotated[str | None, _OF_THE_DRAIN]
    done: Annotated[bool, ALL_ASKED]
    arriving: Sum
    queued: Sum
    exposed: Sum
    at_risk: Sum
    set_aside: Sum
    held_for: SumByName
    held_by: SumByName
    handed_over: SumByName
    not_yet_taken: Annotated[SumByName, At("awaited")]
    kept_for_hops: Annotated[SumByName, At("hops")]


class RedirectEntry(OfWorkers):
    """The redirect that runs, or ran last. ``to``: None if there was none; then nothing follows."""

    name: Annotated[str, NODE]
    running: Anywhere
    to: Annotated[str | None, SAID]
    began_at: NotRequired[Annotated[str, OLDEST]]
    operator: NotRequired[Annotated[str, SAID]]
    stopped_by: NotRequired[Annotated[str, SAID]]
    done: NotRequired[Annotated[bool, ALL_ASKED]]
    ended: NotRequired[Annotated[str | None, Rule(_ended)]]
    queued: NotRequired[Sum]
    handed_over: NotRequired[Sum]
    copied: NotRequired[Sum]
    not_yet_taken: NotRequired[Annotated[Sum, At("awaited")]]
    left: NotRequired[SumByName]
    reply: NotRequired[Annotated[str, SAID]]
    warning: NotRequired[Annotated[str, SAID]]


class ClockDifference(TypedDict):
    """How far the wall clock of a member is ahead, in seconds."""

    name: str
    ahead: float


class TimeEntry(OfWorkers):
    """What a node knows of the time. Its workers have one wall clock: the one that doubts it most speaks."""

    name: Annotated[str, NODE]
    reckoned: Annotated[str, FIRST]
    wall: Annotated[str, FIRST]
    ahead: Annotated[float, FIRST]
    stepped: Annotated[float, FIRST]
    doubts: Annotated[list[str], Rule(FIRST.of, lambda doubts, _: -len(doubts))]
    uncertain: Annotated[float, FIRST]
    members: Annotated[list[ClockDifference], FIRST]


class SettingChange(TypedDict):
    """A setting that has another value, in the notation of the file."""

    key: str
    was: str
    now: str


class ReloadEntry(OfWorkers):
    """What the settings file comes to on a node: all its workers read one file."""

    name: Annotated[str, NODE]
    taken: Everywhere
    now: Annotated[list[SettingChange], UNION]
    restart: Annotated[list[SettingChange], UNION]
    wrong: Annotated[list[str], UNION]
    warnings: Annotated[list[str], UNION]


class PeersAnswer(OfWorkers):
    """The other members."""

    peers: Annotated[list[PeerEntry], _MEMBERS]


class LiveAnswer(TypedDict):
    """Whether the process lives."""

    live: bool


class ReadyAnswer(TypedDict):
    """Whether the node takes mail, and why not."""

    ready: bool
    reason: str
    warning: NotRequired[str]


class SessionAnswer(TypedDict):
    """A session of a browser. ``csrf``: the header X-CSRF-Token of what it changes."""

    operator: str
    scope: Literal["read", "operate"]
    csrf: str


class LoggedOutAnswer(TypedDict):
    """The session has ended."""

    logged_out: bool


class ErrorAnswer(TypedDict):
    """Why it was not done."""

    error: str


class OpenApiAnswer(TypedDict):
    """The description of the API."""

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]
    components: dict[str, Any]
    security: list[dict[str, Any]]
