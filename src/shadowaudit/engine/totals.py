"""Counts and distributions over messages: of some of them, to be added to those of all others."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shadowaudit.core.facts import FileFacts
from shadowaudit.engine.messages import MOMENTS, Rows

Long = NDArray[np.int64]

STEPS_PER_DECADE = 20
"""Latencies are counted in steps of a twentieth of a power of ten: 12 % wide."""

CURVE_POINTS = 240
_STEPS = 512  # more than there are steps in 64 bits

_CHANGES = {
    "accepted_at": ("messages", 1),
    "final_at": ("messages", -1),
    "held_at": ("copies", 1),
    "discard_at": ("copies", -1),
}


def span(files: Sequence[FileFacts], since: int | None = None, until: int | None = None) -> tuple[int, int]:
    """The time that the curves show."""
    first = max(min((one.begins for one in files if one.begins > 0), default=0), since or 0)
    return first, min(max((one.ends for one in files), default=0), until or sys.maxsize)


def width_of(first: int, last: int) -> int:
    """Milliseconds from one point of the curve to the next.

    A power of two in seconds, and points are multiples of it: so counts for a short time can be added to
    those for a longer one, exactly.
    """
    width = 1000
    while last // width - first // width >= CURVE_POINTS:
        width *= 2
    return width


def tally(messages: Rows, width: int) -> dict[str, Any]:
    """What these messages add to the counts, plainly, for a curve with points of that ``width``."""
    moments = [messages[name][messages.has(name)] for name in MOMENTS]
    known = [one for one in moments if len(one)]
    # Ends beyond the recipients: not where it is not known how many there were.
    begun = (messages["origins"] > 0) & (messages["exchange"] == 0)
    more = np.where(begun, np.maximum(messages["ended"] - messages["recipients"], 0), 0)
    dropped = np.minimum(more, messages["ended"] - messages["settled"] - messages["bounced"])
    totals = {
        "messages": int((messages["rows"] > 0).sum()),  # of others only a report tells
        "received": int(messages["received"].sum()),
        "made_here": int((messages["origins"] - messages["received"] - messages["resubmitted"]).sum()),
        "resubmitted": int(messages["resubmitted"].sum()),
        "recipients": int(messages["recipients"].sum()),
        "ended": int(messages["ended"].sum()),
        "delivered": int(messages["settled"].sum()),
        "again": int(np.minimum(more - dropped, messages["settled"]).sum()),
        "dropped": int(dropped.sum()),
        "open": int(np.maximum(messages["recipients"] - messages["ended"], 0).sum()),
        "bounced": int(messages["bounced"].sum()),
        "rows": int(messages["rows"].sum()),
        "suspects": int((messages.suspect & (messages["rows"] > 0)).sum()),
        "deferred": int((messages["defers"] > 0).sum()),
    }
    return {
        "totals": totals,
        "first_at": min((int(one.min()) for one in known), default=None),
        "last_at": max((int(one.max()) for one in known), default=None),
        "latencies": _latencies(messages),
        "changes": _changes(messages, width),
        "width": width,
    }


def _latencies(messages: Rows) -> list[list[Any]]:
    """Rows of measure, node, hop, step, count."""
    accepted, final, discarded = messages["accepted_at"], messages["final_at"], messages["discard_at"]
    begun, ended = messages.has("accepted_at"), messages.has("final_at")
    # A UUIDv7 begins with the moment at which it was given.
    given = (messages["high"].view(np.uint64) >> np.uint64(16)).view(np.int64)
    waited = accepted - given
    plausible = (waited >= -60_000) & (waited <= 3_600_000) & (messages["exchange"] == 0)
    measures = {
        "accept": (waited, begun & (messages["received"] == 1) & plausible),
        "deliver": (final - accepted, begun & ended & (messages["settled"] > 0)),
        "discard": (discarded - final, ended & messages.has("discard_at") & (messages["holds"] > 0)),
    }
    nodes, node = _places(messages, "origin_node")
    hops, hop = _places(messages, "hop")
    found = []
    for name, (value, where) in measures.items():
        step = np.log10(np.maximum(value[where], 0) + 1.0) * STEPS_PER_DECADE
        key = (node[where] * len(hops) + hop[where]) * _STEPS + np.floor(step).astype(np.int64)
        for one, count in _counted(key):
            pair, at = divmod(one, _STEPS)
            found.append([name, int(nodes[pair // len(hops)]), int(hops[pair % len(hops)]), at, count])
    return found


def _places(messages: Rows, name: str) -> tuple[Long, Long]:
    """Each value once, and for each message the place of its own."""
    found = pa.array(np.where(messages.has(name), messages[name], 0)).dictionary_encode()
    return found.dictionary.to_numpy(), found.indices.to_numpy().astype(np.int64)


def _counted(values: Long) -> Iterator[tuple[int, int]]:
    """Each value, and how often it is there. Without sorting, as they are few."""
    found = pa.array(values).value_counts()
    return zip(*(found.field(name).to_pylist() for name in ("values", "counts")), strict=True)


def _changes(messages: Rows, width: int) -> list[list[Any]]:
    """Rows of point, what, change."""
    found = []
    for name, (what, sign) in _CHANGES.items():
        points = messages[name][messages.has(name)] // width
        found += [[point, what, sign * count] for point, count in _counted(points)]
    return found


def added(tallies: Iterable[Mapping[str, Any]], first: int, last: int) -> dict[str, Any]:
    """Tallies of all messages' parts as one, for a curve from ``first`` to ``last``.

    None of the tallies may be for a longer time. What is out of the range counts at its edge.
    """
    width = width_of(first, last)
    begin, end = first // width, max(first, last) // width
    totals: Counter[str] = Counter()
    latencies: Counter[tuple[str, int, int, int]] = Counter()
    changes: Counter[tuple[int, str]] = Counter()
    moments: list[int] = []
    for one in tallies:
        totals.update(one["totals"])
        for measure, node, hop, step, count in one["latencies"]:
            latencies[measure, node, hop, step] += count
        for point, what, change in one["changes"]:
            changes[min(max(point * one["width"] // width, begin), end), what] += change
        moments += [one[name] for name in ("first_at", "last_at") if one[name] is not None]
    known = {"first_at": min(moments, default=0), "last_at": max(moments, default=0)}
    return {"totals": dict(totals) | known, "latencies": latencies, "changes": changes}


def latencies(
    found: Mapping[tuple[str, int, int, int], int], names: Mapping[int, str], nodes: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Counts by measure, node, next hop and step, of times on one node's clock (``discard``: on two).

    ``nodes``: the node of each server; those of its workers are one row.
    """
    summed: Counter[tuple[str, str, str, int]] = Counter()
    for (measure, server, hop, step), count in sorted(found.items()):
        name = names.get(server, "")
        summed[measure, nodes.get(name, name), names.get(hop, ""), step] += count
    return [
        {"measure": measure, "node": node, "hop": hop, "step": step, "count": count}
        for (measure, node, hop, step), count in summed.items()
    ]


def curve(changes: Mapping[tuple[int, str], int], width: int) -> list[dict[str, int]]:
    """Messages in transit and copies held at even points of time.

    Accepted messages that never ended stay in transit; copies that were never discarded stay held.
    """
    points: list[dict[str, int]] = []
    now = {"messages": 0, "copies": 0}
    for point in range(min((p for p, _ in changes), default=0), max((p for p, _ in changes), default=-1) + 1):
        for what in now:
            now[what] += changes.get((point, what), 0)
        points.append({"at": point * width, **now})
    return points
