"""Small charts as SVG: lines over time, distributions, and bars. They take their colours from the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from markupsafe import Markup

WIDTH, HEIGHT = 640, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 14, 26
_DAY = 86_400_000
_COLOURS = 4

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

    ticks = [(place(10.0**power), duration(10.0**power)) for power in range(low, high + 1)]
    marks = [(_down(share), f"{share:.0%}") for share in (0, 0.5, 0.9, 1)]
    lines = {name: [(place(x), _down(y)) for x, y in points] for name, points in series.items()}
    return _chart(_lines(lines), ticks, marks, label, list(series))


def over_time(series: Mapping[str, Points], label: str) -> Markup:
    """Counts over time (milliseconds since 1970). Each holds until the next one of its series."""
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    if len(xs) < 2 or max(xs) == min(xs):
        return Markup("")
    begin, end, top = min(xs), max(xs), _round_up(max([*ys, 1.0]))

    def place(x: float) -> float:
        return _across((x - begin) / (end - begin))

    span = end - begin
    shape = (
        "%b %Y" if span > 300 * _DAY else "%d %b" if span > 2 * _DAY else "%H:%M" if span > 600_000 else "%T"
    )
    ticks = []
    for part in range(5):
        x = begin + span * part / 4
        ticks.append((place(x), datetime.fromtimestamp(x / 1000, UTC).strftime(shape)))
    lines = {
        name: [(place(x), _down(max(y, 0.0) / top)) for x, y in points] for name, points in series.items()
    }
    return _chart(_lines(lines), ticks, _counts(top), label, list(series))


def bars(
    values: Sequence[tuple[str, float]], label: str, told: Callable[[float], str] | None = None
) -> Markup:
    """One bar for each value, with its name below where there is room. ``told``: a value in words."""
    if not any(value > 0 for _, value in values):
        return Markup("")
    top = _round_up(max(1.0, *(value for _, value in values)))
    width = (WIDTH - _LEFT - _RIGHT) / len(values)
    parts = []
    for number, (name, value) in enumerate(values):
        height = max(value, 0.0) / top * (HEIGHT - _TOP - _BOTTOM)
        parts.append(
            Markup(
                '<rect class="bar s0" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
                "<title>{}: {}</title></rect>"
            ).format(
                _LEFT + number * width + width * 0.1,
                HEIGHT - _BOTTOM - height,
                width * 0.8,
                height,
                name,
                told(value) if told else f"{value:,.0f}",
            )
        )
    every = math.ceil(len(values) / 8)
    ticks = [
        (_LEFT + (number + 0.5) * width, name)
        for number, (name, _) in enumerate(values)
        if number % every == 0
    ]
    return _chart(Markup("").join(parts), ticks, _counts(top), label, (), middle=True)


def duration(milliseconds: float) -> str:
    """With two digits."""
    for size, unit in ((_DAY, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if milliseconds >= size:
            return f"{milliseconds / size:.2g} {unit}"
    return f"{milliseconds:.3g} ms"


def short(value: float) -> str:
    """A count for the side of a chart."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= size:
            return f"{value / (1e3 if unit == ' k' else size):.3g}{unit}"
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def _across(share: float) -> float:
    return _LEFT + share * (WIDTH - _LEFT - _RIGHT)


def _down(share: float) -> float:
    return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def _round_up(value: float) -> float:
    size = 10.0 ** math.floor(math.log10(value))
    return float(next(step * size for step in (1, 2, 4, 5, 8, 10) if step * size >= value))


def _counts(top: float) -> list[tuple[float, str]]:
    """Marks for counts: no more of them than there are whole numbers."""
    parts = min(5 if f"{top:.0e}"[0] in "15" else 4, int(top))
    return [(_down(part / parts), short(top * part / parts)) for part in range(parts + 1)]


def _lines(lines: Mapping[str, Points]) -> Markup:
    return Markup("").join(
        Markup('<path class="line s{}" d="{}"><title>{}</title></path>').format(
            number % _COLOURS, _path(points), name
        )
        for number, (name, points) in enumerate(lines.items())
    )


def _chart(
    drawn: Markup,
    ticks: Sequence[tuple[float, str]],
    marks: Sequence[tuple[float, str]],
    label: str,
    names: Sequence[str],
    *,
    middle: bool = False,
) -> Markup:
    """``middle``: the first and the last tick stand below their place, not inside the chart."""
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
        anchor = "middle"
        if not middle and number in (0, len(ticks) - 1):
            anchor = "end" if number else "start"
        parts.append(
            Markup('<text class="tick{}" text-anchor="{}" x="{:.1f}" y="{}">{}</text>').format(
                " spare" if len(ticks) > 3 and number % 2 else "", anchor, x, HEIGHT - 6, text
            )
        )
    parts += [drawn, Markup("</svg>")]
    if len(names) > 1:
        parts.append(_keys(names))
    return Markup("").join(parts)


def _keys(names: Sequence[str]) -> Markup:
    """Which colour is which: below the picture, so that long names have room on a phone."""
    each = (
        Markup('<li class="s{}">{}</li>').format(number % _COLOURS, name) for number, name in enumerate(names)
    )
    return Markup('<ul class="keys">{}</ul>').format(Markup("").join(each))


def _path(points: Points) -> str:
    found = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"] if points else []
    found += [f"H{x:.1f}V{y:.1f}" for x, y in points[1:]]
    return "".join(found)
