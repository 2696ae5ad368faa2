"""Breadth first through every situation that can come about."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from tests.simulation.checks import Broken

from .automaton import Memory
from .boundary import Boundary
from .line import straight
from .setup import Move, Setup
from .situation import Situation
from .words import describe


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
    asked_policy: bool = False  # was a message ever accepted, or refused, as exposed?
    twin: bool = False  # not gone through itself: it is the same as under the other policy
    seconds: float = 0.0  # of processor time
    problem: str = ""
    trace: list[str] = field(default_factory=list)
    duplicates: Counter[str] = field(default_factory=Counter)

    @property
    def complete(self) -> bool:
        return not self.left and not self.problem


class Graph:
    """Situations by number: how each was first reached, and which lead to which."""

    def __init__(self) -> None:
        self.numbers: dict[Situation, int] = {}
        self.parents: list[tuple[int, Move]] = []
        self.depths: list[int] = []
        self.before: list[list[int]] = []  # who leads here
        self.resting: set[int] = set()

    def add(self, situation: Situation, parent: int, move: Move) -> tuple[int, bool]:
        known = self.numbers.get(situation)
        if known is not None:
            self.before[known].append(parent)
            return known, False
        number = self.numbers[situation] = len(self.parents)
        self.parents.append((parent, move))
        self.depths.append(self.depths[parent] + 1 if number else 0)
        self.before.append([parent] if number else [])
        return number, True

    def moves_to(self, number: int) -> list[Move]:
        moves = []
        while number:
            number, move = self.parents[number]
            moves.append(move)
        return moves[::-1]

    def stuck(self, unexplored: set[int]) -> int | None:
        """The first situation from which no way leads to rest (an unexplored one might)."""
        good = self.resting | unexplored
        frontier = list(good)
        while frontier:
            for parent in self.before[frontier.pop()]:
                if parent not in good:
                    good.add(parent)
                    frontier.append(parent)
        stuck = [(number, at) for at, number in self.numbers.items() if number not in good]
        told = (number for number, at in stuck if len(at.taken) >= len(at.mail) and not at.packets)
        return next(told, stuck[0][0] if stuck else None)  # rather one in which all mail is through


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
    found, graph, boundary = Found(setup), Graph(), Boundary(setup, memory or Memory())
    start = boundary.start()
    graph.add(start, 0, ())
    queue: list[tuple[int, Situation]] = []
    position = 0

    def sum_up() -> None:
        found.states = len(graph.parents)
        found.left = len(queue) - position
        found.resting = len(graph.resting)
        found.local = sum(len(automaton.views) for automaton in boundary.automata)
        found.asked_policy = boundary.asked_policy
        found.seconds = time.process_time() - began

    def failed(error: Broken, number: int, move: Move) -> Found:
        found.problem = str(error)
        sum_up()
        found.trace = retell(boundary, start, [*graph.moves_to(number), move])
        return found

    number, situation = 0, start
    line = straight(boundary, start)
    move: Move | None = next(line, None)
    try:
        while move is not None:
            situation = boundary.make(situation, move)
            number, _ = graph.add(situation, number, move)
            move = _sent(line, situation)
    except Broken as error:
        return failed(error, number, move)
    queue.append((number, situation))
    while position < len(queue) and len(graph.parents) < most and time.monotonic() < deadline:
        number, situation = queue[position]
        queue[position] = (number, start)  # let go of it
        try:
            for move in boundary.moves(situation):
                after = boundary.make(situation, move)
                found.transitions += 1
                child, new = graph.add(after, number, move)
                if not new:
                    continue
                found.duplicates.update(boundary.causes)
                found.depth = max(found.depth, graph.depths[child])
                rests = boundary.at_rest(after)
                if rests:
                    graph.resting.add(child)
                if not (rests and boundary.spent(after)):
                    queue.append((child, after))
        except Broken as error:
            return failed(error, number, move)
        position += 1
        if position % 256 == 0:
            sum_up()
            told(found)
    sum_up()
    stuck = graph.stuck({number for number, _ in queue[position:]})
    if stuck is not None:
        found.problem = "from here no way leads to rest"
        found.trace = retell(boundary, start, graph.moves_to(stuck))
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
