"""Rows that cannot be so by themselves: a reply that is none of the event's, an epoch that nobody began."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shadowaudit.core.events import ORIGINS, SENT, Event, Kind
from shadowaudit.core.findings import Class, Finding

_BEGIN = frozenset({Kind.RESUBMIT, Kind.TRANSFER})
"""Rows that say that another node owns the message: with them an epoch begins."""


def unfitting(events: Mapping[int, Event]) -> Iterator[Finding]:
    """Who accepted a message replied with a code of success, and nobody else did."""
    for index, event in events.items():
        good = event.reason.startswith("2")
        if (event.kind in SENT and not good) or (event.kind in (Kind.FAIL, Kind.DEFER) and good):
            yield _finding(index, event, f"{event.kind} with the reply {event.reason[:60]!r}")


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
