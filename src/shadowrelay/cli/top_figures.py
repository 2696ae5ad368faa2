"""The figures of ``shadowrelay top``: those of one look at a node's metrics, and what two looks tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

from typing_extensions import TypedDict

from shadowrelay.shown.fold import MOST, SUM_BY_NAME, Sum, SumByName, by, fold

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

_EVENTS = "shadowrelay_tracking_events_total"
_READY = "shadowrelay_ready"
_SERVING = "shadowrelay_worker_serving"
_RATES = {
    "accepted": ("RECEIVE",),
    "delivered": ("SEND", "SENDEXTERNAL", "DELIVER"),
    "deferred": ("DEFER",),
    "failed": ("FAIL",),
}
RATES = tuple(_RATES)


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a node's metrics. ``at``: seconds of a monotonic clock. ``acknowledged``: how many 250s
    took at most so many seconds.
    """

    at: float
    values: Mapping[str, float]
    events: Mapping[str, float]
    acknowledged: Mapping[float, float]
    queues: Mapping[str, tuple[float, float]]
    peers: Mapping[str, Mapping[str, float]]

    def value(self, name: str) -> float:
        return self.values.get(f"shadowrelay_{name}", 0.0)


def looks(page: str, at: float) -> dict[int, Look]:
    """What a page of metrics says of each worker that answers, by number: a node of one worker is its first.
    Raises ValueError if it is none.
    """
    by_worker: dict[int, list[Sample]] = {}
    samples = _samples(page)
    for one in samples:
        by_worker.setdefault(int(one.labels.get("worker", "1")), []).append(one)
    answering = {
        number: some for number, some in by_worker.items() if any(one.name == _READY for one in some)
    }
    if not answering and any(one.name == _SERVING for one in samples):
        raise ValueError("none of its workers answers")
    return {number: _look(some, at) for number, some in sorted((answering or {1: []}).items())}


def _samples(page: str) -> list[Sample]:
    from prometheus_client.parser import text_string_to_metric_families

    return [sample for family in text_string_to_metric_families(page) for sample in family.samples]


def _look(samples: Sequence[Sample], at: float) -> Look:
    values: dict[str, float] = {}
    events: dict[str, float] = {}
    acknowledged: dict[float, float] = {}
    queues: dict[str, list[float]] = {}
    peers: dict[str, dict[str, float]] = {}
    for sample in samples:
        name, value = sample.name, sample.value
        labels = {key: text for key, text in sample.labels.items() if key != "worker"}
        if not labels:
            values[name] = value
        elif name == _EVENTS:
            events[labels["event"]] = value
        elif name == "shadowrelay_acknowledgement_seconds_bucket":
            acknowledged[float(labels["le"])] = value
        elif name in ("shadowrelay_queue_messages", "shadowrelay_queue_oldest_seconds"):
            row = queues.setdefault(labels["next_hop"], [0.0, 0.0])
            row[name.endswith("seconds")] = value
        elif "peer" in labels:
            peers.setdefault(labels["peer"], {})[name.removeprefix("shadowrelay_peer_")] = value
    if _READY not in values:
        raise ValueError("this page of metrics is not that of a shadowrelay node")
    waiting = {hop: (row[0], row[1]) for hop, row in queues.items() if row[0]}
    return Look(at, values, events, acknowledged, waiting, peers)


@dataclass(frozen=True, slots=True)
class NodePace:
    """What happened at one node between two looks, a second. ``latency``: 250s by seconds, cumulative."""

    rates: Mapping[str, float]
    latency: Mapping[float, float]


def pace(before: Look | None, now: Look) -> NodePace:
    """``before`` None, or of a process that has ended: nothing is known yet."""
    if (
        before is None
        or now.at <= before.at
        or now.value("start_time_seconds") != before.value("start_time_seconds")
    ):
        return NodePace(dict.fromkeys(RATES, 0.0), {})
    seconds = now.at - before.at
    rates = {
        name: sum(now.events.get(one, 0.0) - before.events.get(one, 0.0) for one in events) / seconds
        for name, events in _RATES.items()
    }
    latency = {
        bound: count - before.acknowledged.get(bound, 0.0) for bound, count in now.acknowledged.items()
    }
    return NodePace(rates, latency)


def quantile(share: float, buckets: Mapping[float, float]) -> float | None:
    """The seconds within which that share of all came, by bounds and cumulative counts; None without any.

    Within a bucket the times are taken to be spread evenly, as Prometheus does.
    """
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    wanted, below, count = share * total, 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= wanted:
            if bound == float("inf"):
                return below
            return below + (bound - below) * (wanted - count) / max(buckets[bound] - count, 1e-9)
        below, count = bound, buckets[bound]
    return below


@dataclass(frozen=True, slots=True)
class SeenNode:
    """What is known of one node that is asked. ``why``: why it does not answer; then the figures are old."""

    url: str
    name: str
    look: Look | None = None
    pace: NodePace = field(default_factory=lambda: NodePace({}, {}))
    why: str = ""


def together(workers: Sequence[SeenNode]) -> SeenNode:
    """The workers of a node as one, by their numbers: the sums of those that answer."""
    answering = [(one.look, one.pace) for one in workers if one.look and not one.why]
    if len(answering) < 2:
        return next((one for one in workers if not one.why), workers[0])
    looked = [look for look, _ in answering]
    done = NodePace(
        SUM_BY_NAME.over([one.rates for _, one in answering]),
        SUM_BY_NAME.over([one.latency for _, one in answering]),
    )
    return replace(workers[0], look=_sum(looked), pace=done, why="")


def _sum(looked: Sequence[Look]) -> Look:
    """Messages add up; the node is ready while one worker is, and reaches a member if all workers do."""
    values: dict[str, float] = {}
    queues: dict[str, tuple[float, float]] = {}
    peers: dict[str, dict[str, float]] = {}
    for one in looked:
        for name, value in one.values.items():
            before = values.get(name, 0.0)
            values[name] = before + value if name.endswith("_messages") else max(before, value)
        for hop, (messages, oldest) in one.queues.items():
            known = queues.get(hop, (0.0, 0.0))
            queues[hop] = known[0] + messages, max(known[1], oldest)
        for peer, seen in one.peers.items():
            reached = peers.setdefault(peer, {"reachable": 1.0})
            reached["reachable"] = min(reached["reachable"], seen.get("reachable", 1.0))
    return replace(looked[0], values=values, queues=queues, peers=peers)


class TopQueue(TypedDict):
    """What waits for a next hop. ``oldest``: its age in seconds."""

    next_hop: str
    messages: Sum
    oldest: Annotated[float, MOST]


class TopFigures(TypedDict):
    """What a node does, or all that answer. ``waiting``: messages, by what keeps them; ``latency``: 250s by
    seconds, cumulative.
    """

    waiting: SumByName
    rates: Annotated[dict[str, float], SUM_BY_NAME]
    latency: Annotated[dict[float, float], SUM_BY_NAME]
    queues: Annotated[list[TopQueue], by("next_hop")]


WAITING = ("queued", "exposed", "in_doubt", "set_aside")


def figures(nodes: Sequence[SeenNode]) -> TopFigures:
    """Those of all nodes that answer."""
    nothing: TopFigures = {
        "waiting": dict.fromkeys(WAITING, 0),
        "rates": dict.fromkeys(RATES, 0.0),
        "latency": {},
        "queues": [],
    }
    answering = [_of(one.look, one.pace) for one in nodes if one.look and not one.why]
    return fold(TopFigures, [nothing, *answering])


def _of(look: Look, done: NodePace) -> TopFigures:
    return {
        "waiting": {name: int(look.value(f"{name}_messages")) for name in WAITING},
        "rates": dict(done.rates),
        "latency": dict(done.latency),
        "queues": [
            {"next_hop": hop, "messages": int(messages), "oldest": oldest}
            for hop, (messages, oldest) in look.queues.items()
        ],
    }
