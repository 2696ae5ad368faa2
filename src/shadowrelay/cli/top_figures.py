"""The figures of ``shadowrelay top``: those of one look at a node's metrics, and what two looks tell."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import groupby, islice
from typing import TYPE_CHECKING, Annotated, Any, cast

from typing_extensions import TypedDict

from shadowrelay.admin.client import AdminClient, ApiError, NodeEvent
from shadowrelay.cli.viewing import clean
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.time_text import spell
from shadowrelay.core.workers import label, worker_name, workers_called
from shadowrelay.shown import nodes
from shadowrelay.shown.fold import MOST, SUM_BY_NAME, Fields, Sum, SumByName, by, fold
from shadowrelay.shown.nodes import QueuesAnswer, RatesAnswer, StatusesAnswer, WorkersAnswer, node_name
from shadowrelay.shown.reading import is_told
from shadowrelay.shown.status import limits_told, reading_told

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

    from shadowrelay.shown.status import PressureEntry

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


def workers_of(page: str) -> set[int]:
    """The numbers of the workers that a node should have, whether they answer or not."""
    return {int(one.labels["worker"]) for one in _samples(page) if one.name == _SERVING}


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
    """What happened at one node between two looks, a second. ``rates``: none before the second look.
    ``latency``: 250s by seconds, cumulative.
    """

    rates: Mapping[str, float]
    latency: Mapping[float, float]


def pace(before: Look | None, now: Look) -> NodePace:
    """``before`` None, or of a process that has ended: nothing is known yet."""
    if (
        before is None
        or now.at <= before.at
        or now.value("start_time_seconds") != before.value("start_time_seconds")
    ):
        return NodePace({}, {})
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
    """What is known of one node that is asked. ``why``: why it does not answer; then the figures are old.
    ``silent``: which of its workers do not answer, of a node that does.
    """

    url: str
    name: str
    look: Look | None = None
    pace: NodePace = field(default_factory=lambda: NodePace({}, {}))
    why: str = ""
    silent: str = ""


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


WAITING = ("queued", "exposed", "in_doubt", "set_aside", "at_risk")


def figures(nodes: Sequence[SeenNode]) -> TopFigures:
    """Those of all nodes that answer."""
    nothing: TopFigures = {
        "waiting": dict.fromkeys(WAITING, 0),
        "rates": {},
        "latency": {},
        "queues": [],
    }
    answering = [_of(one.look, one.pace) for one in nodes if one.look and not one.why]
    return fold(TopFigures, [nothing, *answering])


def _of(look: Look, done: NodePace) -> TopFigures:
    return {
        "waiting": {name: _whole(look.value(f"{name}_messages")) for name in WAITING},
        "rates": dict(done.rates),
        "latency": dict(done.latency),
        "queues": [
            {"next_hop": hop, "messages": _whole(messages), "oldest": oldest}
            for hop, (messages, oldest) in look.queues.items()
        ],
    }


def _whole(value: Any) -> int:
    """A number of messages, or that it is not told."""
    return int(value) if is_told(value) else cast(int, value)


NOTABLE = (
    "FAIL",
    "HAREDIRECTFAIL",
    "HADAMAGE",
    "HARESTORE",
    "RESUBMIT",
    "SUSPEND",
    "RESUME",
    "RETRY",
    "REMOVE",
    "DROP",
    "LOAD",
)
"""Events that are shown one by one: what happens to most messages is in the figures."""

AGAIN = 2.0
"""Seconds after which a node that did not answer is asked again."""

_KEPT = 200  # events


def _away(workers: Mapping[int, SeenNode]) -> str:
    """Which workers do not answer, of a node of which others do."""
    numbers = [number for number, one in sorted(workers.items()) if one.why]
    if not numbers or len(numbers) == len(workers):
        return ""
    called = workers_called([worker_name(ServerName("n"), number) for number in numbers])
    return f"{called} of {len(workers)} {'does' if len(numbers) == 1 else 'do'} not answer"


class NodesWatch:
    """Looks at nodes in threads of its own, which end with the process. ``nodes`` and ``events`` may be read
    at any time.
    """

    def __init__(self, clients: Sequence[AdminClient], interval: float, *, workers: bool = False) -> None:
        """``workers``: each worker of a node is shown by itself."""
        self._clients = clients
        self._interval = interval
        self._workers = workers
        self._names = {client.url: client.url for client in clients}
        self._seen = {
            client.url: {1: SeenNode(client.url, client.url, why="not asked yet")} for client in clients
        }
        self._members: dict[str, SeenNode] = {}  # those that the nodes tell of
        self._hops: dict[str, Fields] = {}
        self._held_back: Sequence[Fields] = ()
        self._pressure: Sequence[Fields] = ()
        self._events: deque[str] = deque(maxlen=_KEPT)

    @property
    def nodes(self) -> list[SeenNode]:
        found: list[SeenNode] = []
        for url, workers in list(self._seen.items()):
            each = [replace(one, name=self._name_of(url, number)) for number, one in sorted(workers.items())]
            if self._workers:
                found += each
            else:
                found.append(replace(together(each), name=self._names[url], silent=_away(workers)))
        asked = {node_name(one.name) for one in found}
        return [*found, *(one for name, one in sorted(self._members.items()) if name not in asked)]

    def _name_of(self, url: str, number: int) -> str:
        """The name of a node, or of a worker; its URL before it is known."""
        name = self._names[url]
        return name if name == url else worker_name(ServerName(name), number)

    @property
    def events(self) -> list[str]:
        return list(self._events)

    @property
    def hops(self) -> Mapping[str, Fields]:
        """What all nodes tell of their queues, by next hop."""
        return self._hops

    @property
    def held_back(self) -> Sequence[Fields]:
        """Clients that had too much in a minute, at all nodes, the last one first."""
        return self._held_back

    @property
    def pressure(self) -> Sequence[Fields]:
        """The resources of each node that looks at them, with the name of the ``node``."""
        return self._pressure

    def frame(self, now: datetime) -> TopFrame:
        return TopFrame(
            nodes=self.nodes,
            events=self.events,
            now=now,
            hops=self.hops,
            held_back=self.held_back,
            pressure=self.pressure,
        )

    def start(self) -> None:
        for client in self._clients:
            for work in (self._look_on, self._listen):
                threading.Thread(target=work, args=(client,), daemon=True).start()
        # It takes as long as a silent member, and the figures of the node do not.
        threading.Thread(target=self._round_on, args=(self._clients[0],), daemon=True).start()

    def once(self) -> None:
        """Look twice at each node, an interval apart. Raises ApiError if no node answers."""
        for client in self._clients:
            self._name(client)
            self._look(client)
        self._look_round(self._clients[0])
        time.sleep(self._interval)
        for client in self._clients:
            self._look(client)
        if all(node.why for node in self.nodes):
            raise ApiError("; ".join(node.why for node in self.nodes))

    def _look_on(self, client: AdminClient) -> None:
        while True:
            self._look(client)
            time.sleep(self._interval)

    def _round_on(self, client: AdminClient) -> None:
        while True:
            self._look_round(client)
            time.sleep(self._interval)

    def _look_round(self, client: AdminClient) -> None:
        """What the first node tells of all members; nothing, if it is of an older release."""
        try:
            statuses = nodes.statuses(client.get(StatusesAnswer, "cluster", "status")["nodes"])
            queues = nodes.queues(client.get(QueuesAnswer, "cluster", "queues")["nodes"])
        except ApiError:
            return
        try:
            rates = nodes.rates(client.get(RatesAnswer, "cluster", "rates")["nodes"])
        except ApiError:
            rates = []
        self._hops = {one["next_hop"]: one for one in nodes.together(queues)}
        self._held_back = nodes.total(statuses).get("held_back") or ()
        self._pressure = [
            {"node": one["node"], **each}
            for one in statuses
            if one["answers"]
            for each in one["status"].get("pressure") or ()
        ]
        at = {one["node"]: one for one in queues}
        came = {one["node"]: one for one in rates if one["answers"]}
        self._members = {
            one["node"]: member(client.url, one, at.get(one["node"], {}), came.get(one["node"]))
            for one in statuses
        }

    def _look(self, client: AdminClient) -> None:
        before = self._seen[client.url]
        try:
            page, at = client.metrics(), time.monotonic()
            found = looks(page, at)
        except (ApiError, ValueError) as error:
            why = clean(error).partition(" --admin or ")[0]
            self._seen[client.url] = {number: replace(one, why=why) for number, one in before.items()}
            return
        known = {number: SeenNode(client.url, client.url) for number in workers_of(page)} | before
        silent = {number: replace(one, why="it does not answer") for number, one in known.items()}
        self._seen[client.url] = silent | {
            number: self._paced(before.get(number), client.url, seen) for number, seen in found.items()
        }

    @staticmethod
    def _paced(before: SeenNode | None, url: str, found: Look) -> SeenNode:
        last: Look | None = None if before is None or before.why else before.look
        done: NodePace = pace(last, found)
        return SeenNode(url, url, look=found, pace=done)

    def _name(self, client: AdminClient) -> None:
        """Learn a node's name from the beginning of its events."""
        try:
            for event in islice(client.events(NOTABLE), 1):
                self._hear(client, event)
        except ApiError:
            pass

    def _listen(self, client: AdminClient) -> None:
        """Listen to the node; to each of its workers, if it has several."""
        heard: set[int] = set()
        last = ""
        while True:
            for number in self._numbers(client) - heard:
                heard.add(number)
                threading.Thread(target=self._listen_to, args=(client, number), daemon=True).start()
            if not heard:
                last = self._stream(client, None, last)
            time.sleep(AGAIN)

    def _listen_to(self, client: AdminClient, number: int) -> None:
        last = ""
        while True:
            last = self._stream(client, number, last)
            time.sleep(AGAIN)

    def _stream(self, client: AdminClient, worker: int | None, last: str) -> str:
        """Hear events until the stream ends. Returns the id of the last one."""
        try:
            for event in client.events(NOTABLE, last, worker=worker):
                last = event.id or last
                self._hear(client, event)
        except ApiError:
            pass  # the figures say why
        return last

    def _numbers(self, client: AdminClient) -> set[int]:
        """The workers of a node; none of one that is a single process."""
        try:
            return {int(one["number"]) for one in client.get(WorkersAnswer, "workers")["workers"]}
        except (ApiError, KeyError, TypeError, ValueError):
            return set()

    def _hear(self, client: AdminClient, event: NodeEvent) -> None:
        data = event.data
        if event.name == "begin":
            self._names[client.url] = node_name(clean(data.get("node", client.url)))
        elif not event.name and "event-id" in data:
            self._events.append(told(self._names[client.url], data))


_LATELY = 10
"""Seconds of which the rates of a member are the mean."""


def member(url: str, entry: Fields, queues: Fields, came: Fields | None) -> SeenNode:
    """A member as another node tells of it: its status, its queues, and what came lately, if that is told."""
    if not entry["answers"]:
        return SeenNode(url, entry["node"], why=str(entry["why"]) or "it does not answer")
    status = entry["status"]
    values = {f"shadowrelay_{name}_messages": status[name] for name in WAITING}
    values["shadowrelay_shadow_messages"] = status["shadow_held"]
    values["shadowrelay_ready"] = float(status["ready"] is True)
    now = datetime.now(UTC)
    waiting = {
        one["next_hop"]: (one["messages"], (now - datetime.fromisoformat(one["oldest"])).total_seconds())
        for one in queues.get("queues", ())
        if one["oldest"]
    }
    look = Look(0.0, values, {}, {}, waiting, {})
    last = {name: list(came[name])[-_LATELY:] for name in RATES} if came else {}
    rates = {name: sum(each) / len(each) for name, each in last.items() if each}
    return SeenNode(url, entry["node"], look=look, pace=NodePace(rates, {}), silent=str(entry["why"]))


def told(node: str, columns: Mapping[str, str]) -> str:
    """An event on one line."""
    at = columns.get("date-time", "")[11:19]
    parts = [
        columns.get("event-id", ""),
        columns.get("network-message-id", "")[-12:],
        columns.get("recipient-address", ""),
        columns.get("recipient-status", "") or columns.get("source-context", ""),
    ]
    return clean(" ".join([at, label(node), *filter(None, parts)]))


MOST_QUEUES = 12
MOST_HELD_BACK = 5
_LEAST = 40  # columns


class Sorted(StrEnum):
    """By what the queues are sorted."""

    MESSAGES = "messages"
    AGE = "age"
    NAME = "name"

    def next(self) -> Sorted:
        order = list(Sorted)
        return order[(order.index(self) + 1) % len(order)]


@dataclass(frozen=True, slots=True)
class TopLine:
    """A line of a frame; ``bad`` is shown in red, ``head`` in bold."""

    text: str
    bad: bool = False
    head: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopFrame:
    """What a frame shows. ``events``: the newest last. ``hops``: what all nodes tell of queues, by name.
    ``held_back``: clients that had too much in a minute, the last one first. ``pressure``: resources, each
    with its ``node``.
    """

    nodes: Sequence[SeenNode]
    events: Sequence[str]
    now: datetime
    hops: Mapping[str, Fields] = field(default_factory=dict)
    held_back: Sequence[Fields] = ()
    pressure: Sequence[Fields] = ()
    sorted_by: Sorted = Sorted.MESSAGES
    paused: bool = False


def draw(frame: TopFrame, width: int, height: int = 1000) -> list[TopLine]:
    """The lines: at most ``width`` columns and ``height`` lines, the newest events last."""
    width = max(width, _LEAST)
    every = figures(frame.nodes)
    lines = [*_head(frame, every), TopLine(""), *_queues(frame, every, width)]
    lines += [TopLine(""), *_members(frame, width), *_pressed(frame), *_held_back(frame)]
    room = height - len(lines) - 2
    if frame.events and room > 0:
        lines += [TopLine(""), TopLine("events", head=True)]
        lines += [TopLine(text) for text in frame.events[-room:]]
    return [TopLine(_cut(one.text, width), one.bad, one.head) for one in lines[:height]]


def _head(frame: TopFrame, every: TopFigures) -> list[TopLine]:
    nodes, away = frame.nodes, [node for node in frame.nodes if node.why]
    names = nodes[0].name + (f" and {len(nodes) - 1} more" if len(nodes) > 1 else "")
    state = "  PAUSED" if frame.paused else ""
    at = frame.now.astimezone(UTC).strftime("%H:%M:%S")
    queued, exposed, doubt, aside, at_risk = every["waiting"].values()
    rates = "   ".join(f"{name} {_short(every['rates'].get(name))}/s" for name in RATES)
    measured = every["latency"]
    shares = "  ".join(f"p{share} {_seconds(quantile(share / 100, measured))}" for share in (50, 95, 99))
    one_copy = max(exposed, at_risk)  # an older node does not count what is at risk
    safe = f"AT RISK {one_copy}" if one_copy else "at risk 0"
    lines = [
        TopLine(f"shadowrelay top   {names}   {at} UTC{state}", head=True),
        TopLine(rates),
        TopLine(f"250 after: {shares}"),
        TopLine(
            f"{safe}   queued {queued}   in doubt {doubt}   set aside {aside}",
            bad=bool(one_copy),
        ),
    ]
    lines += [TopLine(f"{node.name}: {node.silent}", bad=True) for node in nodes if node.silent]
    return lines + [TopLine(f"{node.name}: {node.why}; it is asked again", bad=True) for node in away]


def _queues(frame: TopFrame, every: TopFigures, width: int) -> list[TopLine]:
    queues = sorted(every["queues"], key=_key(frame.sorted_by))
    if not queues:
        return [TopLine("No message waits in a queue.")]
    hops = max(12, min(max(len(clean(one["next_hop"])) for one in queues[:MOST_QUEUES]), width - 60))
    lines = [
        TopLine(f"{'queue':<{hops}}  {'messages':>9}  {'oldest':>10}  {'a minute':>8}  state", head=True)
    ]
    for queue in queues[:MOST_QUEUES]:
        hop = _cut(clean(queue["next_hop"]), hops)
        age = spell(timedelta(seconds=int(queue["oldest"])), 1)
        seen = frame.hops.get(queue["next_hop"], {})
        rate = "–" if (found := seen.get("rate")) is None else str(found)
        state = str(seen.get("status", "–"))
        why = clean(text) if (text := seen.get("why") or seen.get("last_error")) else ""
        line = f"{hop:<{hops}}  {queue['messages']:>9,}  {age:>10}  {rate:>8}  {state}"
        lines.append(TopLine(f"{line}: {why}" if why else line, bad=state in ("suspended", "resting")))
    if len(queues) > MOST_QUEUES:
        lines.append(TopLine(f"and {len(queues) - MOST_QUEUES} more"))
    return lines


def _key(by: Sorted) -> Callable[[TopQueue], tuple[float, str]]:
    def key(queue: TopQueue) -> tuple[float, str]:
        order: Mapping[Sorted, float] = {Sorted.MESSAGES: -queue["messages"], Sorted.AGE: -queue["oldest"]}
        return order.get(by, 0.0), queue["next_hop"]

    return key


def _members(frame: TopFrame, width: int) -> list[TopLine]:
    names = width - 55
    lines = [
        TopLine(_member(names, "member", "state", ["queued", "at risk", "held", "in/s", "out/s"]), head=True)
    ]
    asked = {node_name(node.name) for node in frame.nodes}
    for node in frame.nodes:
        figures = (
            [
                str(count)
                for count in (_count(node.look, "queued"), _at_risk(node.look), _count(node.look, "shadow"))
            ]
            + [_short(node.pace.rates.get(one)) for one in ("accepted", "delivered")]
            if node.look and not node.why
            else ["–"] * 5
        )
        ready = bool(node.look and node.look.value("ready"))
        state = "no answer" if node.why else "ready" if ready else "not ready"
        bad = state != "ready"
        lines.append(TopLine(_member(names, node.name, state, figures), bad=bad))
    for name, reachable in sorted(_others(frame.nodes).items()):
        if name not in asked:
            state = "reachable" if reachable else "unreachable"
            lines.append(TopLine(_member(names, name, state, ["–"] * 5), bad=not reachable))
    return lines


def _pressed(frame: TopFrame) -> list[TopLine]:
    """The resources of each node that looks at them, with their limits where one is scarce."""
    lines = [TopLine(""), TopLine("resources", head=True)] if frame.pressure else []
    for name, found in groupby(frame.pressure, key=lambda one: str(one["node"])):
        each = [cast("PressureEntry", one) for one in found]
        told = [f"{one['resource'].replace('_', ' ')} {reading_told(one)}{_scarce(one)}" for one in each]
        lines.append(TopLine(clean(f"{name}: {', '.join(told)}"), bad=any(map(_scarce, each))))
    return lines


def _scarce(one: PressureEntry) -> str:
    return "" if one["level"] == "low" else f" {one['level'].upper()} ({limits_told(one)})"


def _held_back(frame: TopFrame) -> list[TopLine]:
    """Clients that were held back within the last minute."""
    since = frame.now - timedelta(minutes=1)
    lately = [one for one in frame.held_back if datetime.fromisoformat(one["last"]) >= since]
    lines = [TopLine(""), TopLine("held back in the last minute", head=True)] if lately else []
    for one in lately[:MOST_HELD_BACK]:
        text = f"{one['who']}: {one['limit']} a minute, at {one['connector']}, {one['times']} times"
        lines.append(TopLine(clean(text)))
    more = len(lately) - MOST_HELD_BACK
    return [*lines, TopLine(f"and {more} more")] if more > 0 else lines


def _count(look: Look, name: str) -> int:
    return _whole(look.value(f"{name}_messages"))


def _at_risk(look: Look) -> int:
    """Messages of which one copy can be reached; an older node counts only those that are exposed."""
    return max(_count(look, "at_risk"), _count(look, "exposed"))


def _member(names: int, name: str, state: str, figures: Sequence[str]) -> str:
    widths = (8, 8, 8, 6, 6)
    row = " ".join(f"{text:>{width}}" for text, width in zip(figures, widths, strict=True))
    return f"{_cut(clean(name), names):<{names}}  {state:<12} {row}"


def _others(nodes: Sequence[SeenNode]) -> dict[str, bool]:
    """The nodes that others speak of, and whether all of those reach all of their workers."""
    found: dict[str, bool] = {}
    for node in nodes:
        for member, seen in (node.look.peers if node.look and not node.why else {}).items():
            name = node_name(member)
            found[name] = found.get(name, True) and bool(seen.get("reachable", 1.0))
    return found


def _seconds(found: float | None) -> str:
    if found is None:
        return "–"
    return f"{found * 1000:.0f} ms" if found < 1 else f"{found:.1f} s"


def _short(number: float | None) -> str:
    if number is None:
        return "–"
    return f"{number:.1f}" if number < 1000 else f"{number:.0f}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
