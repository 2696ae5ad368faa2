"""How the console writes times, amounts and names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from shadowrelay.core import time_text
from shadowrelay.core.workers import label

_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def moment(text: str | datetime | None) -> datetime | None:
    """A time as the API tells it; None if it tells none."""
    if text is None or isinstance(text, datetime):
        return text
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def span(length: timedelta | float) -> str:
    """``3 min``, ``1 h 20 min``; a number is seconds."""
    return time_text.span(length if isinstance(length, timedelta) else timedelta(seconds=length))


def ago(text: str | datetime | None, now: datetime) -> str:
    """``3 min ago``, or ``in 12 s``."""
    at = moment(text)
    return "–" if at is None else time_text.ago(at, now)


def age(text: str | datetime | None, now: datetime) -> str:
    at = moment(text)
    return "–" if at is None else time_text.span(now - at)


def clock(text: str | datetime | None, now: datetime, zone: tzinfo = UTC) -> str:
    """``21:07:31 UTC``, with the date where it is not today, in the zone of who reads."""
    at = moment(text)
    return "–" if at is None else time_text.clock(at, now, zone)


def zone_named(name: str) -> tzinfo:
    """The zone of that name, as browsers tell it (``Europe/Berlin``); UTC if there is none here."""
    try:
        return ZoneInfo(name) if name else UTC
    except (ValueError, KeyError, OSError):  # a name that is none, or that this machine does not know
        return UTC


def iso(text: str | datetime | None) -> str:
    at = moment(text)
    return "" if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def octets(size: int | None) -> str:
    if size is None:
        return "–"
    for unit, name in _SIZES:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def number(count: Any) -> str:
    """``12 345``, with narrow spaces that do not break."""
    return f"{count:,}".replace(",", "\u202f") if isinstance(count, int) else "–"


def many(count: int, one: str, more: str = "") -> str:
    """``1 message``, ``2 messages``."""
    return f"{number(count)} {one if count == 1 else more or one + 's'}"


def short(name: str) -> str:
    """The first label of a server's name, after its worker's unless that is the first; an address stays
    whole.
    """
    first, _, rest = name.partition(".")
    return name if not rest or first.isdigit() else label(name)


def sentence(text: str) -> str:
    """A reason as a sentence: with a capital letter, and a full stop at its end."""
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}" if text else ""


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
