"""``scripts/prove explore --hops``: two boundaries of one node each, every single fault, to the end."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from math import inf

import click
from rich.console import Console
from rich.table import Table

from shadowrelay.cli.progress import bar

from .search import PLANS, Explored, explore


def run(only: str, most: int | None, workers: int, width: int, *, as_json: bool) -> int:
    """Explore, and show what came of it. Returns the exit status: 1 if there is a problem."""
    plans = [plan for plan in PLANS if only in plan.title]
    if not plans:
        raise click.UsageError(f"no exploration of hops has {only!r} in its name")
    results = []
    with bar("explore", len(plans)) as shown, ProcessPoolExecutor(min(workers, len(plans))) as pool:
        jobs = [pool.submit(explore, plan, most=most or inf) for plan in plans]
        for job in as_completed(jobs):
            found = job.result()
            results.append(found)
            shown.step(f"{found.plan.title}: {found.states:,} states")
            if found.problem:
                shown.say(f"{found.plan.title}: {found.problem}")
    results.sort(key=lambda found: plans.index(found.plan))
    if as_json:
        click.echo(json.dumps({"hops": [_plain(found) for found in results]}, indent=2))
    else:
        _say(results, Console(width=width))
    return 1 if any(found.problem for found in results) else 0


def _say(results: list[Explored], console: Console) -> None:
    table = Table(title="Hop by hop")
    table.add_column("fault", max_width=24)
    for name in ("states", "transitions", "depth", "left", "at rest", "excused", "CPU s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("duplicates, and why")
    for found in results:
        numbers = (found.states, found.transitions, found.depth, found.left, found.resting, found.excused)
        why = "; ".join(sorted(found.duplicates))
        table.add_row(found.plan.title, *(f"{one:,}" for one in numbers), f"{found.seconds:.0f}", why)
    console.print(table)
    console.print(
        f"{len(results)} explorations, {sum(one.complete for one in results)} complete: "
        f"{sum(one.states for one in results):,} states, "
        f"{sum(one.transitions for one in results):,} transitions, "
        f"depth {max(one.depth for one in results)}; at rest {sum(one.resting for one in results):,}: "
        f"in {sum(one.excused for one in results):,} only a lost disk had the message, "
        f"in {sum(one.waiting for one in results):,} B waits for A's next session to forget events, "
        f"in {sum(one.aging for one in results):,} A was put back and keeps a row until it is too old"
    )
    for found in results:
        if found.problem:
            console.print(f"\n{found.plan.title}: {found.problem}", style="bold")
            for line in found.trace:
                console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def _plain(found: Explored) -> dict[str, object]:
    return {"title": found.plan.title, "complete": found.complete, **asdict(found)}
