"""``scripts/prove kill-points``: nodes kill themselves at every point where responsibility changes hands."""

from __future__ import annotations

import json
import math
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from shadowlab.errors import LabError
from shadowlab.guard import terminable
from shadowrelay.cli.progress import bar
from shadowrelay.failpoints import POINTS

from .kill_cases import Case, Role, cases
from .kill_runs import Ground, Lab, Result
from .kill_verdict import Verdict

_MESSAGES_PER_KILL = 40


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--messages", default=200, show_default=True, type=click.IntRange(5, 10_000), help="Per case.")
@click.option("--point", "points", multiple=True, type=click.Choice(POINTS), help="Only these points.")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    help="Only the owner, or only the holder, is killed.",
)
@click.option("--seed", default=1, show_default=True, help="Of the passages at which nodes die.")
@click.option(
    "--one-per-point", is_flag=True, help="One case of each point, drawn by the seed: the short form."
)
@click.option("--json", "as_json", is_flag=True, help="The table as JSON.")
@click.option("--keep", is_flag=True, help="Keep the labs' directory, also after success.")
def command(
    messages: int,
    points: Sequence[str],
    role: str | None,
    seed: int,
    one_per_point: bool,
    as_json: bool,
    keep: bool,
) -> None:
    """Kill nodes of a lab at each point, restart them (some without their disk), and count the mail.

    Exit status 0: everything acknowledged arrived, and what arrived twice has a cause that the promise
    allows.
    """
    chosen = [
        case
        for case in cases()
        if (not points or case.point in points) and (role is None or case.role == role)
    ]
    if one_per_point:
        chosen = _one_of_each(chosen, random.Random(seed))
    home = Path(tempfile.mkdtemp(prefix="shadowrelay-kill-"))
    results: list[Result] = []
    held = False
    began = time.monotonic()
    try:
        with terminable():
            for result in _all(chosen, home, messages, seed):
                results.append(result)
        held = len(results) == len(chosen) > 0 and not any(one.verdict.problems for one in results)
    finally:
        if held and not keep:
            shutil.rmtree(home)
        else:
            click.echo(f"Logs, settings and mail of the labs are in {home}", err=True)
    if as_json:
        click.echo(json.dumps(_tree(results, seed, held=held), indent=2))
    else:
        _show(results, time.monotonic() - began)
    sys.exit(0 if held else 1)


def _one_of_each(chosen: Sequence[Case], rng: random.Random) -> list[Case]:
    of_point: dict[str, list[Case]] = {}
    for case in chosen:
        of_point.setdefault(case.point, []).append(case)
    return [rng.choice(alike) for alike in of_point.values()]


def _all(chosen: Sequence[Case], home: Path, messages: int, seed: int) -> Iterator[Result]:
    """Cases that need the same settings share a lab, until one of them fails."""
    kills = math.ceil(messages / _MESSAGES_PER_KILL)
    with bar("kill-points", len(chosen)) as shown:
        for lab in Lab:
            ground: Ground | None = None
            with ExitStack() as labs:
                for case in chosen:
                    if Lab.of(case) is not lab:
                        continue
                    shown.tell(str(case))
                    if ground is None:
                        directory = home / f"lab-{shown.done:.0f}"
                        ground = _made(directory, lab, labs)
                    rng = random.Random(f"{seed} {case}")
                    try:
                        result = ground.run(case, messages, kills, rng)
                    except LabError as problem:
                        result = Result(
                            case, messages, kills, (), Verdict(problems=[f"the lab failed: {problem}"]), 0.0
                        )
                    shown.step(str(case))
                    yield result
                    if result.verdict.problems:
                        shown.say(f"FAILED {case}: {result.verdict.problems[0]}")
                        ground.down()
                        ground = None


def _made(directory: Path, lab: Lab, labs: ExitStack) -> Ground:
    ground = Ground(directory)
    labs.callback(ground.down)
    ground.up(lab)
    return ground


def _show(results: Sequence[Result], seconds: float) -> None:
    table = Table("point", "killed", "while", "disk")
    for name in (
        "messages",
        "planned",
        "kills",
        "acknowledged",
        "delivered",
        "lost",
        "unexpected",
        "duplicates",
    ):
        table.add_column(name, justify="right")
    causes: dict[str, int] = {}
    for one in results:
        case, found = one.case, one.verdict
        for cause, count in found.duplicates.items():
            causes[cause] = causes.get(cause, 0) + count
        numbers = (
            one.messages, one.planned, len(one.kills), found.acknowledged, found.delivered,
            found.lost, found.unexpected, found.duplicates.total(),
        )  # fmt: skip
        style = "red" if found.problems else None
        disk = "lost" if case.disk_lost else "kept"
        table.add_row(case.point, case.role, case.course, disk, *map(str, numbers), style=style)
    table.add_section()
    sums = (
        sum(one.messages for one in results),
        sum(one.planned for one in results), sum(len(one.kills) for one in results),
        *(sum(getattr(one.verdict, name) for one in results) for name in _SUMS),
        sum(one.verdict.duplicates.total() for one in results),
    )  # fmt: skip
    table.add_row("all", "", "", "", *map(str, sums))
    console = Console(width=None if sys.stdout.isatty() else 170)
    console.print(table)
    for cause, count in sorted(causes.items()):
        console.print(f"duplicates, {'UNEXPLAINED: ' if cause.startswith('!') else ''}{cause}: {count}")
    for one in results:
        for problem in one.verdict.problems[:20]:
            console.print(f"PROBLEM {one.case}: {problem}", markup=False, soft_wrap=True)
    failed = sum(bool(one.verdict.problems) for one in results)
    console.print(f"{len(results)} cases, {failed} failed, {seconds:.0f} s")


_SUMS = ("acknowledged", "delivered", "lost", "unexpected")


def _tree(results: Sequence[Result], seed: int, *, held: bool) -> dict[str, object]:
    return {
        "held": held,
        "seed": seed,
        "cases": [
            {
                "point": one.case.point,
                "role": one.case.role,
                "course": one.case.course,
                "disk": "lost" if one.case.disk_lost else "kept",
                "messages": one.messages,
                "planned": one.planned,
                "kills": [asdict(kill) for kill in one.kills],
                "seconds": round(one.seconds, 1),
                **{name: getattr(one.verdict, name) for name in (*_SUMS, "recovered")},
                "duplicates": dict(one.verdict.duplicates),
                "problems": one.verdict.problems,
            }
            for one in results
        ],
    }
