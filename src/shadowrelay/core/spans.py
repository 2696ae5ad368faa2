"""Spans of time in which a message does not age, and what is left of its age without them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

Span = tuple[datetime, datetime]


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same time in spans in order, none of which overlaps another."""
    apart: list[Span] = []
    for begin, end in sorted(spans):
        if apart and begin <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
        else:
            apart.append((begin, end))
    return apart


def within(spans: Iterable[Span], since: datetime, now: datetime) -> timedelta:
    """How much of the time from ``since`` to ``now`` lies in the spans. They must be ``joined``."""
    parts = (min(end, now) - max(begin, since) for begin, end in spans)
    return sum((part for part in parts if part > timedelta(0)), timedelta(0))


def since_when(spans: Sequence[Span], age: timedelta, now: datetime) -> datetime:
    """What began then has that age now, without the time in the spans. They must be ``joined``."""
    moment, left = now, age
    for begin, end in reversed(spans):
        if end >= moment:
            moment = min(moment, begin)
            continue
        if moment - end >= left:
            break
        left -= moment - end
        moment = begin
    return moment - left
