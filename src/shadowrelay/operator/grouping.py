"""Puts what the workers of a node answer together: one entry for each node. Pure.

Counts are summed, the worst state is told, and a node of whose workers one is silent says so. What names no
worker other than a first one is told as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.workers import node_of, number_of
from shadowrelay.operator.finding import Entry

_SUMMED = (
    *("queued", "exposed", "asking", "in_doubt", "set_aside", "damaged", "damaged_aside", "promoting"),
    *("shadow_held", "safety_net", "refused", "kept_for_hops", "discard_events", "commits", "resubmitted"),
)
_SCRUBBED = ("messages", "messages_of", "octets", "octets_of", "damaged_content", "damaged_rows", "mended")
_STATES = ("unreachable", "not_configured", "untried", "reachable")
"""States of a member, the worst first."""


def node_name(member: str) -> str:
    """The node of which that member is a worker."""
    return node_of(ServerName(member))


def is_later_worker(member: str) -> bool:
    """Does the name alone say that it is a worker? The first one has the name of its node."""
    return number_of(ServerName(member)) > 1


def label(member: str) -> str:
    """A short name: the first label of the node's, with the worker before it, unless that is the first."""
    number, first = number_of(ServerName(member)), node_name(member).partition(".")[0]
    return first if number == 1 else f"w{number}.{first}"


def of_node(entries: Iterable[Entry], member: str) -> list[Entry]:
    """The entries of the node of that member: of all its workers."""
    return [one for one in entries if node_name(one["node"]) == node_name(member)]


def by_worker(entries: Iterable[Entry]) -> list[Entry]:
    """The entries with the workers of each node together, the nodes in their order."""
    every = list(entries)
    nodes = list(dict.fromkeys(node_name(one["node"]) for one in every))
    return sorted(
        every, key=lambda one: (nodes.index(node_name(one["node"])), number_of(ServerName(one["node"])))
    )


def statuses(entries: Iterable[Entry]) -> list[Entry]:
    """One entry for each node, with the ``status`` of its workers as one, in the order of the entries."""
    return list(_grouped(entries, _one_status))


def any_worker(entries: Iterable[Entry]) -> bool:
    """Is there a worker other than a first one among these nodes and the members that they name?"""
    return any(
        is_later_worker(name)
        for one in entries
        for name in (one["node"], *(peer["name"] for peer in one.get("status", {}).get("peers", ())))
    )


def peers(found: Sequence[Entry], node: str) -> list[Entry]:
    """The members that workers of a node know, as nodes; without that node.

    Of a node of several workers: ``workers`` has their names, ``away`` those that cannot be reached.
    """
    own = node_name(node)
    names = dict.fromkeys(node_name(one["name"]) for one in found)
    by_name = {name: [one for one in found if node_name(one["name"]) == name] for name in names}
    return [_peer(name, some) for name, some in by_name.items() if name != own]


def grouped(
    entries: Iterable[Entry], merged: Callable[[str, Sequence[Entry]], Entry], names: Callable[[Entry], Any]
) -> Iterator[Entry]:
    """One entry for each node. ``merged`` makes one of what several workers say; of a node of one worker it
    is asked for only if ``names`` finds a worker in what the node says.
    """
    every = list(entries)
    for node in dict.fromkeys(node_name(one["node"]) for one in every):
        workers = sorted(
            (one for one in every if node_name(one["node"]) == node),
            key=lambda one: number_of(ServerName(one["node"])),
        )
        first = workers[0]
        answering = [one for one in workers if one["answers"]]
        if len(workers) == 1 and first["node"] == node and not (answering and names(first)):
            yield first
            continue
        entry = {"node": node, "answers": bool(answering), "why": _why(workers)}
        if len(workers) > 1 or first["node"] != node:
            entry["workers"] = [{key: one[key] for key in ("node", "answers", "why")} for one in workers]
        yield {**entry, **(merged(node, answering) if answering else {})}


def _grouped(entries: Iterable[Entry], merged: Callable[[str, Sequence[Entry]], Entry]) -> Iterator[Entry]:
    return grouped(
        entries, merged, lambda one: any(is_later_worker(peer["name"]) for peer in one["status"]["peers"])
    )


def _why(workers: Sequence[Entry]) -> str:
    """Which of the workers say nothing, or not all, and why."""
    failing = [one for one in workers if one["why"]]
    if not failing or (len(workers) == 1 and workers[0]["node"] == node_name(workers[0]["node"])):
        return str(failing[0]["why"]) if failing else ""
    reasons = sorted(failing, key=lambda one: str(one["why"]))
    told = "; ".join(
        f"{_labels([one['node'] for one in some])}: {why}"
        for why, some in ((why, list(some)) for why, some in groupby(reasons, lambda one: one["why"]))
    )
    silent = sum(not one["answers"] for one in workers)
    if not silent:
        return told
    if silent == len(workers):
        return f"none of its {len(workers)} workers answers: {told}" if len(workers) > 1 else told
    return f"{silent} of its {len(workers)} workers {'does' if silent == 1 else 'do'} not answer: {told}"


def _labels(names: Sequence[str]) -> str:
    """``worker 2``, ``workers 2 and 3``."""
    numbers = [str(number_of(ServerName(name))) for name in names]
    listed = " and ".join(filter(None, (", ".join(numbers[:-1]), numbers[-1])))
    return f"worker{'' if len(numbers) == 1 else 's'} {listed}"


def _one_status(node: str, answering: Sequence[Entry]) -> Entry:
    found = [one["status"] for one in answering]
    first = found[0]
    seen = [peer for one in found for peer in one["peers"]]
    if len(found) == 1 and len({*(one["node"] for one in answering), node}) == 1:
        return {"status": {**first, "peers": peers(seen, node)}}
    ready = any(one["ready"] for one in found)
    late = [one["acknowledged_late"] for one in found]
    return {
        "status": {
            **first,
            "name": node,
            "version": ", ".join(dict.fromkeys(one["version"] for one in found)),
            "started_at": max(one["started_at"] for one in found),
            "uptime": min(one["uptime"] for one in found),
            "ready": ready,
            "not_ready_because": "" if ready else _told(found, "not_ready_because"),
            "warning": "; ".join(filter(None, (_told(found, "warning"), _idle(found) if ready else ""))),
            "draining": any(one["draining"] for one in found),
            "redundancy": all(one["redundancy"] for one in found),
            **dict.fromkeys(("database_id", "incarnation", "sequence")),
            **{key: sum(one[key] for one in found) for key in _SUMMED if key in first},
            **{
                key: least(one.get(key) for one in found)
                for key in ("oldest_queued", "oldest_held", "overdue_since")
            },
            "acknowledged_late": {
                "longest": max(one["longest"] for one in late),
                "waiting": sum(one["waiting"] for one in late),
            },
            "scrub": _scrub([one["scrub"] for one in found]),
            "corrupt_database": next(filter(None, (one["corrupt_database"] for one in found)), None),
            "peers": peers(seen, node),
            "workers": [{key: value for key, value in one.items() if key != "peers"} for one in found],
        }
    }


def _told(found: Sequence[Entry], key: str) -> str:
    """What all workers say alike, or each that says something, with its number."""
    texts = dict.fromkeys(one[key] for one in found)
    if len(texts) == 1:
        return str(next(iter(texts)))
    return "; ".join(f"{_labels([one['name']])}: {one[key]}" for one in found if one[key])


def _idle(found: Sequence[Entry]) -> str:
    return "; ".join(
        f"{_labels([one['name']])} takes no mail: {one['not_ready_because']}"
        for one in found
        if not one["ready"]
    )


def least(values: Iterable[Any]) -> Any:
    """The least of those that are known; None if none is."""
    return min((one for one in values if one is not None), default=None)


def _scrub(found: Sequence[Entry]) -> Entry:
    """The round of the worker that is furthest behind, with what all have read."""
    behind = min(found, key=lambda one: (one["complete_at"] or "", one["progress"] or 0.0))
    return {**behind, **{key: sum(one[key] for one in found) for key in _SCRUBBED}}


def _peer(name: str, found: Sequence[Entry]) -> Entry:
    """A node as the workers of another see its workers."""
    if len(found) == 1 and found[0]["name"] == name:
        return found[0]
    counted = [one for one in found if not one["retired"]]
    some = counted or list(found)
    worst = min(some, key=_how_bad)
    names = sorted({one["name"] for one in some}, key=lambda one: number_of(ServerName(one)))
    away = [name for name in names if any(one["name"] == name and one["state"] == _STATES[0] for one in some)]
    merged = {
        **worst,
        "name": name,
        "address": next((one["address"] for one in some if one["name"] == name), worst["address"]),
        "last_contact": max(filter(None, (one["last_contact"] for one in some)), default=None),
        "retired": not counted,
        **dict.fromkeys(("database_id", "incarnation", "sequence", "applied")),
        **{key: sum(one[key] for one in found) for key in ("shadow_held", "holds_ours", "events_waiting")},
        "workers": names,
        "away": away,
    }
    if worst["next"] and counted and len({one["next"] for one in some}) > 1:
        merged["next"] = f"{_labels([worst['name']])}: {worst['next']}"
    return merged


def _how_bad(one: Entry) -> tuple[int, str, int]:
    """The order of members: the worst state, the longest silence, the most mail held for it."""
    state = _STATES.index(one["state"]) if one["state"] in _STATES else 0
    return state, one["since"] or "~", -one["shadow_held"]
