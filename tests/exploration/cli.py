"""``scripts/prove explore``: every order of steps, breadth first, and what of it there was no time for."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from shadowrelay.cli.progress import bar

from . import hops
from .holes import HOLES, find
from .plan import run, setups
from .record import Record
from .search import Found
from .setup import Grain, Setup

WIDTH = 118
BOTH: dict[bool, tuple[bool | None, ...]] = {False: (None,), True: (False, True)}
"""How both policies are gone through: as a choice at every question, where one step asks and acts on it."""

POLICIES = {None: "both", False: "accept", True: "reject"}


@click.command()
@click.option("--nodes", type=click.IntRange(2, 3), default=2, show_default=True)
@click.option("--faults", type=click.IntRange(0, 2), default=1, show_default=True, help="In sequence.")
@click.option("--policy", type=click.Choice(["reject", "accept", "both"]), default="both", show_default=True)
@click.option("--messages", type=click.IntRange(1, 2), default=1, show_default=True)
@click.option("--recipients", type=click.IntRange(1, 2), default=1, show_default=True)
@click.option(
    "--attempts",
    type=click.IntRange(1, 4),
    default=1,
    show_default=True,
    help="At each other member, to leave a copy with it.",
)
@click.option("--minutes", type=float, help="Stop after that long; default: when everything was seen.")
@click.option("--most", type=int, help="Situations for each exploration: the same ones at every run.")
@click.option("--workers", type=int, default=2, show_default=True)
@click.option(
    "--grain",
    type=click.Choice(["packets", "answers", "talks"]),
    default="talks",
    show_default=True,
    help="One step between members: a packet, a question with its answer, a whole talk.",
)
@click.option(
    "--resubmit",
    is_flag=True,
    help="The message is delivered before, and an operator asks Safety Net for it at any time.",
)
@click.option("--orders", is_flag=True, help="An operator removes the message on its owner at any time.")
@click.option("--message-first", is_flag=True, help="Nothing happens before the message comes.")
@click.option(
    "--apart", is_flag=True, help="Of two faults: each pair by itself, not all like second ones at once."
)
@click.option(
    "--merge",
    is_flag=True,
    help="Tell only whether something explains a second delivery, not what: far fewer situations. "
    "Two nodes; of two faults always, but with --apart.",
)
@click.option("--commits-apart", is_flag=True, help="A commit is a step of its own.")
@click.option("--only", default="", help="Only explorations whose faults contain this text.")
@click.option(
    "--without",
    type=click.Choice([*map(str, HOLES), "all"]),
    help="Take out the fix of that counterexample, or of one after the other.",
)
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write what is complete to this file, and do not go through what stands there already.",
)
@click.option(
    "--hops",
    "between_hops",
    is_flag=True,
    help="Two boundaries of one node each, one hop by hop after the other, in place of all that.",
)
@click.option("--json", "as_json", is_flag=True)
def command(
    nodes: int,
    faults: int,
    policy: str,
    messages: int,
    recipients: int,
    attempts: int,
    minutes: float | None,
    most: int | None,
    workers: int,
    only: str,
    without: str | None,
    grain: Grain,
    record: Path | None,
    *,
    resubmit: bool,
    orders: bool,
    message_first: bool,
    apart: bool,
    merge: bool,
    commits_apart: bool,
    between_hops: bool,
    as_json: bool,
) -> None:
    """Explore every order of steps of the production code: deliveries, crashes, lost disks, partitions.

    With --without N a fix of the design is taken out, and the shortest way to what it prevents is shown.
    """
    if between_hops:
        raise SystemExit(hops.run(only, most, workers, WIDTH, as_json=as_json))
    if merge and nodes > 2:
        raise click.UsageError(
            "--merge is for two nodes: with more it matters which fault explains a delivery"
        )
    if resubmit and (messages, recipients) != (1, 1):
        raise click.UsageError("--resubmit is about one message to one recipient")
    if without is not None:
        until = time.monotonic() + minutes * 60 if minutes else inf
        missing = _taken_out(tuple(HOLES) if without == "all" else (int(without),), until, workers)
        _say_what_is_missing(missing, as_json=as_json)
        raise SystemExit(0 if all(found.problem for found in missing.values()) else 1)
    jobs = [
        setup
        for reject in {"reject": (True,), "accept": (False,), "both": BOTH[commits_apart]}[policy]
        for setup in setups(
            Setup(
                nodes=nodes,
                reject=reject,
                messages=messages,
                recipients=recipients,
                attempts=attempts,
                grain=grain,
                commits_apart=commits_apart,
                at_once=message_first,
                resubmits=resubmit,
                orders=orders,
                causes=not merge,
            ),
            faults,
            apart=apart,
        )
        if only in setup.title
    ]
    kept = Record(record)
    results = list({found.setup: found for setup in jobs for found in kept.of(setup)}.values())
    left = [setup for setup in jobs if not kept.of(setup)]
    ended = len(jobs) - len(left)
    with bar("explore", len(jobs)) as shown:

        def told(running: list[Found]) -> None:
            states = sum(found.states for found in (*results, *running))
            shown.tell(f"{states:,} states", ended)

        for found in run(left, minutes=minutes, most=most or inf, workers=workers, told=told):
            results.append(found)
            kept.add(found)
            ended += 1
            if found.problem:
                shown.say(f"{found.setup.title}: {found.problem}")
    results.sort(key=lambda found: jobs.index(found.setup) if found.setup in jobs else -1)
    _say(as_json, results, Console(width=WIDTH))
    raise SystemExit(1 if any(found.problem for found in results) else 0)


def _taken_out(numbers: tuple[int, ...], until: float, workers: int) -> dict[int, Found]:
    with bar("explore", len(numbers)) as shown, ThreadPoolExecutor(workers) as pool:

        def one(number: int) -> Found:
            found = find(number, deadline=until)
            shown.step(f"without {number}: {found.states:,} states, depth {found.depth}")
            return found

        return dict(zip(numbers, pool.map(one, numbers), strict=True))


def _say_what_is_missing(missing: dict[int, Found], *, as_json: bool) -> None:
    """Which fix was taken out, and what came of it; for a single one, how."""
    if as_json:
        click.echo(json.dumps({str(n): _plain(found) for n, found in missing.items()}, indent=2))
        return
    console = Console(width=WIDTH)
    table = Table(title="Every counterexample")
    table.add_column("", justify="right")
    table.add_column("taken out")
    table.add_column("looked for under")
    table.add_column("found")
    for name in ("states", "steps", "CPU s"):
        table.add_column(name, justify="right")
    for number, found in missing.items():
        faults = found.setup.title + (", reject" if found.setup.reject else "")
        steps = sum(not line.startswith(" ") for line in found.trace)
        what = found.problem or "[red]nothing[/]"
        sums = (f"{found.states:,}", f"{steps}", f"{found.seconds:.1f}")
        table.add_row(str(number), HOLES[number].title, faults, what, *sums)
    console.print(table)
    if len(missing) == 1:
        _retell(next(iter(missing.values())), console)


def _say(as_json: bool, results: list[Found], console: Console) -> None:
    if as_json:
        click.echo(json.dumps({"explorations": [_plain(found) for found in results]}, indent=2))
        return
    table = Table(title="Every interleaving")
    table.add_column("policy", no_wrap=True)
    table.add_column("faults", max_width=26)
    for name in ("states", "transitions", "depth", "left", "at rest", "CPU s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("duplicates, and why")
    for found in results:
        table.add_row(
            POLICIES[found.setup.reject],
            found.setup.title,
            *(f"{n:,}" for n in (found.states, found.transitions, found.depth, found.left, found.resting)),
            f"{found.seconds:.0f}",
            "; ".join(sorted(found.duplicates)),
        )
    console.print(table)
    complete = sum(found.complete for found in results)
    console.print(
        f"{len(results)} explorations, {complete} complete: {sum(f.states for f in results):,} states, "
        f"{sum(f.transitions for f in results):,} transitions, depth {max(f.depth for f in results)}; "
        f"left out: {sum(f.left for f in results):,} situations seen and not gone on from"
    )
    for found in results:
        if any(len(one) > 1 for one in found.setup.faults):
            begun = ", ".join(f"{fault} {times:,}" for fault, times in sorted(found.begun.items()))
            console.print(f"{found.setup.title}: began {begun or 'never'}", markup=False, highlight=False)
        if found.problem:
            _retell(found, console)


def _retell(found: Found, console: Console) -> None:
    console.print(f"\n{found.setup.title} ({POLICIES[found.setup.reject]}): {found.problem}", style="bold")
    for line in found.trace:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def _plain(found: Found) -> dict[str, Any]:
    names = ("states", "transitions", "depth", "left", "resting", "local", "seconds", "problem", "trace")
    return {
        "faults": found.setup.title,
        "setup": asdict(found.setup),
        "complete": found.complete,
        "duplicates": dict(found.duplicates),
        "begun": dict(found.begun),
        **{name: getattr(found, name) for name in names},
    }
