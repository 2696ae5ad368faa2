"""Breadth first through every situation that can come about."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from tests.simulation.checks import Broken

from .automaton import Memory
from .boundary import Boundary
from .essence import Essence
from .graph import Graph
from .line import straight
from .setup import Move, Setup
from .situation import Situation
from .words import describe, fault_of


@dataclass(slots=True)
class Found:
    """What an exploration amounts to. ``left``: situations that were seen and not gone on from."""

    setup: Setup
    states: int = 0
    transitions: int = 0
    depth: int = 0
    left: int = 0
    resting: int = 0
    local: int = 0  # states of single nodes
    seconds: float = 0.0  # of processor time
    problem: str = ""
    trace: list[str] = field(default_factory=list)
    duplicates: Counter[str] = field(default_factory=Counter)
    begun: Counter[str] = field(default_factory=Counter)  # how often the last fault began, by what it was

    @property
    def complete(self) -> bool:
        return not self.left and not self.problem


def explore(
    setup: Setup,
    *,
    deadline: float = float("inf"),
    most: float = float("inf"),
    told: Callable[[Found], None] = lambda _: None,
    memory: Memory | None = None,
) -> Found:
    """Everything that can happen, until the first problem, the deadline (of ``time.monotonic``), or so many
    situations. ``memory`` is that of earlier explorations of the same code.
    """
    began = time.process_time()
    found, boundary = Found(setup), Boundary(setup, memory or Memory())
    graph = Graph(setup.nodes, None if setup.causes else Essence(boundary.policy))
    queue = array("I")
    position = 0

    def sum_up() -> None:
        found.states = len(graph)
        found.left = len(queue) - position
        found.resting = len(graph.resting)
        found.local = sum(len(automaton.views) for automaton in boundary.automata)
        found.seconds = time.process_time() - began

    start = situation = boundary.start()
    first: list[Move] = []
    line = straight(boundary, start)
    step: Move | None = next(line, None)
    number = 0
    try:
        while step is not None:
            first.append(step)
            situation = boundary.make(situation, step)
            step = _sent(line, situation)
        graph.add(situation, 0, 0)
        queue.append(0)
        while position < len(queue) and len(graph) < most and time.monotonic() < deadline:
            number = queue[position]
            situation = graph[number]
            for index, step, after in boundary.steps(situation):
                found.transitions += 1
                child, new = graph.add(after, number, index)
                if after.begun == len(setup.faults) > situation.begun:
                    found.begun[fault_of(step)] += 1
                if not new:
                    continue
                found.duplicates.update(boundary.causes)
                found.depth = max(found.depth, graph.depths[child])
                rests = boundary.at_rest(after)
                if rests:
                    graph.resting.add(child)
                if not (rests and boundary.spent(after)):
                    queue.append(child)
            position += 1
            if position % 256 == 0:
                sum_up()
                told(found)
    except Broken as error:
        found.problem = str(error)
        sum_up()
        failing = boundary.made
        if len(graph):
            first += [*graph.way_to(number, boundary), failing]
        found.trace = retell(boundary, start, first)
        return found
    sum_up()
    stuck = graph.stuck(list(queue[position:]))
    if stuck is not None:
        found.problem = "from here no way leads to rest"
        found.trace = retell(boundary, start, [*first, *graph.way_to(stuck, boundary)])
    return found


def _sent(line: Generator[Move, Situation], at: Situation) -> Move | None:
    try:
        return line.send(at)
    except StopIteration:
        return None


def retell(boundary: Boundary, at: Situation, moves: list[Move]) -> list[str]:
    """The steps in words, each with what was written down in it."""
    lines = ["a sender sends a message to mx1"] if boundary.setup.at_once else []
    failed = ""
    for move in moves:
        lines.append(describe(boundary, at, move))
        try:
            at = boundary.make(at, move)
        except Broken as error:
            failed = str(error)
        lines += [f"    {line}" for line in boundary.told]
    lines.append(f"    {failed or boundary.rest(at)}")
    for number, mail in enumerate(at.mail, 1):
        lines = [line.replace(mail.id, f"m{number}") for line in lines]
    return lines
