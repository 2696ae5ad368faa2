"""Numbers, sizes, times and names as people read them."""

from __future__ import annotations

from shadowaudit.summary.steps import Between

UNKNOWN = "–"


def octets(value: float) -> str:
    """With a binary prefix and three digits."""
    for size, unit in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= size:
            return f"{value / size:.{_digits(value / size)}f} {unit}"
    return f"{value:.0f} B"


def seconds(milliseconds: float) -> str:
    """With three digits at most."""
    if milliseconds < 1000:
        return f"{milliseconds:.{_digits(milliseconds)}f} ms"
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (120_000, "min"), (1000, "s")):
        if milliseconds >= size:
            part = milliseconds / (60_000 if unit == "min" else size)
            return f"{part:.{_digits(part)}f} {unit}"
    raise AssertionError(milliseconds)


def share(part: int, whole: int) -> str:
    """Per cent, so that no part reads as nothing, and nothing but all as all."""
    if not whole:
        return UNKNOWN
    per_cent = 100 * part / whole
    if 0 < per_cent < 0.01:
        return "< 0.01 %"
    if part != whole and per_cent > 99.9:
        return "> 99.9 %"
    return f"{per_cent:.{0 if part in (0, whole) else 2 if per_cent < 1 else 1}f} %"


def at_most(between: Between | None) -> str:
    """The end of a step of latencies."""
    return UNKNOWN if between is None else seconds(between.below)


def plain(text: str | None) -> str:
    """On one line, without characters that a terminal obeys: what strangers wrote is only to be read."""
    if not text:
        return UNKNOWN
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


def _digits(value: float) -> int:
    return 2 if value < 9.995 else 1 if value < 99.95 else 0
