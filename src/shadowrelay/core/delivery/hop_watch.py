"""The heartbeat of a hop: whether it can still be asked what it delivered. It is memory of this process.

As for members (``ownership.heartbeat.Watch``), only our own failed attempts count, so a node that was down
does not blame the hop. Times are seconds on a clock that counts suspension.
"""

from __future__ import annotations

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.policy import Policy
from shadowrelay.core.values import dataclass, replace


@dataclass(frozen=True, slots=True)
class HopWatch:
    """What this process knows about reaching one hop.

    ``talked_at``: when we last asked it something that it answered, or tried to ask. ``failures``: attempts
    that failed since the last answer. ``error``: how the last one failed.
    """

    name: ServerName
    talked_at: float | None = None
    failures: int = 0
    error: str = ""

    def due(self, at: float, policy: Policy) -> bool:
        """Must the hop be asked in a session of its own now? Always for the first time in this process."""
        if self.talked_at is None:
            return True
        return at - self.talked_at >= policy.shadow_heartbeat_timeout_interval.total_seconds()

    def answered(self, asked_at: float) -> HopWatch:
        """The hop answered what we asked at that time, in whichever session."""
        return HopWatch(self.name, max(asked_at, self.talked_at or asked_at))

    def failed(self, at: float, error: str) -> HopWatch:
        """One more session of its own failed."""
        return replace(self, talked_at=at, failures=self.failures + 1, error=error)

    def gone(self, policy: Policy) -> bool:
        """Is the hop given up: what it has not delivered goes another way, if there is one?"""
        return self.failures >= policy.shadow_heartbeat_retry_count
