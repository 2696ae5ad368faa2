"""Which time mail ages, in the memory of this process: who delivers asks here, each time.

Mail does not age while its queue is suspended, nor by time that may not have passed (``core.reckoning``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import FOREVER
from shadowrelay.core.reckoning import NEVER, Endings
from shadowrelay.core.spans import Span, joined, since_when, within
from shadowrelay.core.suspending import NONE, SuspendedQueues
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.values import replace
from shadowrelay.database.queue import ActiveFork


class Suspended:
    """Knows the records as they were when they were read last, after each change.

    The records are durable before they are in force here.
    """

    def __init__(self, clock: Callable[[], datetime], endings: Callable[[], Endings] | None = None) -> None:
        self._clock = clock
        self.endings = endings or (lambda: Endings(clock()))
        self.queues: SuspendedQueues = NONE

    def __call__(self, next_hop: NextHop) -> bool:
        """May nothing be delivered there now?"""
        return bool(self.queues.records) and self.queues.suspended(next_hop, self._clock())

    def by(self, next_hop: NextHop) -> Suspension | None:
        """The record that suspends the queue longest from now on; None if it is not suspended."""
        now = self._clock()
        found = (one for one in self.queues.of(next_hop) if one.in_force(now))
        return max(found, key=lambda one: one.until or FOREVER, default=None)

    def resumed_at(self, next_hop: NextHop) -> datetime | None:
        """When the last suspension of that queue ended; None: no suspension is on record."""
        spans = self.queues.spans(next_hop, self._clock())
        return spans[-1][1] if spans else None

    def take(self, records: Sequence[Suspension]) -> bool:
        """The records as they are now. Returns whether something changed."""
        if list(self.queues.records.values()) == list(records):
            return False
        self.queues = SuspendedQueues({one.next_hop: one for one in records})
        return True

    def aged(self, claimed: ActiveFork) -> ActiveFork:
        """The fork with the time in which its message did not age."""
        not_aged = self.not_aged(claimed.next_hop, claimed.copy.received_at)
        return replace(claimed, not_aged=not_aged) if not_aged else claimed

    def not_aged(self, next_hop: NextHop, received_at: datetime) -> timedelta:
        """How long a message to that next hop, received then, did not age."""
        ends = self.endings()
        if not (self.queues.records or ends.spans):  # nearly always
            return timedelta(0)
        return within(self._spans(next_hop, ends), received_at, ends.now)

    def received_by(self, next_hop: NextHop, age: timedelta) -> datetime:
        """A message to that next hop which was received then certainly has that age now."""
        ends = self.endings()
        return NEVER if ends.doubt else since_when(self._spans(next_hop, ends), age, ends.now)

    def _spans(self, next_hop: NextHop, ends: Endings) -> list[Span]:
        return joined((*self.queues.spans(next_hop, ends.now), *ends.spans))
