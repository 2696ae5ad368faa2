"""Figures: several rounds of one measure, ratios of rounds that ran side by side, and targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """One value per round. Never empty."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.rounds)

    def __truediv__(self, other: Spread) -> Spread:
        """Round by round: the two that ran one after the other met the same noise. Of one length,
        and the other without a zero.
        """
        return Spread(tuple(a / b for a, b in zip(self.rounds, other.rounds, strict=True)))

    def __str__(self) -> str:
        if len(self.rounds) == 1:
            return number(self.median)
        return f"{number(self.median)} ({number(min(self.rounds))}–{number(max(self.rounds))})"

    def tree(self) -> dict[str, Any]:
        return {"median": self.median, "rounds": list(self.rounds)}


@dataclass(frozen=True, slots=True)
class Target:
    """What a median has to reach: ``sign`` is ``>=`` or ``<=``; of the ratio, or of our own value."""

    sign: str
    bound: float
    of_ratio: bool = True

    def met(self, row: Row) -> bool:
        judged = row.ratio if self.of_ratio else row.ours
        if judged is None:
            return False  # what was not measured was not shown
        return judged.median >= self.bound if self.sign == ">=" else judged.median <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.sign == '>=' else '≤'} {number(self.bound)}"


@dataclass(frozen=True, slots=True)
class Row:
    """One measure: ours with two copies, and what it is compared with.

    ``ratio`` is ours over that other; which of the two it is, the section's text says.
    """

    section: str
    measure: str
    unit: str
    ours: Spread | None = None
    postfix: Spread | None = None
    without: Spread | None = None  # our relay, shadow redundancy switched off
    target: Target | None = None
    means: str = ""  # what a 250 means to those who are measured, where that is a part of the measure

    @property
    def ratio(self) -> Spread | None:
        """Over the relay without shadowing where that was measured, else over Postfix.

        None over nothing: memory may not have grown, the clock of processor time may not have ticked.
        """
        other = self.without or self.postfix
        if self.ours and other and len(self.ours.rounds) == len(other.rounds) and all(other.rounds):
            return self.ours / other
        return None

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "pass" if self.target.met(self) else "MISS"

    def tree(self) -> dict[str, Any]:
        values = {"ours": self.ours, "postfix": self.postfix, "without": self.without, "ratio": self.ratio}
        return {
            "section": self.section,
            "measure": self.measure,
            "unit": self.unit,
            **{name: value.tree() for name, value in values.items() if value},
            **({"means": self.means} if self.means else {}),
            **({"target": str(self.target), "verdict": self.verdict} if self.target else {}),
        }


def row_of(tree: Mapping[str, Any]) -> Row:
    """The row of which ``Row.tree`` made that."""

    def spread(name: str) -> Spread | None:
        return Spread(tuple(tree[name]["rounds"])) if name in tree else None

    target = None
    if "target" in tree:
        sign, bound = tree["target"].split()
        judged = "ratio" in tree
        target = Target(">=" if sign == "≥" else "<=", float(bound.replace(",", "")), of_ratio=judged)
    ours, postfix, without = map(spread, ("ours", "postfix", "without"))
    named = {name: tree[name] for name in ("section", "measure", "unit")}
    return Row(
        **named, ours=ours, postfix=postfix, without=without, target=target, means=tree.get("means", "")
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` (0 to 1) of them do not exceed. Not of nothing."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * share // 1))
    return ordered[int(rank) - 1]


def number(value: float) -> str:
    """About three digits, without an exponent: 1,234; 56.7; 0.89; 0.0024."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    if abs(value) >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or not value else f"{value:.4f}"
