"""How many messages a second: acknowledged with two copies and delivered, beside Postfix with one copy."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from .context import Bench
from .figures import Row, Spread, Target
from .postfix import postfix
from .proc import cpu_seconds, cpu_seconds_beside
from .smtp_tools import BenchError, Load, Sink, generate, sink
from .subjects import Subject, in_turn, lab, wait_until

KIB, MB = 1024, 1_000_000


@dataclass(frozen=True, slots=True)
class Cell:
    """One load, and the least ratio to Postfix that it is to reach."""

    name: str
    load: Load
    short: Load
    target: float | None


@dataclass(frozen=True, slots=True)
class Run:
    """One load through one relay; seconds from its first connection."""

    load: Load
    acknowledged_in: float
    delivered_in: float
    cpu: float
    sides: tuple[float, ...] = ()  # processor time of the first node, and of its shadow server
    commits: float = 0.0  # processor time of both nodes' threads beside the event loop
    waited: float | None = None  # the part of the senders' wait that the holder's commit took, 0 to 1

    @property
    def rates(self) -> dict[str, float]:
        """By measure; what this relay does not tell is left out."""
        each = 1000 / self.load.messages
        found = {
            "acknowledged": self.load.messages / self.acknowledged_in,
            "delivered": self.load.messages / self.delivered_in,
            PER_CORE: self.load.messages / self.cpu if self.cpu else 0.0,
            "processor time": self.cpu * each,
        }
        if len(self.sides) == len(_SIDES):
            found |= {name: side * each for name, side in zip(_SIDES, self.sides, strict=True)}
            found[COMMITS] = 100 * self.commits / self.cpu if self.cpu else 0.0
        if self.waited is not None:
            found[HOLDERS] = 100 * self.waited
        return found


PER_CORE = "delivered per core"
COMMITS = "both commits: share of the processor time"
HOLDERS = "the holder's commit: share of the wait for the 250"
_SIDES = ("processor time of the first node", "processor time of its shadow server")
_UNITS = {
    "acknowledged": "messages/s",
    "delivered": "messages/s",
    PER_CORE: "messages/s/core",
    "processor time": "ms/message",
    **dict.fromkeys(_SIDES, "ms/message"),
    COMMITS: "%",
    HOLDERS: "%",
}
_MEANS = "on two disks; Postfix: on one"


def _small(sessions: int, *, reused: bool) -> Cell:
    how = "reused" if reused else "one per message"
    load = Load(sessions, 3000, 4 * KIB, reused)
    return Cell(
        f"4 KiB, {sessions} sessions, {how}", load, replace(load, messages=300), 1.0 if reused else None
    )


SMALL = [_small(sessions, reused=reused) for reused in (True, False) for sessions in (10, 50)]
LARGE = [
    Cell("1 MB, 10 sessions, reused", Load(10, 200, MB, True), Load(10, 20, MB, True), 0.8),
    Cell("25 MB, 10 sessions, reused", Load(10, 20, 25 * MB, True), Load(4, 4, 25 * MB, True), None),
]


def throughput(bench: Bench) -> list[Row]:
    return list(_measured(bench, "throughput", SMALL))


def large(bench: Bench) -> list[Row]:
    return list(_measured(bench, "large", LARGE))


def _measured(bench: Bench, section: str, cells: list[Cell]) -> Iterator[Row]:
    with bench.room(section) as room, ExitStack() as stack:
        hop, port = bench.ports(2)
        end = stack.enter_context(sink(room, hop))
        subjects: list[Subject] = [stack.enter_context(lab(room / "lab", next_hop=hop))]
        if bench.with_postfix:
            subjects.append(stack.enter_context(postfix(room / "postfix", port=port, next_hop=hop)))
        bench.steps.expect((len(cells) * bench.rounds + 1) * len(subjects))
        for subject in subjects:
            with bench.steps.during(f"{section}: warming up {subject.label}"):
                run(cells[0].short, subject, end)
        for cell in cells:
            yield from _rows(section, cell, _rounds(bench, cell, subjects, end), judged=not bench.short)


def _rounds(bench: Bench, cell: Cell, subjects: list[Subject], end: Sink) -> Mapping[str, list[Run]]:
    """One after the other in every round, so that what else the machine does hits both."""
    found: dict[str, list[Run]] = {subject.label: [] for subject in subjects}
    for number in range(1, bench.rounds + 1):
        for subject in in_turn(subjects, number):
            with bench.steps.during(f"{cell.name}: {subject.label}, round {number}"):
                found[subject.label].append(run(cell.short if bench.short else cell.load, subject, end))
    return found


def run(load: Load, subject: Subject, end: Sink) -> Run:
    """Send the load and see it arrive. Delivered means that the sink has it and the queue is empty.

    Returns when the relay has nothing left to do, so that the next run starts afresh. Raises BenchError.
    """
    expected = end.messages() + load.messages
    sides = subject.sides()
    before, each = cpu_seconds(subject.pids()), [cpu_seconds(side) for side in sides]
    beside, told = _beside(sides), subject.waits()
    began = time.perf_counter()
    acknowledged = generate(load, subject.address)
    wait_until(lambda: end.messages() >= expected, f"{subject.label} has delivered {load.messages} messages")
    wait_until(subject.queue_is_empty, f"the queue of {subject.label} is empty")
    delivered = time.perf_counter() - began
    wait_until(subject.is_quiet, f"{subject.label} is quiet")
    if (arrived := end.messages()) != expected:
        raise BenchError(f"{subject.label}: {arrived - expected} messages more than were sent arrived")
    told_then = subject.waits()
    return Run(
        load,
        acknowledged,
        delivered,
        cpu_seconds(subject.pids()) - before,
        tuple(cpu_seconds(side) - then for side, then in zip(sides, each, strict=True)),
        _beside(sides) - beside,
        told_then.since(told) if told and told_then else None,
    )


def _beside(sides: list[list[int]]) -> float:
    return sum(map(cpu_seconds_beside, sides))


def _rows(section: str, cell: Cell, found: Mapping[str, list[Run]], *, judged: bool) -> Iterator[Row]:
    for measure, unit in _UNITS.items():
        spreads = {
            label: Spread(tuple(one.rates[measure] for one in runs))
            for label, runs in found.items()
            if all(measure in one.rates for one in runs)
        }
        if "two copies" not in spreads:
            continue
        wanted = judged and cell.target is not None and unit == "messages/s"
        yield Row(
            section,
            f"{cell.name}: {measure}",
            unit,
            ours=spreads["two copies"],
            postfix=spreads.get("Postfix"),
            target=Target(">=", cell.target) if wanted and cell.target is not None else None,
            means=_MEANS if measure == "acknowledged" else "",
        )
