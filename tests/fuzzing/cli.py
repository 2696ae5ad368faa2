"""``scripts/prove fuzz``: every target for some seconds, coverage-guided."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table

from shadowrelay.cli.progress import bar
from tests.proof.bed.needs import Skip, skipping

from .engine import FINDINGS, Run, fuzz, installed
from .registry import Target
from .targets import TARGETS


@click.command()
@click.option(
    "--target", "names", multiple=True, type=click.Choice(list(TARGETS)), help="This one; may be repeated."
)
@click.option(
    "--seconds", default=60, show_default=True, type=click.IntRange(1, 86_400), help="For each target."
)
@click.option("--jobs", default=min(2, os.cpu_count() or 1), show_default=True, type=click.IntRange(1, 64))
@click.option("--seed", default=1, show_default=True, type=click.IntRange(1, 2**31 - 1))
@click.option("--json", "as_json", is_flag=True, help="The table as JSON.")
@skipping
def command(names: tuple[str, ...], seconds: int, jobs: int, seed: int, as_json: bool) -> None:
    """Feed everything that parses with anything, and see whether its invariant holds.

    Needs atheris (pip install -e '.[fuzz]' -c constraints.txt). Begins with what the dialogues of the tests
    say. An input that breaks an invariant is put into tests/fuzzing/findings: the tests try it from then on.
    Exit status 77: there is no atheris.
    """
    if not installed():
        raise Skip("atheris is not installed: pip install -e '.[fuzz]' -c constraints.txt")
    chosen = [TARGETS[name] for name in dict.fromkeys(names)] or list(TARGETS.values())
    runs = _run(chosen, seconds, jobs, seed)
    broken = [run for run in runs if run.broken]
    if as_json:
        click.echo(json.dumps([_described(run) for run in runs], indent=2))
    else:
        _show(runs)
    if broken:
        raise SystemExit(1)


def _run(chosen: list[Target], seconds: int, jobs: int, seed: int) -> list[Run]:
    executions = dict.fromkeys((target.name for target in chosen), 0)
    runs: dict[str, Run] = {}
    with bar("fuzz", len(chosen)) as shown, ThreadPoolExecutor(jobs) as pool:

        def heard(name: str, count: int) -> None:
            executions[name] = count
            shown.tell(f"targets, {sum(executions.values()):,} inputs, now {name}")

        def one(target: Target) -> Run:
            return fuzz(
                target,
                seconds=seconds,
                seed=seed,
                executed=lambda count, name=target.name: heard(name, count),
            )

        waiting = [pool.submit(one, target) for target in chosen]
        try:
            for done in as_completed(waiting):
                run = done.result()
                runs[run.target] = run
                shown.step()
        except BaseException:
            # Ctrl-C reaches the fuzzers as well; those that have not begun never do.
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [runs[target.name] for target in chosen]


def _described(run: Run) -> dict[str, object]:
    invariant = TARGETS[run.target].invariant
    return {**asdict(run), "finding": str(run.finding) if run.finding else None, "invariant": invariant}


def _show(runs: list[Run]) -> None:
    table = Table("target", "inputs", "coverage", "invariant")
    for run in runs:
        found = f"[red]BROKEN {run.broken}[/red]" if run.broken else TARGETS[run.target].invariant
        table.add_row(run.target, f"{run.executions:,}", str(run.coverage), found)
    console = Console(width=None if Console().is_terminal else 140)
    console.print(table)
    for run in runs:
        if run.finding:
            console.print(f"{run.target}: {run.finding.relative_to(FINDINGS.parents[2])}")
    console.print(
        f"{sum(run.executions for run in runs):,} inputs, {sum(bool(run.broken) for run in runs)} broken"
    )
