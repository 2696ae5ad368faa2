"""Rows of work spread over an engine's tasks, the heavy ones first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_SLICES = 4  # a core: heavy work at the end of a job keeps others waiting less
_ROW = 0.02  # of the mean: what a row costs besides its weight


def spread(session: Any, work: Sequence[tuple[tuple[Any, ...], int]], shape: str, slices: int) -> Any:
    """A frame of ``shape`` whose partitions have about the same weight. ``work``: rows and their weights."""
    balanced = _balanced(work, max(1, min(slices * _SLICES, len(work))))
    rows = [(number, *row) for number, part in enumerate(balanced) for row in part]
    frame = session.createDataFrame(rows, f"slice int, {shape}")
    return frame.repartitionByRange(len(balanced), "slice") if len(balanced) > 1 else frame.coalesce(1)


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
