"""Which explorations a run consists of, and how two workers share the time that there is."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from tests.simulation.seeds import PLACES

from .faults import every
from .search import Found, explore
from .setup import Setup

EVERY = tuple(str(place.name) for place in PLACES)


def setups(base: Setup, faults: int) -> list[Setup]:
    """One exploration for each fault that may come first; what comes after it may be any."""
    names = EVERY[: base.nodes]
    all_ = tuple(every(names))
    if faults == 0:
        return [base]
    if faults == 1:
        return [replace(base, faults=((fault,),)) for fault in all_]
    return [replace(base, faults=((first,), (second,))) for first in all_ for second in all_]


@dataclass(slots=True)
class Worker:
    """A process that explores, and the last that was heard of it."""

    process: BaseProcess
    found: Found


def _work(setup: Setup, deadline: float, line: Connection) -> None:
    line.send(explore(setup, deadline=deadline, told=line.send))
    line.close()


def run(
    jobs: list[Setup], *, minutes: float | None, workers: int, told: Callable[[list[Found]], None]
) -> Iterator[Found]:
    """What each exploration found, as they end. Each gets its share of the time that is left.

    ``told`` hears now and then how those under way are doing. Whatever happens, no worker stays behind.
    """
    context = multiprocessing.get_context("fork")
    until = time.monotonic() + minutes * 60 if minutes else float("inf")
    left = list(jobs)
    running: dict[Connection, Worker] = {}
    try:
        while left or running:
            while left and len(running) < workers:
                now = time.monotonic()
                share = (until - now) * workers / (len(left) + len(running))
                setup = left.pop(0)
                here, there = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(setup, min(until, now + share), there))
                process.start()
                there.close()
                running[here] = Worker(process, Found(setup))
            for line in tuple(running):
                worker = running[line]
                try:
                    while line.poll(0.2 / workers):
                        worker.found = line.recv()
                except EOFError:
                    del running[line]
                    worker.process.join()
                    if worker.process.exitcode:
                        raise RuntimeError(f"exploring {worker.found.setup.title} failed") from None
                    yield worker.found
            told([worker.found for worker in running.values()])
    finally:
        for worker in running.values():
            worker.process.terminate()
            worker.process.join()
