"""Shaping: how many connections and messages a next hop gets, and what its answers change about that.

A *shape* is a table of the settings with limits. It counts all next hops and hosts together that one of its
names stands for; what only its `*` stands for counts each next hop alone. A *pattern* names replies by which
a server asks for less. The *pace* is where a shape stands now: after messages that were taken it grows by one
connection, after a reply that a pattern names it is halved, and nothing is sent for a while.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.spelling import EVERY_NAME, canonical, specificity, without_case
from shadowrelay.core.values import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    """Limits; None: no limit. It begins with ``first_connections``, and grows by one after ``growth``
    messages, up to ``connections``.
    """

    name: str
    match: tuple[str, ...]
    connections: int
    first_connections: int
    growth: int
    messages_per_session: int | None = None
    messages_per_minute: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Replies that ask for less: with that ``code``, the ``enhanced`` code if it is not '', and, if there are
    any, one of the phrases of ``text``. ``match``: the next hops and hosts for which it counts.
    """

    name: str
    match: tuple[str, ...]
    code: int
    enhanced: str
    text: tuple[str, ...]
    pause: timedelta


@dataclass(frozen=True, slots=True)
class Lane:
    """What counts together: a shape, and with `*` its next hop. ``names``: of this next hop and host."""

    key: str
    shape: LaneLimits
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LanePace:
    """Where a lane stands: the ``connections`` that it may have, and the messages ``taken`` since it last
    grew. Nothing is sent before ``paused_until``, for a time of ``pause`` in all; ``reply`` is why.
    """

    connections: int
    taken: int = 0
    paused_until: datetime | None = None
    pause: timedelta = timedelta(0)
    reply: str = ""

    def paused(self, now: datetime) -> bool:
        return self.paused_until is not None and now < self.paused_until


def names_of(next_hop: NextHop, host: str) -> tuple[str, ...]:
    """The names by which shapes and patterns know a host of a next hop: its domain, or else its route or
    site; then the name of the host, if it is known.
    """
    route, _, domain = next_hop.partition("/")
    return tuple(canonical(name) for name in (domain or route, host) if name)


def lane_of(next_hop: NextHop, host: str, shapes: Sequence[LaneLimits]) -> Lane | None:
    """The lane of a host ('' while it is unknown). The domain or route is looked for first, then the host,
    then `*`; of several names the most specific counts, of equal ones the first.
    """
    names = names_of(next_hop, host)
    for name in names:
        best = max(shapes, key=lambda shape: _by_name(name, shape), default=None)
        if best is not None and _by_name(name, best):
            return Lane(best.name, best, names)
    every = next((shape for shape in shapes if EVERY_NAME in shape.match), None)
    return Lane(f"{every.name} {next_hop}", every, names) if every else None


def _by_name(name: str, shape: LaneLimits) -> int:
    return max((specificity(name, one) for one in shape.match if one != EVERY_NAME), default=0)


def at_first(shape: LaneLimits) -> LanePace:
    return LanePace(min(shape.first_connections, shape.connections))


def after_message(pace: LanePace, shape: LaneLimits, now: datetime) -> LanePace:
    """The server took a message. One that was under way when a pause began says nothing new."""
    if pace.paused(now) or pace.connections >= shape.connections:
        return pace
    taken = pace.taken + 1
    if taken < shape.growth:
        return replace(pace, taken=taken)
    return replace(pace, connections=pace.connections + 1, taken=0)


def after_refusal(pace: LanePace, pattern: Pattern, reply: str, in_use: int, now: datetime) -> LanePace:
    """The server asked for less in one of ``in_use`` connections: half as many, at least one, after a pause.

    What comes during a pause was sent before it, and halves nothing again; a longer pause counts.
    """
    until = now + pattern.pause
    if not pace.paused(now):
        return LanePace(max(1, min(pace.connections, in_use) // 2), 0, until, pattern.pause, reply)
    if pattern.pause <= pace.pause:
        return pace
    return replace(pace, paused_until=until, pause=pattern.pause, reply=reply)


_REPLY = re.compile(r"([245]\d\d)(?: ([245]\.\d{1,3}\.\d{1,3})(?= |$))? ?(.*)", re.ASCII | re.DOTALL)


def named_by(reply: str, names: Sequence[str], patterns: Iterable[Pattern]) -> Pattern | None:
    """The first pattern that names a reply (``421 4.7.28 text``) of a server with these names."""
    found = _REPLY.fullmatch(reply)
    if found is None:
        return None
    code, enhanced, text = *found.groups()[:2], without_case(found[3])
    for one in patterns:
        if one.code != int(code) or (one.enhanced and one.enhanced != enhanced):
            continue
        known = any(specificity(name, pattern) for name in names for pattern in one.match)
        if known and (not one.text or any(said(phrase, text) for phrase in one.text)):
            return one
    return None


def said(phrase: str, text: str) -> bool:
    """Is the phrase found in that text, with anything where its `*` are? Both are ``without_case``.

    The text is gone through once, whatever the phrase: a reply, which a stranger writes, holds nobody up.
    """
    at = 0
    for part in phrase.split("*"):
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True
