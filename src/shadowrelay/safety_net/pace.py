"""How fast a node carries out requests: how many messages the rate allows.

Times are seconds of a clock that counts suspension.
"""

from __future__ import annotations

from collections.abc import Sequence

from shadowrelay.core.identifiers import RequestId
from shadowrelay.core.policy import Policy
from shadowrelay.core.safety_net.resubmission import AT_ONCE
from shadowrelay.core.values import dataclass


@dataclass(slots=True)
class Pace:
    """In the memory of this process."""

    policy: Policy
    refilled: float  # when the allowance was counted last
    _allowance: float = 0.0
    _turn: int = 0

    def in_turn(self, requests: Sequence[RequestId]) -> tuple[RequestId, ...]:
        """Each turn begins with another request, so that a large one does not keep the others waiting."""
        self._turn += 1
        first = self._turn % max(1, len(requests))
        return (*requests[first:], *requests[:first])

    def most(self, now: float) -> int:
        """How many messages may be made now."""
        rate = float(self.policy.resubmit_rate)
        self._allowance = min(rate, self._allowance + (now - self.refilled) * rate)
        self.refilled = now
        return min(AT_ONCE, int(self._allowance))

    def made(self, count: int) -> None:
        """So many messages were made."""
        self._allowance -= count
