"""Small charts as SVG: lines over time, and distributions. They take their colours from the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from markupsafe import Markup

WIDTH, HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 14, 40

Points = Sequence[tuple[float, float]]


def distribution(series: Mapping[str, Points], label: str) -> Markup:
    """Share of messages (0 to 1) that took no longer than a time (milliseconds, on a logarithmic scale)."""
    xs = [x for points in series.values() for x, _ in points]
    if not xs:
        return Markup("")
    low = math.floor(math.log10(max(1.0, min(xs))))
    high = max(low + 1, math.ceil(math.log10(max(1.0, *xs))))

    def place(x: float) -> float:
        return _across((math.log10(max(1.0, x)) - low) / (high - low))

    ticks = [(place(10.0**power), _duration(10.0**power)) for power in range(low, high + 1)]
    marks = [(_down(share), f"{share:.0%}") for share in (0, 0.5, 0.9, 1)]
    lines = {name: [(place(x), _down(y)) for x, y in points] for name, points in series.items()}
    return _chart(lines, ticks, marks, label, steps=True)


def over_time(series: Mapping[str, Points], label: str) -> Markup:
    """Counts over time (milliseconds since 1970)."""
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    if len(xs) < 2 or max(xs) == min(xs):
        return Markup("")
    begin, end, top = min(xs), max(xs), _round_up(max([*ys, 1.0]))

    def place(x: float) -> float:
        return _across((x - begin) / (end - begin))

    long = end - begin > 2 * 86_400_000
    ticks = []
    for part in range(5):
        x = begin + (end - begin) * part / 4
        moment = datetime.fromtimestamp(x / 1000, UTC)
        ticks.append(
            (place(x), moment.strftime("%d %b" if long else "%H:%M:%S" if end - begin < 600_000 else "%H:%M"))
        )
    marks = [(_down(part / 4), f"{top * part / 4:,.0f}") for part in range(5)]
    lines = {
        name: [(place(x), _down(max(y, 0.0) / top)) for x, y in points] for name, points in series.items()
    }
    return _chart(lines, ticks, marks, label, steps=True)


def _across(share: float) -> float:
    return _LEFT + share * (WIDTH - _LEFT - _RIGHT)


def _down(share: float) -> float:
    return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def _round_up(value: float) -> float:
    size = 10.0 ** math.floor(math.log10(value))
    return float(next(step * size for step in (1, 2, 4, 5, 8, 10) if step * size >= value))


def _duration(milliseconds: float) -> str:
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if milliseconds >= size:
            return f"{milliseconds / size:.2g} {unit}"
    return f"{milliseconds:.3g} ms"


def _chart(
    lines: Mapping[str, Points],
    ticks: Sequence[tuple[float, str]],
    marks: Sequence[tuple[float, str]],
    label: str,
    *,
    steps: bool,
) -> Markup:
    parts = [
        Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}" class="chart">').format(
            WIDTH, HEIGHT, label
        )
    ]
    for y, text in marks:
        parts.append(
            Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
                _LEFT, WIDTH - _RIGHT, y, y
            )
        )
        parts.append(Markup('<text class="mark" x="{}" y="{:.1f}">{}</text>').format(_LEFT - 6, y + 4, text))
    for number, (x, text) in enumerate(ticks):
        anchor = "end" if number == len(ticks) - 1 else "start" if number == 0 else "middle"
        parts.append(
            Markup('<text class="tick" text-anchor="{}" x="{:.1f}" y="{}">{}</text>').format(
                anchor, x, HEIGHT - _BOTTOM + 16, text
            )
        )
    for number, (name, points) in enumerate(lines.items()):
        path = _path(points, steps=steps)
        parts.append(
            Markup('<path class="line s{}" d="{}"><title>{}</title></path>').format(number % 4, path, name)
        )
    if len(lines) > 1:
        for number, name in enumerate(list(lines)[:4]):
            x, y = _LEFT + 4 + number * (WIDTH - _LEFT) / 4, HEIGHT - 6
            parts.append(
                Markup('<circle class="dot s{}" cx="{:.1f}" cy="{}" r="4"/>').format(number, x, y - 4)
            )
            parts.append(Markup('<text class="key" x="{:.1f}" y="{}">{}</text>').format(x + 9, y, name[:22]))
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _path(points: Points, *, steps: bool) -> str:
    found = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"] if points else []
    for x, y in points[1:]:
        found.append(f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f} {y:.1f}")
    return "".join(found)
