"""How long ago something was: forgotten as soon as no verdict can depend on it any more.

A verdict compares moments: when a delivery began, when faults began and ended, since and until when a disk
knew. What has yet to begin is later than all of them. So an age counts only beside another one that it may be
compared with.
"""

from __future__ import annotations

from typing import Any

from .situation import FORGOTTEN, OLD, Known, Situation, Wrong

BRIEF = 4
"""Whole seconds that are too few for members to have talked for certain (``checks.SLACK``)."""


def tidy(at: Situation) -> Situation:
    """The same, without ages that make no difference."""
    if not (at.wrong or at.known or at.lost):
        return _sends_forgotten(at, ()) if at.packets else at
    known = tuple(_knew(item, at) for item in at.known)
    wrong = tuple(dict.fromkeys(_was_wrong(item, at, known) for item in at.wrong))
    lost = tuple(sorted({(OLD, one, other) for _, one, other in at.lost}))
    if known != at.known or wrong != at.wrong or lost != at.lost:
        at = at._replace(known=known, wrong=wrong, lost=lost)
    moments = [age for item in wrong if item.start < FORGOTTEN for age in (item.start, item.end)]
    moments += [age for entry in known if entry.until != OLD for age in (entry.since, entry.until)]
    return _sends_forgotten(at, moments)


def _knew(item: Known, at: Situation) -> Known:
    """A disk that is gone, and that did not know for long enough for anybody to have asked it."""
    until = item.until
    if until is None or until == OLD or item.since == OLD or item.since - until > BRIEF or _sent(at, until):
        return item
    return item._replace(since=OLD, until=OLD)


def _was_wrong(item: Wrong, at: Situation, known: tuple[Known, ...]) -> Wrong:
    """A fault that is over counts beside what was known, or on its way, before it ended."""
    end = item.end
    if (
        end is None
        or end == FORGOTTEN
        or _sent(at, end)
        or any(k.until != OLD and k.since >= end for k in known)
    ):
        return item
    lasted = item.long and item.other is not None  # of a node it counts beside what was known before its end
    return item._replace(start=FORGOTTEN, end=FORGOTTEN, long=lasted)


def _sent(at: Situation, age: int) -> bool:
    """Is a delivery under way that began that long ago, or earlier?"""
    return any(packet[0] == "send" and packet[-1] >= age for _, packet in at.packets)


def _sends_forgotten(at: Situation, moments: Any) -> Situation:
    """Deliveries that began before everything that is remembered began long ago."""
    first = max((age for age in moments if age is not None), default=-1)
    packets = tuple(
        (late, (*packet[:-1], OLD)) if packet[0] == "send" and packet[-1] > first else (late, packet)
        for late, packet in at.packets
    )
    return at if packets == at.packets else at._replace(packets=packets)
