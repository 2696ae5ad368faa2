"""Puts what the workers of a node answer together: one entry for each node. Pure.

An entry has ``node``, ``answers`` and ``why``, and what the node says. A node of whose workers one is silent
says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any, TypeAlias

from typing_extensions import TypedDict

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.workers import node_of, number_of, workers_called
from shadowrelay.shown.fold import (
    ALL,
    FIRST,
    LEAST,
    MODEL_OF_ALL,
    MOST,
    NODE,
    SAID,
    Fields,
    Folding,
    Natural,
    Rule,
    by,
    fold,
)
from shadowrelay.shown.queues import HopLook, QueueEntry, QueuesLook
from shadowrelay.shown.reading import NOT_TOLD, read
from shadowrelay.shown.safety_text import at_risk_of
from shadowrelay.shown.status import RatesLook, ReloadEntry, StatusEntry
from shadowrelay.shown.tls import TlsEntry, TlsLook

_Entry: TypeAlias = dict[str, Any]


class NodeAnswers(TypedDict):
    """Whether a node answers, or not to the end, and why."""

    node: Annotated[str, NODE]
    answers: Annotated[bool, ALL]
    why: Annotated[str, SAID]


class StatusLook(TypedDict):
    """The status of a node in an entry."""

    status: StatusEntry


class StatusAt(NodeAnswers, StatusLook):
    """A node that answers."""


class StatusesAnswer(TypedDict):
    """How all nodes are. ``node``: the one that was asked."""

    node: str
    nodes: list[StatusAt | NodeAnswers]


def _first_end(values: Sequence[dict[str, str]], _: Folding) -> dict[str, str]:
    """When the first certificate of each setting ends."""
    return {
        key: min(one[key] for one in values if key in one)
        for key in sorted({key for one in values for key in one})
    }


class DiskEntry(TypedDict):
    """The disk of a node's mail, in octets. Below ``minimum`` no mail is taken."""

    directory: Annotated[str, FIRST]
    free: Annotated[Natural, LEAST]
    minimum: Annotated[Natural, MOST]


class KnownMember(TypedDict):
    """A member that a node knows, and from where: its settings, or an announcement."""

    name: Annotated[str, FIRST]
    address: Annotated[str, FIRST]
    site: Annotated[str, FIRST]
    host: Annotated[str, FIRST]
    source: Annotated[str, FIRST]


class NodeLook(TypedDict):
    """What a node has. ``certificates``: until when each is valid, by its setting."""

    members: Annotated[list[KnownMember], by("name")]
    certificates: Annotated[dict[str, str], Rule(_first_end)]
    disk: Annotated[DiskEntry | None, MODEL_OF_ALL]


class QueuesAt(NodeAnswers, QueuesLook):
    """The queues of a node that answers."""


class QueuesAnswer(TypedDict):
    """The queues of all nodes."""

    node: str
    nodes: list[QueuesAt | NodeAnswers]


class RatesAt(NodeAnswers, RatesLook):
    """What came in the last minutes at a node that answers."""


class RatesAnswer(TypedDict):
    """What came in the last minutes at all nodes."""

    node: str
    nodes: list[RatesAt | NodeAnswers]


class TlsAt(NodeAnswers, TlsLook):
    """TLS with next hops, at a node that answers."""


class TlsAnswer(TypedDict):
    """TLS with next hops, at all nodes."""

    node: str
    nodes: list[TlsAt | NodeAnswers]


class QueuePart(TypedDict):
    """How much of a queue is at one node."""

    node: str
    messages: Natural


class QueueTogether(QueueEntry):
    """A queue of all nodes."""

    parts: list[QueuePart]


class HopAt(NodeAnswers, HopLook):
    """What a node that answers knows of a next hop."""


class HopAnswer(TypedDict):
    """One next hop, as each node sees it."""

    node: str
    next_hop: str
    nodes: list[HopAt | NodeAnswers]


class ReloadAt(NodeAnswers, ReloadEntry):
    """What the settings file of a node comes to."""


class ReloadsAnswer(TypedDict):
    """What the settings files of all nodes come to."""

    nodes: list[ReloadAt | NodeAnswers]


class WorkerEntry(TypedDict):
    """A worker of a node of several. ``why``: why its process ended the last time."""

    number: int
    name: str
    state: str
    pid: int | None
    since: str
    restarts: Natural
    why: str


class WorkersAnswer(TypedDict):
    """The workers of a node of several."""

    name: str
    workers: list[WorkerEntry]


def node_name(member: str) -> str:
    """The node of which that member is a worker."""
    return node_of(ServerName(member))


def by_node(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The sums of what the workers of each node count."""
    found: dict[str, int] = {}
    for member, count in counts:
        found[node_name(member)] = found.get(node_name(member), 0) + count
    return found


def of_node(entries: Iterable[Fields], member: str) -> list[Any]:
    """The entries of the node of that member: of all its workers."""
    return [one for one in entries if node_name(one["node"]) == node_name(member)]


def answering(entries: Iterable[Fields]) -> list[_Entry]:
    """One entry for each node: whether it answers."""
    return [one for one, _ in _by_node(NodeAnswers, entries)]


def by_worker(entries: Iterable[Fields]) -> list[Any]:
    """The entries with the workers of each node together, the nodes in their order."""
    every = list(entries)
    nodes = list(dict.fromkeys(node_name(one["node"]) for one in every))
    return sorted(
        every, key=lambda one: (nodes.index(node_name(one["node"])), number_of(ServerName(one["node"])))
    )


def statuses(entries: Iterable[Fields]) -> list[_Entry]:
    """One entry for each node, with the ``status`` of its workers as one, in the order of the entries."""
    return [_with_each(one, workers) for one, workers in _by_node(StatusLook, entries)]


def _with_each(node: _Entry, workers: Sequence[_Entry]) -> _Entry:
    if not workers or "workers" not in node:
        return node
    each = [{key: value for key, value in one["status"].items() if key != "peers"} for one in workers]
    return {**node, "status": {**node["status"], "workers": each}}


def total(entries: Iterable[Fields]) -> StatusEntry:
    """The status of all nodes that answer, as one; empty if none does."""
    told = [one["status"] for one in entries if one["answers"]]
    return fold(StatusEntry, [{**one, "at_risk": at_risk_of(one, NOT_TOLD)} for one in told])


def queues(entries: Iterable[Fields]) -> list[_Entry]:
    """One entry for each node: the ``queues``, ``shadow_queues`` and ``hop_shadow_queues`` of its workers."""
    return [one for one, _ in _by_node(QueuesLook, entries)]


def together(entries: Iterable[Fields]) -> list[QueueTogether]:
    """The queues of all nodes that answer, by next hop, with the ``parts`` of each node."""
    answering = [one for one in entries if one["answers"]]
    parts: dict[str, list[QueuePart]] = {}
    for one in answering:
        for found in one["queues"]:
            part: QueuePart = {"node": one["node"], "messages": found["messages"]}
            parts.setdefault(found["next_hop"], []).append(part)
    every = fold(QueuesLook, answering).get("queues", [])
    return [{**one, "parts": parts[one["next_hop"]]} for one in every]


def rates(entries: Iterable[Fields]) -> list[_Entry]:
    """One entry for each node: what came at its workers, second by second."""
    return [one for one, _ in _by_node(RatesLook, entries)]


def tls(entries: Iterable[Fields]) -> list[_Entry]:
    """One entry for each node: the last results of TLS at its workers."""
    return [one for one, _ in _by_node(TlsLook, entries)]


def tls_together(entries: Iterable[Fields]) -> list[TlsEntry]:
    """The last results of TLS at all nodes that answer."""
    return fold(TlsLook, [one for one in entries if one["answers"]]).get("results", [])


def queue(entries: Iterable[Fields]) -> list[_Entry]:
    """One entry for each node: what its workers know of one next hop."""
    return [one for one, _ in _by_node(HopLook, entries)]


def _by_node(model: type, entries: Iterable[Fields]) -> Iterator[tuple[_Entry, list[_Entry]]]:
    """An entry for each node, and the entries of its workers that answer, by their numbers.

    ``workers`` of a node of several: whether each answers.
    """
    every = [{**one, **read(model, dict(one))} if one["answers"] else one for one in entries]
    for node in dict.fromkeys(node_name(one["node"]) for one in every):
        workers = sorted(of_node(every, node), key=lambda one: number_of(ServerName(one["node"])))
        answering = [one for one in workers if one["answers"]]
        several = [one["node"] for one in workers] != [node]
        entry: _Entry = {"node": node, "answers": bool(answering), "why": _why(node, workers)}
        if several:
            entry["workers"] = [{key: one[key] for key in NodeAnswers.__annotations__} for one in workers]
        if answering:
            silent = len(workers) - len(answering)
            entry = {**fold(model, answering, node, silent=silent), **entry}
        yield entry, answering


def _why(node: str, workers: Sequence[_Entry]) -> str:
    """Which of the workers say nothing, or not all, and why."""
    failing = [one for one in workers if one["why"]]
    if not failing or [one["node"] for one in workers] == [node]:
        return str(failing[0]["why"]) if failing else ""
    reasons = sorted(failing, key=lambda one: str(one["why"]))
    told = "; ".join(
        f"{workers_called([one['node'] for one in some])}: {why}"
        for why, some in ((why, list(some)) for why, some in groupby(reasons, lambda one: one["why"]))
    )
    silent = sum(not one["answers"] for one in workers)
    if not silent:
        return told
    if silent == len(workers):
        return f"none of its {len(workers)} workers answers: {told}" if len(workers) > 1 else told
    return f"{silent} of its {len(workers)} workers {'does' if silent == 1 else 'do'} not answer: {told}"
