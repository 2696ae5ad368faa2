"""Filters as forms give them: text becomes what jobs take, and the words that say what a filter means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from shadowrelay.admin.body import address_pattern
from shadowrelay.admin.guard import RequestRefused
from shadowrelay.console.words import many, span
from shadowrelay.core.identifiers import MessageId, NextHop, is_uuid
from shadowrelay.core.jobs import Filter
from shadowrelay.core.spelling import canonical

NAMES = (
    *("queue", "sender", "recipient", "domain", "subject", "error", "suspended"),
    *("older", "younger", "larger", "smaller"),
)
"""Conditions of a filter that a form may have."""

MOST_IDS = 50
"""Messages that one job may name."""

_LONGEST = 200
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
_OCTETS = {
    "": 1,
    "b": 1,
    "kb": 1_000,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
_AMOUNT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*([a-z]*)", re.IGNORECASE)


def filter_in(given: Mapping[str, str], ids: Sequence[str] = ()) -> Filter:
    """The filter that the fields of a form give. Raises RequestRefused."""
    text = {name: given[name].strip() for name in NAMES if given.get(name, "").strip()}
    if any(len(one) > _LONGEST for one in text.values()):
        raise RequestRefused(400, f"a condition has {_LONGEST} characters at most")
    if len(ids) > MOST_IDS:
        raise RequestRefused(400, f"choose {MOST_IDS} messages at most, or give a filter")
    if wrong := [one for one in ids if not is_uuid(one.lower())]:
        raise RequestRefused(400, f"{wrong[0]} is no id of a message")
    domain = text.get("domain")
    return Filter(
        ids=tuple(dict.fromkeys(MessageId(one.lower()) for one in ids)),
        queue=NextHop(text["queue"]) if "queue" in text else None,
        sender=address_pattern(text.get("sender"), "sender"),
        recipient=address_pattern(text.get("recipient"), "recipient"),
        domain=domain and canonical(domain.removeprefix("@")),
        subject=text.get("subject"),
        error=text.get("error"),
        suspended=text["suspended"] == "yes" if "suspended" in text else None,
        older=duration(text["older"], "older") if "older" in text else None,
        younger=duration(text["younger"], "younger") if "younger" in text else None,
        larger=_size(text, "larger"),
        smaller=_size(text, "smaller"),
    )


def _size(text: Mapping[str, str], name: str) -> int | None:
    return int(_amount(text[name], _OCTETS, name, "a size such as 10MB")) if name in text else None


def duration(text: str, name: str) -> timedelta:
    return timedelta(seconds=_amount(text, _SECONDS, name, "a duration such as 30min, 2h or 1d"))


def until(text: str, now: datetime) -> datetime | None:
    """When a suspension ends: a time with its offset, or a duration from now. Raises RequestRefused."""
    if not text.strip():
        return None
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        return now + duration(text, "until")
    if at.tzinfo is None:
        raise RequestRefused(400, "until is a time with its offset, such as 2026-11-27T09:00Z, or a duration")
    return at.astimezone(UTC)


def _amount(text: str, units: Mapping[str, int], name: str, wanted: str) -> float:
    found = _AMOUNT.fullmatch(text.strip())
    if not found or found[2].lower() not in units:
        raise RequestRefused(400, f"{name} is {wanted}, and not {text}")
    return float(found[1]) * units[found[2].lower()]


def about(told: Mapping[str, Any]) -> str:
    """What a filter is about, as a phrase: ``mail for world from ann@example.org``."""
    if ids := told.get("ids"):
        return many(len(ids), "message") if len(ids) > 1 else f"message {ids[0]}"
    parts = ["mail"]
    for name, text in (
        ("queue", "for"),
        ("sender", "from"),
        ("recipient", "to"),
        ("domain", "to"),
        ("subject", "with subject"),
        ("error", "with last reply"),
    ):
        if told.get(name) is not None:
            parts.append(f"{text} {told[name] or '<>'}")
    if told.get("suspended") is not None:
        parts.append("that is suspended" if told["suspended"] else "that is not suspended")
    if told.get("older") is not None:
        parts.append(f"older than {span(float(told['older']))}")
    if told.get("younger") is not None:
        parts.append(f"younger than {span(float(told['younger']))}")
    if told.get("larger") is not None:
        parts.append(f"larger than {told['larger']} octets")
    if told.get("smaller") is not None:
        parts.append(f"smaller than {told['smaller']} octets")
    return " ".join(parts)
