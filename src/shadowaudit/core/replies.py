"""Rows that cannot be true: the reply does not fit the event, or no promotion began the epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shadowaudit.core.events import DISCARDS, ORIGINS, SENT, Event, Kind, listed
from shadowaudit.core.findings import Class, Finding

_BEGIN = frozenset({Kind.RESUBMIT, Kind.TRANSFER})
"""Rows that say that another node owns the message: with them an epoch begins."""

DROPPED = "Duplicate dropped"
"""What a mailbox server replies if it had the message."""

_GOOD = SENT | {Kind.EXPAND}
"""Rows whose reply says success."""

_SAME = {"Reason": "reason", "Owner": "peer", "OwnerDb": "reference"}
"""What RESUBMIT says twice: the entry of custom-data, and where it stands besides."""


def unfitting(events: Mapping[int, Event]) -> Iterator[Finding]:
    """Find replies that do not fit their event: success has a code 2yz, and failure has none."""
    for index, event in events.items():
        good = event.reason.startswith("2")
        if (event.kind in _GOOD and not good) or (event.kind in (Kind.FAIL, Kind.DEFER) and good):
            yield _finding(index, event, f"{event.kind} with the reply {event.reason[:60]!r}")
        fits = accepted if event.kind in SENT else refused if event.kind is Kind.FAIL else None
        if fits is not None and not fits(event.status):
            yield _finding(index, event, f"{event.kind} with the status {';'.join(event.status)[:60]!r}")
        if event.kind is Kind.DUPLICATEDELIVER and DROPPED not in event.context:
            yield _finding(index, event, f"{event.kind} with the reply {event.reason[:60]!r}")
        if event.kind is Kind.HAREDIRECT and not redirected(event):
            yield _finding(index, event, f"{event.kind} with the attempts {event.context[:60]!r}")
        if event.kind is Kind.HADISCARD and event.reason not in DISCARDS:
            yield _finding(index, event, f"{event.kind} for the reason {event.reason[:60]!r}")
        if event.kind is Kind.RESUBMIT:
            yield from _twice(index, event)


def accepted(status: Sequence[str]) -> bool:
    """May that be the status of recipients that were delivered?"""
    return all(one.startswith("2") for one in status)


def refused(status: Sequence[str]) -> bool:
    """May that be the status of recipients that were given up?"""
    return not any(one.removeprefix("[{LED=").startswith("2") for one in status)


def redirected(event: Event) -> bool:
    """Does the last attempt of HAREDIRECT say that the shadow server took the copy, or has it?"""
    attempts, shadow = listed(event.context), event.entries.get("Shadow")
    if not attempts or not shadow:
        return True
    name, _, reply = attempts[-1].partition("=")
    return name == shadow and not reply.startswith(("4", "5"))


def _twice(index: int, event: Event) -> Iterator[Finding]:
    for name, place in _SAME.items():
        one, other = event.entries.get(name), getattr(event, place)
        if one and other and one != other:
            yield _finding(index, event, f"{event.kind} says two things of {name}")


def epochs(events: Mapping[int, Event], *, untold: bool) -> Iterator[Finding]:
    """Each epoch but the first was begun by a promotion. ``untold``: that may be in rows that are missing."""
    begun = {1, *(event.epoch for event in events.values() if event.kind in _BEGIN)}
    for index, event in events.items():
        if event.kind in ORIGINS and event.epoch != 1:
            yield _finding(index, event, f"{event.kind} in epoch {event.epoch}")
        elif event.epoch not in begun and not untold:
            yield _finding(index, event, f"{event.kind} in epoch {event.epoch}, which no promotion began")


def _finding(index: int, event: Event, what: str) -> Finding:
    return Finding(Class.INCONSISTENT, f"{event.node}: {what}", event.recipients, (index,))
