"""Breadth first through everything that can happen between two hops, with at most one fault."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.checks import Broken

from .moves import Hops
from .world import FAULTS, World


@dataclass(frozen=True, slots=True)
class Plan:
    """What is explored in one go: one fault or none, and whether A's route has another host."""

    fault: str = ""
    other: bool = False
    late: bool = False  # the fault comes after the client has its 250, so there is one message

    @property
    def title(self) -> str:
        late = ", after the 250" if self.late else ""
        return (self.fault or "no fault") + late + (", another host" if self.other else "")


PLANS = tuple(
    Plan(fault, other)
    for fault in ("", *FAULTS)
    for other in ((False, True) if fault == "cut off" or fault.endswith(" B") else (False,))
)
"""Another host makes a difference only if B can be out of reach."""


@dataclass(slots=True)
class Explored:
    """What came of it. ``left``: situations that were seen and not gone on from."""

    plan: Plan
    states: int = 0
    transitions: int = 0
    depth: int = 0
    left: int = 0
    resting: int = 0
    excused: int = 0  # of these: the message was on the lost disk alone
    waiting: int = 0  # of these: B has events that A will fetch, or have applied, in its next session
    aging: int = 0  # of these: A was put back, and a row stays until it is too old
    seconds: float = 0.0  # of processor time
    problem: str = ""
    trace: list[str] = field(default_factory=list)
    duplicates: Counter[str] = field(default_factory=Counter)

    @property
    def complete(self) -> bool:
        return not self.left and not self.problem


def explore(
    plan: Plan, *, most: float = float("inf"), told: Callable[[Explored], None] = lambda _: None
) -> Explored:
    """Everything that can happen, until the first problem or so many situations."""
    began = time.process_time()
    hops = Hops((plan.fault,) if plan.fault else (), other=plan.other, late=plan.late)
    found = Explored(plan)
    start = hops.start()
    worlds, numbers = [start], {start: 0}
    parents, depths, labels = array("I", [0]), array("H", [0]), [""]
    sources, targets = array("I"), array("I")  # of needed steps
    resting: list[int] = []
    position = 0
    step = ""
    try:
        while position < len(worlds) and len(worlds) < most:
            at = worlds[position]
            needed = 0
            for step, after, is_needed in hops.steps(at):
                found.transitions += 1
                number = numbers.setdefault(after, len(worlds))
                if is_needed:
                    needed += 1
                    sources.append(position)
                    targets.append(number)
                if number < len(worlds):
                    continue
                worlds.append(after)
                parents.append(position)
                depths.append(depths[position] + 1)
                labels.append(step)
                if len(after.sink) > len(at.sink) and (why := hops.cause(after)):
                    if why.startswith("!"):
                        raise Broken(why[1:])
                    found.duplicates[why] += 1
            step = ""
            if hops.waits_for_age(at):
                resting.append(position)
                found.aging += 1
            if not needed:
                if not hops.at_rest(at):
                    raise Broken("STUCK: something is left to do, and nothing does it")
                resting.append(position)
                verdict = hops.judge(at)
                if verdict == "exposed":
                    found.excused += 1
                elif verdict == "waiting":
                    found.waiting += 1
                    if hops.events_left(hops.asked_once_more(at)):
                        raise Broken("B KEEPS EVENTS, also when A has asked once more")
                elif verdict:
                    raise Broken(verdict)
            position += 1
            if position % 1024 == 0:
                _sum_up(found, worlds, position, resting, depths, began)
                told(found)
    except Broken as error:
        found.problem = str(error)
        found.trace = _way(position, parents, labels) + ([step] if step else [])
    _sum_up(found, worlds, position, resting, depths, began)
    if not found.problem:
        good = _before([*resting, *range(position, len(worlds))], len(worlds), sources, targets)
        stuck = next((number for number in range(len(worlds)) if not good[number]), None)
        if stuck is not None:
            found.problem = "STUCK: from here no way leads to rest"
            found.trace = _way(stuck, parents, labels)
    return found


def _sum_up(
    found: Explored, worlds: list[World], position: int, resting: list[int], depths: array[int], began: float
) -> None:
    found.states, found.left, found.resting = len(worlds), len(worlds) - position, len(resting)
    found.depth = max(depths)
    found.seconds = time.process_time() - began


def _way(number: int, parents: array[int], labels: list[str]) -> list[str]:
    steps = []
    while number:
        steps.append(labels[number])
        number = parents[number]
    return steps[::-1]


def _before(frontier: list[int], count: int, sources: array[int], targets: array[int]) -> bytearray:
    """For each situation: does it lead to one of these?"""
    before: list[list[int]] = [[] for _ in range(count)]
    for source, target in zip(sources, targets, strict=True):
        before[target].append(source)
    good = bytearray(count)
    for number in frontier:
        good[number] = 1
    while frontier:
        for parent in before[frontier.pop()]:
            if not good[parent]:
                good[parent] = 1
                frontier.append(parent)
    return good
