"""Small charts as SVG. All looks are in the stylesheet: the policy for content allows no inline style."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from shadowrelay.admin.rates import SECONDS, Flow
from shadowrelay.shown.status import RatesLook

_WIDE, _HIGH = 300, 64
_TOP = 6
_STEP = 5  # seconds that one point of a line is the mean of
_NOW = 5


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: what it shows, the rate now, the highest, and how many in all."""

    flow: Flow
    now: float
    most: float
    total: int
    svg: Markup

    @property
    def rate(self) -> str:
        return rate(self.now)

    @property
    def highest(self) -> str:
        return rate(self.most)


def rate(found: float) -> str:
    if found == 0:
        return "0"
    return f"{found:.0f}" if found >= 10 else f"{found:.1f}"


def charts(seen: RatesLook) -> list[Chart]:
    return [chart(flow, seen[flow.value]) for flow in Flow]


def chart(flow: Flow, seen: Sequence[int]) -> Chart:
    """The last minutes of one flow; the right edge is now."""
    padded = (0,) * (SECONDS - len(seen)) + tuple(seen)
    points = [sum(padded[at : at + _STEP]) / _STEP for at in range(0, SECONDS, _STEP)]
    most = max(points)
    scale = (_HIGH - _TOP - 2) / most if most else 0
    across = _WIDE / (len(points) - 1)
    line = " ".join(f"{at * across:.1f},{_HIGH - 2 - one * scale:.1f}" for at, one in enumerate(points))
    told = f"{flow.value}: {rate(points[-1])} per second now, {rate(most)} at most in the last five minutes"
    svg = Markup(
        '<svg class="spark {flow}" viewBox="0 0 {wide} {high}" preserveAspectRatio="none" role="img" '
        'aria-label="{told}"><path class="area" d="M0,{high} L{line} L{wide},{high} Z"/>'
        '<polyline class="line" points="{line}"/></svg>'
    ).format(flow=flow.value, wide=_WIDE, high=_HIGH, told=told, line=line)
    return Chart(flow, sum(padded[-_NOW:]) / _NOW, most, sum(seen), svg)
