"""Histograms: what their steps mean, and how exactly a percentile of them is known.

A latency of ``m`` milliseconds is in step ``floor(log10(m + 1) * 20)``: a power of ten has 20 steps, each of
12 %. A size of ``n`` octets is in step ``floor(log2(max(n, 1)))``: a step ends at twice its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

STEPS_OF_TEN = 20
WIDTH = 10 ** (1 / STEPS_OF_TEN) - 1
"""How much wider the end of a step of latencies is than its beginning: 0.122."""

PERCENTS = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Between:
    """A value that is known to be in a step: ``least`` at least, and below ``below``."""

    least: float
    below: float


def latency(step: int) -> Between:
    """The milliseconds of that step."""
    return Between(10 ** (step / STEPS_OF_TEN) - 1, 10 ** ((step + 1) / STEPS_OF_TEN) - 1)


def size(step: int) -> Between:
    """The octets of that step. An empty message is in the first one."""
    return Between(2**step if step > 0 else 0, 2 ** (step + 1))


def percentile(counts: Mapping[int, int], percent: int) -> int | None:
    """The step with the least value that so many per cent of all values do not exceed. None: no values.

    ``counts``: values by step. It is the step of the value with rank ``ceil(percent * all / 100)``.
    """
    total = sum(counts.values())
    rank = max(1, -(-percent * total // 100))
    so_far = 0
    for step in sorted(counts):
        so_far += counts[step]
        if so_far >= rank:
            return step
    return None


def percentiles(counts: Mapping[int, int], edges: Callable[[int], Between]) -> dict[int, Between]:
    """Each of ``PERCENTS`` with the step that it is in. Empty: no values."""
    found = {percent: percentile(counts, percent) for percent in PERCENTS}
    return {percent: edges(step) for percent, step in found.items() if step is not None}
