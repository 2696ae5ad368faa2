"""How long a client waits between its final dot and the 250: with two copies, with one, and at Postfix."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass

from .client import latencies
from .context import Bench
from .figures import Row, Spread, Target, percentile
from .postfix import postfix
from .smtp_tools import Sink, sink
from .subjects import Subject, in_turn, lab, wait_until
from .throughput import KIB

BOUND = 2.5
"""How many times longer the second copy may let a client wait, at the median."""


@dataclass(frozen=True, slots=True)
class Cell:
    """``sessions`` at a time; each sends its next message when the last one was answered."""

    sessions: int
    messages: int

    def __str__(self) -> str:
        return f"4 KiB, {self.sessions} session{'s' if self.sessions > 1 else ''}"


CELLS, SHORT_CELLS = (Cell(1, 500), Cell(10, 2000)), (Cell(1, 50), Cell(10, 200))
SHARES = (("p50", 0.50), ("p99", 0.99))


def latency(bench: Bench) -> list[Row]:
    with bench.room("latency") as room, ExitStack() as stack:
        hop, port = bench.ports(2)
        end = stack.enter_context(sink(room, hop))
        subjects: list[Subject] = [
            stack.enter_context(lab(room / "with", next_hop=hop)),
            stack.enter_context(lab(room / "without", next_hop=hop, shadowing=False)),
        ]
        if bench.with_postfix:
            subjects.append(stack.enter_context(postfix(room / "postfix", port=port, next_hop=hop)))
        cells = SHORT_CELLS if bench.short else CELLS
        bench.steps.expect((len(cells) * bench.rounds + 1) * len(subjects))
        for subject in subjects:
            with bench.steps.during(f"latency: warming up {subject.label}"):
                measured(SHORT_CELLS[-1], subject, end)
        return [row for cell in cells for row in _rows(bench, cell, subjects, end)]


def _rows(bench: Bench, cell: Cell, subjects: list[Subject], end: Sink) -> list[Row]:
    found: dict[str, list[list[float]]] = {subject.label: [] for subject in subjects}
    for number in range(1, bench.rounds + 1):
        for subject in in_turn(subjects, number):
            with bench.steps.during(f"latency, {cell}: {subject.label}, round {number}"):
                found[subject.label].append(measured(cell, subject, end))
    rows = []
    for name, share in SHARES:
        spread = {label: spread_of(rounds, share) for label, rounds in found.items()}
        rows.append(
            Row(
                "latency",
                f"{cell}: dot to 250, {name}",
                "ms",
                ours=spread["two copies"],
                postfix=spread.get("Postfix"),
                without=spread["without shadowing"],
                target=Target("<=", BOUND) if name == "p50" and not bench.short else None,
            )
        )
    return rows


def spread_of(rounds: list[list[float]], share: float) -> Spread:
    """That percentile of each round, in ms."""
    return Spread(tuple(1000 * percentile(took, share) for took in rounds))


def measured(cell: Cell, subject: Subject, end: Sink) -> list[float]:
    """Of every message; returns when all are delivered and the relay is quiet."""
    expected = end.messages() + cell.messages
    took = asyncio.run(
        latencies(subject.address, sessions=cell.sessions, messages=cell.messages, size=4 * KIB)
    )
    wait_until(lambda: end.messages() >= expected, f"{subject.label} has delivered {cell.messages} messages")
    wait_until(subject.is_quiet, f"{subject.label} is quiet")
    return took
