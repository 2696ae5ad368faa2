"""``scripts/prove mutants``: faults planted in the ordering of steps, and the test that notices each."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace

import click
from rich.console import Console
from rich.table import Table

from shadowlab.guard import terminable
from shadowrelay.cli.progress import Bar, bar

from .fault import Fault
from .mutants_table import Row, row_of, written
from .planted import FAULTS
from .planting import Bench, Ending, Outcome

_KINDS = ("source", "audit", "simulation")
_TRIES = 3  # some tests draw what they ask, and some depend on which of two processes is first
_NAMES = tuple(fault.name for fault in FAULTS)
_SEEDS = "simulation/test_seeds.py::test_no_seed_loses_or_duplicates_mail_without_a_cause"
_OF_HOSTS = "simulation/test_hosts.py::test_no_host_that_fails_takes_mail_with_it"
_OF_RECORDS = "simulation/test_records.py::test_members_agree_once_all_is_healed_and_no_act_is_undone"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", "names", multiple=True, help="This fault; may be repeated. Part of its name will do.")
@click.option(
    "--kind",
    type=click.Choice(_KINDS),
    help="Faults in a copy of the relay's source or the audit's, caught by tests; or planted while the "
    "simulation runs.",
)
@click.option("--jobs", default=min(2, os.cpu_count() or 1), show_default=True, type=click.IntRange(1, 64))
@click.option(
    "--seeds",
    default=0,
    metavar="N",
    type=click.IntRange(0, 100_000),
    help="Where the seed on record shows nothing any more, say which of the first N does.",
)
@click.option(
    "--draw",
    "draws",
    multiple=True,
    metavar="KIND N",
    type=(click.Choice(_KINDS), click.IntRange(0)),
    help="Only N faults of that kind, drawn by the seed; may be repeated.",
)
@click.option("--seed", default=0, show_default=True, help="For --draw.")
@click.option("--docs", is_flag=True, help="Write the table into docs/mutants.md. All faults, all caught.")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON.")
def command(
    names: tuple[str, ...],
    kind: str | None,
    jobs: int,
    seeds: int,
    draws: tuple[tuple[str, int], ...],
    seed: int,
    docs: bool,
    as_json: bool,
) -> None:
    """Plant one fault at a time, and see that the test named for it fails.

    The working tree is not touched: each fault goes into a copy of the source, which is thrown away. Without
    any fault all those tests have to pass. Exit status 0: they do, and every fault was caught.
    """
    kinds = [kind] if kind else _KINDS
    faults = [fault for fault in FAULTS if fault.kind in kinds and _wanted(fault.name, names)]
    for drawn_kind, most in draws:
        some = [fault for fault in faults if fault.kind == drawn_kind]
        drawn = random.Random(seed).sample(some, min(most, len(some)))
        faults = [fault for fault in faults if fault.kind != drawn_kind or fault in drawn]
    if not faults:
        raise click.UsageError(f"no such fault; there are: {'; '.join(_NAMES)}")
    began = time.monotonic()
    with terminable():
        rows, problem = _all(faults, jobs, seeds)
    held = not problem and all(row.caught for row in rows)
    moved = [f"{fault.name}: {what}" for fault in faults for what in _moved(fault)]
    if docs and held and len(rows) == len(_NAMES):
        written(rows)
    elif docs:
        click.echo("docs/mutants.md is written only when all faults were planted and caught", err=True)
    if as_json:
        told = {"held": held, "problem": problem, "moved": moved, "faults": [*map(asdict, rows)]}
        click.echo(json.dumps(told, indent=2))
    else:
        _show(rows, problem, moved, time.monotonic() - began)
    sys.exit(0 if held else 1)


def _wanted(name: str, names: Sequence[str]) -> bool:
    return not names or any(part.casefold() in name.casefold() for part in names)


def _all(faults: Sequence[Fault], jobs: int, seeds: int) -> tuple[list[Row], str]:
    """The rows, and what spoils them."""
    bench, pool = Bench(), ThreadPoolExecutor(jobs)
    try:
        with bar("mutants", len(faults)) as shown:
            control = pool.submit(bench.control, faults)
            tried = [pool.submit(_tried, bench, fault, seeds, shown) for fault in faults]
            return [*map(Future.result, tried)], _missing(control.result())
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        bench.end()
        pool.shutdown()
        bench.clear()


def _tried(bench: Bench, fault: Fault, seeds: int, shown: Bar) -> Row:
    row, tries = row_of(fault), 1
    try:
        outcome = bench.try_out(fault)
        while outcome.ending is not Ending.FAILED and tries < _TRIES:
            outcome, tries = bench.try_out(fault, seed=tries), tries + 1
        if seeds and fault.kind == "simulation" and outcome.ending is Ending.PASSED:
            module = fault.test.partition("::")[0]
            through = {"simulation/test_hosts.py": _OF_HOSTS, "simulation/test_records.py": _OF_RECORDS}.get(
                module, _SEEDS
            )
            found = bench.try_out(replace(fault, test=through), SHADOWRELAY_SEEDS=str(seeds))
            outcome = replace(outcome, said=f"of the first {seeds} seeds: {found.said or 'none shows it'}")
    except (LookupError, SyntaxError) as error:
        outcome = Outcome(Ending.STRANGE, f"it cannot be planted: {error}", 0.0)
    said = outcome.said or "its test passes all the same"
    caught = outcome.ending is Ending.FAILED
    row = replace(row, caught=caught, said=said, tries=tries, seconds=outcome.seconds)
    shown.step("" if row.caught else f"NOT CAUGHT: {row.name}")
    return row


def _moved(fault: Fault) -> list[str]:
    with suppress(LookupError):  # that it cannot be planted is told beside its name
        return fault.moved()
    return []


def _missing(control: Outcome) -> str:
    if control.ending is Ending.PASSED:
        return ""
    return f"without any fault the tests do not pass: {' '.join((*control.tests, control.said))}"


def _show(rows: Sequence[Row], problem: str, moved: Sequence[str], seconds: float) -> None:
    console = Console(width=None if sys.stdout.isatty() else 200)
    table = Table("fault", "where", "caught by", "what it said")
    table.add_column("seconds", justify="right")
    for row in rows:
        said = row.said if row.caught else f"NOT CAUGHT: {row.said}"
        style = None if row.caught else "red"
        cells = (row.name, row.where, row.test, said[:160])
        table.add_row(*(cell.replace("[", r"\[") for cell in cells), f"{row.seconds:.1f}", style=style)
    console.print(table)
    for row in rows:
        if not row.caught or row.tries > 1:
            told = f"caught at try {row.tries}" if row.caught else "NOT CAUGHT"
            console.print(f"{told}: {row.name}: {row.said[:160]}", markup=False, soft_wrap=True)
    for one in moved:
        console.print(f"moved: {one}", markup=False, soft_wrap=True)
    if problem:
        console.print(f"PROBLEM {problem}", markup=False, soft_wrap=True)
    caught = sum(row.caught for row in rows)
    console.print(f"{len(rows)} faults planted, {caught} caught, {seconds:.0f} s")
