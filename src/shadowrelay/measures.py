"""Histograms of durations, cheap enough for the path of a message: one list item and one sum each.

A process keeps them in memory from its start on; ``admin/queue_metrics.py`` shows them. Only the event loop
observes.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

Name = TypeVar("Name", bound=str)

QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds in seconds, for what a sender waits for."""

SLOW = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
"""Upper bounds in seconds, for attempts and batches: a next hop may take ten minutes for a reply."""

MOST_HOPS = 20
"""Next hops that have a label of their own, besides those of the settings."""

OTHER = "other"
"""The label of all further next hops. A next hop of the settings with this name shares it."""

now = time.perf_counter
"""The clock of all durations, in seconds."""


class Histogram:
    """Durations by bucket. ``bounds`` are upper bounds; one more bucket has what is longer than the last."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = QUICK) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def since(self, began: float) -> None:
        """Observe the time since ``began``, a value of ``now``."""
        self.observe(now() - began)

    @property
    def number(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[tuple[str, float]]:
        """Each upper bound as text, with how many durations were no longer; ``+Inf`` is the last."""
        found, count = [], 0
        for bound, here in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            count += here
            found.append((bound, float(count)))
        return found


class ByHop:
    """One histogram for each next hop. Its labels are bounded.

    The next hops of the settings (``fixed``) always have their own. Of the others, the first ``most`` that
    mail is sent to after the start have their own for as long as the process runs; the rest share OTHER.
    """

    __slots__ = ("_bounds", "_left", "each", "fixed")

    def __init__(
        self, fixed: Collection[str] = (), bounds: tuple[float, ...] = SLOW, most: int = MOST_HOPS
    ) -> None:
        self.fixed, self._bounds, self._left = frozenset(fixed), bounds, most
        self.each = {hop: Histogram(bounds) for hop in fixed}  # rates include the first attempt

    def observe(self, hop: str, seconds: float) -> None:
        (self.each.get(hop) or self._of(hop)).observe(seconds)

    def _of(self, hop: str) -> Histogram:
        if hop not in self.fixed:
            if self._left:
                self._left -= 1
            else:
                hop = OTHER
        return self.each.setdefault(hop, Histogram(self._bounds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """The histograms of one node.

    ``acknowledgement``: from the end of the content to the 250, for 250s that do not wait by design.
    ``shadow_commit``: from the offer of a copy of new mail to the holder's acknowledgement. ``delivery``: one
    attempt. ``scrub``: one message read and compared. ``resubmit``: one batch of messages made.
    ``spans``: of traces, by what became of them.
    """

    acknowledgement: Histogram = field(default_factory=Histogram)
    shadow_commit: Histogram = field(default_factory=Histogram)
    delivery: ByHop = field(default_factory=ByHop)
    scrub: Histogram = field(default_factory=Histogram)
    resubmit: Histogram = field(default_factory=lambda: Histogram(SLOW))
    spans: Mapping[str, int] = field(default_factory=dict)


def bounded(
    depths: Mapping[Name, int], fixed: Collection[str], most: int = MOST_HOPS
) -> tuple[list[str], list[Name]]:
    """Which next hops a page shows by name, and which together as OTHER.

    Those of the settings are shown by name. So are the ``most`` others with the most messages; of two with
    as many, the first by name.
    """
    others = sorted((hop for hop in depths if hop not in fixed), key=lambda hop: (-depths[hop], hop))
    return sorted({*fixed, *others[:most]}), others[most:]
