"""``scripts/prove system-calls``: a fault at every write, sync and send call of one message's life."""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from shadowlab.guard import terminable
from shadowlab.mail import tracked
from shadowrelay.cli.progress import bar

from .bed.hop import next_hop
from .bed.needs import Skip, need, skipping
from .bed.nodes import Stuck, running
from .bed.strace import Fault
from .bed.verdict import Verdict, judge, struck
from .bed.walking import Boundary, Outcome, Role, Thread, Walk

SIZES = (2_000, 100_000)
"""Octets of a message whose content is a row, and of one whose content is a file."""

_FAULTS = {
    "kill": (Fault.KILL,),
    "eio": (Fault.EIO, Fault.EIO_ON),
    "enospc": (Fault.ENOSPC, Fault.ENOSPC_ON),
}
_MARGIN = 8  # calls past the measured ones: no two lives are quite the same
_MISSES = 3  # so many calls in a row that a life did not come to: the rest of that thread is past its end
_WIPED = 0.25  # of the victims that end
_REACHED = (
    0.25  # of the calls that were measured: half to three quarters are usual, no two lives are the same
)
_MANY = 30  # faults of one kind that do not all miss by chance


@dataclass(slots=True)
class Report:
    """Of one role."""

    role: Role
    measured: dict[str, int]
    planned: Counter[Fault]  # at calls that the measured lives made
    outcomes: list[Outcome] = field(default_factory=list)
    verdict: Verdict | None = None
    stuck: str = ""
    seconds: float = 0.0

    @property
    def reached(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.call is not None]

    @property
    def problems(self) -> list[str]:
        found = [
            f"{one.fault.label} at {one.boundary.thread} call {one.boundary.n} ({one.call}), "
            f"message of {one.boundary.size} octets {one.token}: {one.problem}"
            for one in self.outcomes
            if one.problem
        ]
        return [*found, self.stuck] if self.stuck else [*found, *self._missed()]

    def _missed(self) -> Iterator[str]:
        """What strace did not do: faults that nobody met show nothing."""
        by_fault = Counter(one.fault for one in self.reached)
        every = {"faults": (self.planned.total(), by_fault.total())}
        every |= {fault.label: (n, by_fault[fault]) for fault, n in self.planned.items() if n >= _MANY}
        for name, (planned, reached) in every.items():
            if not reached or reached < _REACHED * planned:
                yield f"{name}: {planned} planned, {reached} reached: too few to show anything"

    @property
    def kept(self) -> bool:
        return not self.problems and self.verdict is not None and self.verdict.kept

    def tree(self) -> dict[str, Any]:
        return {
            "role": self.role.value,
            "calls": self.measured,
            "planned": self.planned.total(),
            "faults": len(self.outcomes),
            "reached": len(self.reached),
            "by fault": dict(Counter(one.fault.label for one in self.reached)),
            "by call": dict(Counter(str(one.call) for one in self.reached).most_common()),
            "victims ended": sum(one.status is not None for one in self.reached),
            "disks lost": sum(one.wiped for one in self.reached),
            **(self.verdict.counts() if self.verdict else {}),
            "seconds": round(self.seconds, 1),
            "problems": self.problems,
        }


def boundaries(
    measured: dict[int, dict[Thread, int]], faults: Sequence[Fault], sample: float, rng: random.Random
) -> list[tuple[Boundary, Fault]]:
    """All of them with each fault, or a seeded part of them with one seeded fault each.

    ``measured`` is how many calls each thread makes, by the size of the message.
    """
    if sample >= 1:
        return [(boundary, fault) for fault in faults for boundary in _boundaries(measured, _MARGIN)]
    every = list(_boundaries(measured, 0))
    chosen = sorted(rng.sample(range(len(every)), max(1, round(len(every) * sample))))
    return [(every[index], rng.choice(faults)) for index in chosen]


def _boundaries(measured: dict[int, dict[Thread, int]], margin: int) -> Iterator[Boundary]:
    for size, threads in measured.items():
        for thread, calls in threads.items():
            for n in range(1, calls + margin + 1):
                yield Boundary(size, thread, n)


def reachable(
    planned: Iterable[tuple[Boundary, Fault]], done: list[Outcome]
) -> Iterator[tuple[Boundary, Fault]]:
    """Those that a life may come to: ``done`` grows meanwhile, and tells where the lives end."""
    for boundary, fault in planned:
        same = [
            one
            for one in done[-_MISSES:]
            if (one.boundary.size, one.boundary.thread, one.fault) == (boundary.size, boundary.thread, fault)
        ]
        if len(same) < _MISSES or any(one.call is not None for one in same):
            yield boundary, fault


def walk(role: Role, faults: Sequence[Fault], sample: float, seed: int, directory: Path) -> Report:
    """Walk one role. Raises Skip."""
    rng = random.Random(f"{seed} {role}")
    began = time.monotonic()
    with next_hop() as hop, running(directory, count=2, next_hop=hop.port) as nodes:
        walking = Walk(nodes, hop, role, directory / "strace.log")
        try:
            counts = {
                size: {thread: len(walking.measure(size, thread)) for thread in Thread} for size in SIZES
            }
        except RuntimeError as error:
            raise Skip(str(error)) from error
        planned = boundaries(counts, faults, sample, rng)
        report = Report(
            role,
            {f"{size}: {thread}": n for size, threads in counts.items() for thread, n in threads.items()},
            Counter(fault for at, fault in planned if at.n <= counts[at.size][at.thread]),
        )
        with bar(f"{role}", len(planned)) as shown:
            try:
                for boundary, fault in reachable(planned, report.outcomes):
                    outcome = walking.disturb(boundary, fault, wipe=rng.random() < _WIPED)
                    report.outcomes.append(outcome)
                    shown.step(f"({sum(bool(one.problem) for one in report.outcomes)} problems)")
            except Stuck as stuck:
                report.stuck = f"{boundary}, {fault.label}: {stuck}"
        rows = [row for node in nodes for row in tracked(node.at.tracking_dir)]
        told = {token: answer for token, (answer, _) in walking.post.told.items()}
        report.verdict = judge(told, hop.arrived(), rows, struck(hop.when(), nodes.ends()))
    report.seconds = time.monotonic() - began
    return report


def show(reports: Sequence[Report]) -> None:
    table = Table(title="A fault at each call of a message's life")
    table.add_column("")
    for report in reports:
        table.add_column(report.role.value, justify="right")
    trees = [report.tree() for report in reports]
    names = dict.fromkeys(
        name for tree in trees for name, value in tree.items() if isinstance(value, int | float)
    )
    for name in names:
        table.add_row(name, *(f"{tree.get(name, 0):,}" for tree in trees))
    for fault in dict.fromkeys(name for tree in trees for name in tree["by fault"]):
        table.add_row(f"  {fault}", *(f"{tree['by fault'].get(fault, 0):,}" for tree in trees))
    Console().print(table)
    for report in reports:
        for problem in report.problems:
            click.echo(f"{report.role}: {problem}")
        if report.verdict:
            for token in (*report.verdict.lost, *report.verdict.unexpected):
                click.echo(f"{report.role}: {token} is lost or unexpected")


@click.command()
@click.option(
    "--sample", type=click.FloatRange(0, 1, min_open=True), default=1.0, help="A seeded part of them."
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--role", type=click.Choice([role.value for role in Role]), help="Default: both.")
@click.option("--fault", type=click.Choice(list(_FAULTS)), help="Default: all three.")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON.")
@skipping
def command(sample: float, seed: int, role: str | None, fault: str | None, as_json: bool) -> None:
    """Kill a node at each system call of a message's life, or let the call fail.

    A message goes through two nodes: received, copied, acknowledged, delivered, discarded; then the victim
    stops in good order. strace injects SIGKILL, EIO or ENOSPC at one write, sync or send call of one of the
    victim's threads; the errors once, and from that call on. A victim that ended is started again, a quarter
    of them without their disk. What was accepted has to arrive, and what was refused must not.

    Exit status 77: this machine lacks strace, or does not let it attach.
    """
    need("strace")
    faults = [one for name, group in _FAULTS.items() if fault in (None, name) for one in group]
    directory = Path(tempfile.mkdtemp(prefix="prove-system-calls-"))
    with terminable():
        try:
            reports = [
                walk(one, faults, sample, seed, directory / one.value)
                for one in Role
                if role in (None, one.value)
            ]
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
    kept = all(report.kept for report in reports)
    if as_json:
        click.echo(json.dumps([report.tree() for report in reports], indent=2))
    else:
        show(reports)
    if kept:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        click.echo(f"the promise was broken; logs and databases: {directory}", err=True)
    sys.exit(not kept)
