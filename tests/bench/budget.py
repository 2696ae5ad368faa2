"""What a message may cost: the file of budgets, read, judged and written. Pure."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tomli_w

JUDGED = ("calls", "statements", "commits")
BUILT_IN, GENERATED, STDLIB, RELAY = "built-ins", "generated", "stdlib", "shadowrelay"
SHOWN = 1.0
"""Calls per message from which on a room is shown and kept."""

_FEW = {"statements": 1.5, "commits": 0.6}
"""That many more are allowed: how often a holder asks its owner is a matter of time."""
_OURS = re.compile(r"/src/shadowrelay/(?:(.*)/)?[^/]*")
_PACKAGE = re.compile(r".*/site-packages/([^/.]+)")
_HEAD = """\
# What one message may cost its owner and its holder. `scripts/bench calls` fails where a number is more than
# `tolerance` per cent above `most` (some shapes have another), and writes this file with --record. A number
# above the `least` that it ever was has a reason, `raised`. `rooms` tell where calls were, and are no budget.

"""


class BudgetError(Exception):
    """The file of budgets is not to be judged by; the text says why."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one message costs one side: calls by room, statements and commits; and, where they could be
    counted, system calls and turns of the event loop.
    """

    shape: str
    side: str
    rooms: Mapping[str, float]
    statements: float
    commits: float
    system_calls: float | None = None
    turns: float | None = None
    functions: Mapping[str, float] = field(default_factory=dict)  # calls of each, as FILE:NAME

    @property
    def calls(self) -> float:
        return sum(self.rooms.values())

    def tree(self) -> dict[str, Any]:
        rooms = {name: round(calls, 1) for name, calls in self.rooms.items()}
        told = {name: round(getattr(self, name), 2) for name in JUDGED}
        beside = {"system calls": self.system_calls, "loop turns": self.turns}
        return {"shape": self.shape, "side": self.side, **told, **beside, "rooms": rooms}


@dataclass(frozen=True, slots=True)
class Limit:
    """``most`` is the budget, ``least`` the lowest that it ever was; above that stands why."""

    most: float
    least: float
    raised: str = ""

    def met(self, what: str, value: float, tolerance: float) -> bool:
        """``tolerance`` in per cent."""
        return value <= self.most * (1 + tolerance / 100) + _FEW.get(what, 0.0)

    def tree(self) -> dict[str, Any]:
        numbers = {"most": self.most, "least": self.least}
        whole = {name: int(one) if one == int(one) else one for name, one in numbers.items()}
        return whole | ({"raised": self.raised} if self.raised else {})


@dataclass(frozen=True, slots=True)
class Excess:
    """A number that is over its budget, and the rooms that have more calls than when it was set."""

    cost: Cost
    what: str
    value: float
    limit: Limit
    rooms: Sequence[tuple[str, float, float]]


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of each number, and the rooms as they were when it was set, by shape and side."""

    python: str  # calls differ from version to version
    tolerance: float  # per cent
    tolerances: Mapping[str, float] = field(default_factory=dict)  # of shapes that have another one
    limits: Mapping[tuple[str, str, str], Limit] = field(default_factory=dict)
    rooms: Mapping[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)

    def allowed(self, shape: str) -> float:
        """Per cent that a number may be above its budget."""
        return self.tolerances.get(shape, self.tolerance)

    def over(self, costs: Sequence[Cost]) -> Iterator[Excess]:
        """Raises BudgetError for a number that has no budget."""
        for cost in costs:
            for what in JUDGED:
                limit = self._limit(cost, what)
                if limit is None:
                    raise BudgetError(f"{cost.shape}, {cost.side}: there is no budget of {what}: --record")
                if not limit.met(what, value := getattr(cost, what), self.allowed(cost.shape)):
                    yield Excess(cost, what, value, limit, self._grown(cost))

    def recorded(self, costs: Sequence[Cost], reason: str) -> Budget:
        """The budget with lower numbers, new ones, and, if there is a reason, those that are over it."""
        limits, rooms = dict(self.limits), dict(self.rooms)
        for cost in costs:
            changed = False
            for what in JUDGED:
                value = round(getattr(cost, what), 0 if what == "calls" else 1)
                limit = self._limit(cost, what)
                if limit is None or value < limit.least:
                    new = Limit(value, value)
                elif reason and not limit.met(what, value, self.allowed(cost.shape)):
                    new = replace(limit, most=value, raised=reason)
                elif value < limit.most:
                    new = replace(limit, most=value, raised=limit.raised if value > limit.least else "")
                else:
                    continue
                limits[cost.shape, cost.side, what], changed = new, True
            if changed:
                rooms[cost.shape, cost.side] = {n: v for n, v in cost.rooms.items() if v >= SHOWN}
        return replace(self, limits=limits, rooms=rooms)

    def text(self) -> str:
        tree: dict[str, Any] = {"python": self.python, "tolerance": self.tolerance}
        tree |= {"tolerances": dict(self.tolerances)}
        for (shape, side, what), limit in self.limits.items():
            tree.setdefault(shape, {}).setdefault(side, {})[what] = limit.tree()
        for (shape, side), rooms in self.rooms.items():
            tree[shape][side]["rooms"] = {name: round(calls) for name, calls in rooms.items()}
        return _HEAD + tomli_w.dumps(tree)

    def _limit(self, cost: Cost, what: str) -> Limit | None:
        return self.limits.get((cost.shape, cost.side, what))

    def _grown(self, cost: Cost) -> list[tuple[str, float, float]]:
        """Rooms with what they had and have, those that grew most first."""
        before = self.rooms.get((cost.shape, cost.side), {})
        found = [(name, before.get(name, 0.0), calls) for name, calls in cost.rooms.items()]
        return sorted((one for one in found if one[2] - one[1] >= SHOWN), key=lambda one: one[1] - one[2])


def read(text: str) -> Budget:
    """The inverse of ``Budget.text``. Raises BudgetError for a number above its least that has no reason."""
    try:
        tree = tomllib.loads(text)
        found = Budget(tree.pop("python"), tree.pop("tolerance"), tree.pop("tolerances", {}))
        limits, rooms = {}, {}
        for shape, sides in tree.items():
            for side, numbers in sides.items():
                rooms[shape, side] = numbers.pop("rooms", {})
                for what, one in numbers.items():
                    limits[shape, side, what] = limit = Limit(**one)
                    if limit.most > limit.least and not limit.raised.strip():
                        raise BudgetError(
                            f"{shape}.{side}.{what}: {limit.most:g} is more than {limit.least:g}, "
                            f'which it was: a line raised = "…" has to say why'
                        )
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as problem:
        raise BudgetError(f"the file of budgets cannot be read: {problem}") from problem
    return replace(found, limits=limits, rooms=rooms)


def by_room(calls: Mapping[str, float]) -> dict[str, float]:
    """Calls of functions, named ``FILE:FUNCTION``, summed by room, the largest first."""
    found: Counter[str] = Counter()
    for name, count in calls.items():
        found[room_of(file_of(name))] += count  # type: ignore[assignment]
    return dict(found.most_common())


def file_of(function: str) -> str:
    return function.partition(":")[0]


def room_of(file: str) -> str:
    """The room of a file: ``smtp.receiving`` for one of ours, else its package."""
    if file == "~":
        return BUILT_IN
    if file.startswith("<"):
        return GENERATED
    if ours := _OURS.search(file):
        return (ours[1] or RELAY).replace("/", ".")
    package = _PACKAGE.match(file)
    return package[1] if package else STDLIB
