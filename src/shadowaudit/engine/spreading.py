"""Rows of work spread over an engine's tasks, the heavy ones first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_SLICES = 4  # a core: heavy work at the end of a job keeps others waiting less
_ROW = 0.02  # of the mean: what a row costs besides its weight


def spread(
    session: Any, work: Sequence[tuple[tuple[Any, ...], int]], slices: int
) -> tuple[Any, list[list[tuple[Any, ...]]]]:
    """A frame of one row ``id`` a partition, and what is to be done for each: about the same weight.

    ``work``: rows and their weights. No data has to be moved before the tasks begin.
    """
    parts = _balanced(work, max(1, min(slices * _SLICES, len(work))))
    return session.range(0, len(parts), 1, len(parts)), parts


def _balanced(work: Sequence[tuple[tuple[Any, ...], int]], parts: int) -> list[list[tuple[Any, ...]]]:
    """The heaviest first, each to the part that has least."""
    slots: list[list[tuple[Any, ...]]] = [[] for _ in range(parts)]
    load = [0.0] * parts
    least = _ROW * sum(weight for _, weight in work) / max(1, len(work)) + 1
    for row, weight in sorted(work, key=lambda one: -one[1]):
        slot = load.index(min(load))
        slots[slot].append(row)
        load[slot] += weight + least
    return [slot for slot in slots if slot]
