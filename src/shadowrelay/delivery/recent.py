"""Remembers the last attempts at each next hop, in the memory of this process, for the operator."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field
from datetime import datetime

from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.steps import Sent
from shadowrelay.core.values import dataclass

PER_HOP = 20
"""Attempts that are kept of each next hop."""

HOPS = 1000
"""Next hops whose attempts are kept: those tried last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentAttempt:
    """One attempt. ``at``: when it ended. ``host``: the one that answered, or was tried last; '' if none was
    chosen. ``outcome``: the worst of its recipients; ``reply``: what was said of that one.
    """

    at: datetime
    message: MessageId
    host: str
    outcome: str
    reply: str
    seconds: float


STEP = 10
"""Seconds in one part of a rate."""

PARTS = 6
"""Parts of a rate: together a minute."""


@dataclass(slots=True)
class _Lately:
    """The attempts of one next hop, and how many messages it took in each part of the last minute."""

    attempts: deque[RecentAttempt] = field(default_factory=lambda: deque(maxlen=PER_HOP))
    taken: deque[list[int]] = field(default_factory=lambda: deque(maxlen=PARTS))

    def took(self, part: int) -> None:
        """One more message in that part of time."""
        if not self.taken or self.taken[-1][0] != part:
            self.taken.append([part, 0])
        self.taken[-1][1] += 1


@dataclass(slots=True)
class RecentAttempts:
    """Of all next hops."""

    _hops: dict[NextHop, _Lately] = field(default_factory=dict)

    def note(self, hop: NextHop, message: MessageId, sent: Sent, took: float, now: datetime) -> None:
        """An attempt ended."""
        kept = self._hops.pop(hop, None) or _Lately()
        self._hops[hop] = kept  # the one tried last is the last
        if len(self._hops) > HOPS:
            del self._hops[next(iter(self._hops))]
        worst = sent.results[0] if sent.results else None
        if len(sent.results) > 1:
            worst = max(sent.results, key=lambda one: _BAD.get(one.ending, 0))
        if worst and worst.ending not in _BAD:
            kept.took(int(now.timestamp()) // STEP)
        kept.attempts.append(
            RecentAttempt(
                at=now,
                message=message,
                host=sent.hop.server,
                outcome=worst.ending.value if worst else "damaged" if sent.damaged else "not sent",
                reply=worst.reply if worst else sent.damaged,
                seconds=took,
            )
        )

    def of(self, hop: NextHop) -> Sequence[RecentAttempt]:
        """The attempts at that next hop, the last one first."""
        found = self._hops.get(hop)
        return tuple(reversed(found.attempts)) if found else ()

    def last(self, hop: NextHop) -> RecentAttempt | None:
        """The last attempt at that next hop; None: there was none."""
        found = self._hops.get(hop)
        return found.attempts[-1] if found else None

    def rate(self, hop: NextHop, now: datetime) -> int:
        """How many messages that next hop took in the last minute, to ten seconds."""
        found, first = self._hops.get(hop), int(now.timestamp()) // STEP - PARTS
        return sum(count for part, count in found.taken if part > first) if found else 0


_BAD = {Ending.REJECTED: 2, Ending.EXPIRED: 2, Ending.IN_DOUBT: 1, Ending.UNREADABLE: 1, Ending.DEFERRED: 1}
