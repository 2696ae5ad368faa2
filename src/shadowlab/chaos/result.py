"""Holds the result of a run of chaos, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shadowlab.chaos.causes import Cause
from shadowlab.chaos.history import History, SendAttempt, SendOutcome
from shadowlab.chaos.plan import Plan
from shadowlab.chaos.verdict import ChaosVerdict, Delivery


@dataclass(frozen=True, slots=True)
class ChaosResult:
    """The result. ``problems``: what else went wrong, such as a node that ended by itself.

    ``directory``: where the logs are; None if they were removed.
    """

    plan: Plan
    history: History
    verdict: ChaosVerdict
    causes: Mapping[Delivery, Cause]
    problems: tuple[str, ...]
    seconds: float  # time in which mail was sent
    interrupted: bool
    directory: Path | None = None

    @property
    def held(self) -> bool:
        return self.verdict.held and not self.objections and Cause.UNEXPLAINED not in self.causes.values()

    @property
    def objections(self) -> tuple[str, ...]:
        """The problems, and that nothing happened in the run, unless it was interrupted."""
        nothing = (
            ("no message was acknowledged: nothing is shown", not self.verdict.acknowledged),
            ("no fault was made: nothing is shown", not self.history.faults),
        )
        return (*self.problems, *(text for text, so in nothing if so and not self.interrupted))

    @property
    def by_cause(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for one, cause in self.causes.items():
            found[cause.value] += self.verdict.duplicated[one]
        return dict(found)

    @property
    def by_fault(self) -> dict[str, int]:
        return dict(Counter(fault.name for fault in self.history.faults))

    @property
    def slowest(self) -> SendAttempt | None:
        """The attempt whose acknowledgement took longest."""
        taken = [one for one in self.history.attempts if one.outcome is SendOutcome.ACKNOWLEDGED]
        return max(taken, key=lambda one: one.waited, default=None)

    def tree(self) -> dict[str, Any]:
        """The result for ``--json``."""
        found, taken = self.verdict, Counter(one.outcome.value for one in self.history.attempts)
        acknowledged = taken[SendOutcome.ACKNOWLEDGED.value]
        repairs = [fault.whole - fault.healed for fault in self.history.faults]
        return {
            "held": self.held,
            "seed": self.plan.seed,
            "seconds": round(self.seconds, 1),
            "interrupted": self.interrupted,
            "recipients": {
                "acknowledged": found.acknowledged,
                "attempted": found.attempted,
                "delivered": found.delivered,
                "lost": found.lost.total(),
                "unexpected": found.unexpected.total(),
                "damaged": found.damaged.total(),
                "wrong_mailbox": found.wrong_mailbox.total(),
                "duplicated": found.duplicated.total(),
                "recovered": found.recovered.total(),
            },
            "lost": _named(found.lost),
            "unexpected": _named(found.unexpected),
            "damaged": _named(found.damaged),
            "wrong_mailbox": _named(found.wrong_mailbox),
            "unexplained": [list(one) for one, cause in self.causes.items() if cause is Cause.UNEXPLAINED],
            "causes": self.by_cause,
            "attempts": {outcome.value: taken[outcome.value] for outcome in SendOutcome},
            "acknowledged_per_second": round(acknowledged / self.seconds, 1) if self.seconds else 0.0,
            "longest_wait": round(self.slowest.waited, 3) if self.slowest else None,
            "longest_repair": round(max(repairs), 1) if repairs else None,
            "faults": self.by_fault,
            "copies_spoilt": sum(len(fault.spoilt) for fault in self.history.faults),
            "problems": list(self.objections),
            "directory": str(self.directory) if self.directory else None,
        }


def _named(deliveries: Counter[Delivery]) -> list[list[str]]:
    return sorted(list(one) for one in deliveries.elements())
