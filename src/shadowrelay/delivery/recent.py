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


@dataclass(slots=True)
class RecentAttempts:
    """Of all next hops."""

    _hops: dict[NextHop, deque[RecentAttempt]] = field(default_factory=dict)

    def note(self, hop: NextHop, message: MessageId, sent: Sent, took: float, now: datetime) -> None:
        """An attempt ended."""
        kept = self._hops.pop(hop, None) or deque(maxlen=PER_HOP)
        self._hops[hop] = kept  # the one tried last is the last
        if len(self._hops) > HOPS:
            del self._hops[next(iter(self._hops))]
        worst = max(sent.results, key=lambda one: _BAD.get(one.ending, 0), default=None)
        kept.append(
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
        return tuple(reversed(self._hops.get(hop, ())))


_BAD = {Ending.REJECTED: 2, Ending.EXPIRED: 2, Ending.IN_DOUBT: 1, Ending.UNREADABLE: 1, Ending.DEFERRED: 1}
