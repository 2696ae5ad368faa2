"""The situations that were come across, in little room: millions of them fit into memory."""

from __future__ import annotations

from array import array
from itertools import accumulate
from struct import Struct
from typing import Any

from .boundary import Boundary
from .essence import Essence
from .setup import Move
from .situation import Situation


class Graph:
    """Situations by number: how each was first reached, and which lead to which.

    Packets under way and facts are the same in very many of them: each combination is kept once. So a
    situation is the numbers of its members' states and of these two; nothing of it is lost. With an
    ``essence`` the first stands for all that have it in common.
    """

    def __init__(self, members: int, essence: Essence | None = None) -> None:
        self._form = Struct(f"{members + 2}I")
        self._parts: dict[tuple[Any, ...], int] = {}
        self._values: list[tuple[Any, ...]] = []
        self._essence = essence
        self._essences: dict[tuple[int, int], tuple[int, int]] = {}
        self._keys: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._parents = array("I")
        self._indexes = array("H")  # of the step that led here first, among all that are possible before it
        self._edges = (array("I"), array("I"))  # from where, to where
        self.depths = array("H")
        self.resting: set[int] = set()

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, number: int) -> Situation:
        *nodes, packets, facts = self._form.unpack(self._keys[number])
        return Situation(tuple(nodes), self._values[packets], *self._values[facts])

    def add(self, situation: Situation, parent: int, index: int) -> tuple[int, bool]:
        """Its number, and whether it is new."""
        nodes, packets, *_ = situation
        parts = self._part(packets), self._part(situation[2:])
        key = same = self._form.pack(*nodes, *parts)
        if self._essence is not None:
            if parts not in self._essences:
                packets, facts = self._essence(situation)
                self._essences[parts] = self._part(packets), self._part(facts)
            same = self._form.pack(*nodes, *self._essences[parts])
        number = len(self._keys)
        known = self._numbers.setdefault(same, number)
        if number:
            self._edges[0].append(parent)
            self._edges[1].append(known)
        if known != number:
            return known, False
        self._keys.append(key)
        self._parents.append(parent)
        self._indexes.append(index)
        self.depths.append(self.depths[parent] + 1 if number else 0)
        return number, True

    def _part(self, value: tuple[Any, ...]) -> int:
        number = self._parts.setdefault(value, len(self._values))
        if number == len(self._values):
            self._values.append(value)
        return number

    def way_to(self, number: int, boundary: Boundary) -> list[Move]:
        """The steps to that situation, from the one it all began with."""
        indexes = []
        while number:
            indexes.append(self._indexes[number])
            number = self._parents[number]
        steps, at = [], self[0]
        for index in reversed(indexes):
            step = boundary.step_of(at, index)
            steps.append(step)
            at = boundary.make(at, step)
        return steps

    def stuck(self, unexplored: list[int]) -> int | None:
        """The first situation from which no way leads to rest (an unexplored one might)."""
        good = self._before([*self.resting, *unexplored])
        stuck = [(number, self[number]) for number in range(len(self)) if not good[number]]
        told = (number for number, at in stuck if len(at.taken) >= len(at.mail) and not at.packets)
        return next(told, stuck[0][0] if stuck else None)  # rather one in which all mail is through

    def _before(self, frontier: list[int]) -> bytearray:
        """For each situation: does it lead to one of these?"""
        sources, targets = self._edges
        first = array("I", bytes(4 * (len(self) + 1)))
        for target in targets:
            first[target] += 1
        first = array("I", accumulate(first))
        before = array("I", bytes(4 * len(targets)))
        for source, target in zip(sources, targets, strict=True):
            first[target] -= 1
            before[first[target]] = source
        good = bytearray(len(self))
        for number in frontier:
            good[number] = 1
        while frontier:
            number = frontier.pop()
            for parent in before[first[number] : first[number + 1]]:
                if not good[parent]:
                    good[parent] = 1
                    frontier.append(parent)
        return good
