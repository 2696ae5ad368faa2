"""Which explorations a run consists of, and how two workers share the time that there is."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from tests.simulation.seeds import PLACES

from .automaton import Memory
from .faults import ROT, every
from .search import Found, explore
from .setup import Setup

REMEMBERED = 120_000
"""States of members that a worker takes along to its next exploration: two or three gigabytes."""

EVERY = tuple(str(place.name) for place in PLACES)

TOGETHER = (("lost", "late"), ("hop", "drain"), ("crash", "disk"), ROT, ("rollback",), ("freeze",), ("cut",))
"""Kinds of second faults that one exploration goes through, those that are soonest done first. Where a packet
may be lost or put off each has to be seen, so these are among themselves.
"""

BEFORE = (("lost",), ("late",), ("drain",), ROT, ("crash", "disk", "rollback", "freeze", "cut", "hop"))
"""Kinds of first faults that one exploration goes through: those after which another may come at any time are
among themselves too.
"""


def setups(base: Setup, faults: int, *, apart: bool = False) -> list[Setup]:
    """One exploration for each fault; of two in sequence for all like ones that may come first and second
    (with three nodes: for each that may come first). ``apart``: each pair by itself, its causes told apart.
    """
    names = EVERY[: base.nodes]
    all_ = tuple(every(names))
    if faults == 0:
        return [base]
    if faults == 1:
        return [replace(base, faults=((fault,),)) for fault in all_]
    if apart:
        return [replace(base, faults=((first,), (second,))) for first in all_ for second in all_]
    firsts = _alike(all_, BEFORE) if base.nodes == 2 else [(fault,) for fault in all_]
    base = replace(base, causes=base.causes and base.nodes > 2)
    return [replace(base, faults=(first, then)) for then in _alike(all_, TOGETHER) for first in firsts]


def _alike(faults: tuple[str, ...], groups: tuple[tuple[str, ...], ...]) -> list[tuple[str, ...]]:
    return [tuple(fault for fault in faults if fault.split()[0] in kinds) for kinds in groups]


@dataclass(slots=True)
class Worker:
    """A process that explores one setup after the other, and the last that was heard of it."""

    process: BaseProcess
    line: Connection
    found: Found | None = None
    busy: bool = False

    def begin(self, setup: Setup, deadline: float, most: float) -> None:
        self.found, self.busy = Found(setup), True
        self.line.send((setup, deadline, most))

    def hear(self, patience: float) -> Found | None:
        """What it found, once it has ended."""
        try:
            while self.busy and self.line.poll(patience):
                over, self.found = self.line.recv()
                self.busy = not over
        except EOFError:
            what = self.found.setup.title if self.found else "nothing"
            raise RuntimeError(f"exploring {what} failed") from None
        return None if self.busy else self.found


def _work(line: Connection) -> None:
    """Reactions that were found once serve all later explorations."""
    gc.disable()  # what there is stays, for the most part, and what goes is no cycle: see ``Alone.end``
    memory = Memory()
    while (job := line.recv()) is not None:
        setup, deadline, most = job
        found = explore(
            setup, deadline=deadline, most=most, told=lambda found: line.send((False, found)), memory=memory
        )
        line.send((True, found))
        if sum(len(automaton.views) for automaton in memory.every()) > REMEMBERED:
            memory = Memory()
            gc.collect()


def _next(left: list[Setup], before: Found | None) -> Setup:
    """Rather one under the policy whose reactions that worker knows."""
    alike = (setup for setup in left if before is not None and setup.reject == before.setup.reject)
    setup = next(alike, left[0])
    left.remove(setup)
    return setup


def run(
    jobs: list[Setup],
    *,
    minutes: float | None,
    most: float,
    workers: int,
    told: Callable[[list[Found]], None],
) -> Iterator[Found]:
    """What each exploration found, as they end. Each gets its share of the time that is left, and goes no
    further than ``most`` situations.

    ``told`` hears now and then how those under way are doing. Whatever happens, no worker stays behind.
    """
    context = multiprocessing.get_context("spawn")  # threads that draw a bar may run here
    until = time.monotonic() + minutes * 60 if minutes else float("inf")
    left = list(jobs)
    team: list[Worker] = []
    try:
        for _ in range(min(workers, len(jobs))):
            here, there = context.Pipe()
            process = context.Process(target=_work, args=(there,))
            process.start()
            there.close()
            team.append(Worker(process, here))
        while left or any(worker.busy for worker in team):
            for worker in team:
                if left and not worker.busy:
                    now = time.monotonic()
                    waiting = len(left) + sum(other.busy for other in team)
                    share = (until - now) * len(team) / waiting
                    worker.begin(_next(left, worker.found), min(until, now + share), most)
            for worker in team:
                if worker.busy and (found := worker.hear(0.2 / workers)) is not None:
                    yield found
            told([worker.found for worker in team if worker.busy and worker.found])
    finally:
        for worker in team:
            worker.process.terminate()
            worker.process.join()
