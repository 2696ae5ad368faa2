"""Which explorations a run consists of, and how two workers share the time that there is."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection, wait

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
    left, running = list(jobs), {}
    try:
        while left or running:
            while left and len(running) < workers:
                now = time.monotonic()
                share = (until - now) * workers / (len(left) + len(running))
                here, there = context.Pipe(duplex=False)
                process = context.Process(
                    target=_work, args=(left[0], min(until, now + share), there), daemon=True
                )
                process.start()
                there.close()
                running[here] = (process, left.pop(0), Found(jobs[0]))
            for line in wait(list(running), timeout=1.0):
                process, setup, _ = running[line]  # type: ignore[index]
                try:
                    running[line] = (process, setup, line.recv())  # type: ignore[index, union-attr]
                except EOFError:
                    _, _, found = running.pop(line)  # type: ignore[arg-type]
                    process.join()
                    if process.exitcode:
                        raise RuntimeError(f"exploring {setup.title} ended with {process.exitcode}") from None
                    yield found
            told([found for _, _, found in running.values()])
    finally:
        for process, _, _ in running.values():
            process.terminate()
            process.join()
