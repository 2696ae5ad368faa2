"""Times, lengths of time and ages as text, for people. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def spell(length: timedelta, units: int = 2) -> str:
    """A length of time in its largest units: ``2 h 48 min``, ``3 min 5 s``, ``12 s``."""
    seconds = max(0, round(length.total_seconds()))
    parts = []
    for unit, size in _UNITS:
        count, seconds = divmod(seconds, size)
        parts.append((count, unit))
    first = next((index for index, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + units] if count) or "0 s"


def span(length: timedelta) -> str:
    """The same, under an hour in one unit: ``3 min``, ``1 h 20 min``."""
    return spell(length, 2 if length >= timedelta(minutes=59, seconds=59.5) else 1)


def ago(at: datetime, now: datetime) -> str:
    """``3 min ago``, or ``in 12 s``."""
    apart = now - at
    return f"{span(apart)} ago" if apart >= timedelta(0) else f"in {span(-apart)}"


def clock(at: datetime, now: datetime, zone: tzinfo | None = None) -> str:
    """``21:07:31 CET``, with the date where that is not today. ``zone``: None is the zone of this machine."""
    local = at.astimezone(zone)
    day = "" if local.date() == now.astimezone(zone).date() else f"{local:%Y-%m-%d} "
    return f"{day}{local:%H:%M:%S} {local.tzname()}"


def whole(at: datetime, zone: tzinfo | None = None) -> str:
    """``2026-11-21T21:07:31.000+01:00``, or with ``Z`` where the zone is that of UTC."""
    return at.astimezone(zone).isoformat(timespec="milliseconds").replace("+00:00", "Z")
