"""``scripts/bench relay``: two nodes of a lab beside Debian's Postfix."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console

from shadowlab.errors import LabError
from shadowlab.guard import terminable
from shadowrelay.cli.progress import bar

from . import machine, postfix, report, smtp_tools
from .context import Bench
from .exposure import exposure
from .figures import Row
from .floods import floods
from .latency import latency
from .memory import memory
from .million import million
from .smtp_tools import BenchError
from .takeover import takeover
from .throughput import large, throughput
from .workers import workers

SECTIONS: Mapping[str, Callable[[Bench], list[Row]]] = {
    "throughput": throughput,
    "large": large,
    "latency": latency,
    "memory": memory,
    "takeover": takeover,
    "exposure": exposure,
    "floods": floods,
    "workers": workers,
    "million": million,
}
APART = frozenset({"million"})
"""Sections that only ``--only`` measures: they fill databases for minutes."""

ROUNDS, SHORT_ROUNDS = 5, 1
DOCS = Path("docs")


@click.command(
    name="relay",
    short_help="Throughput, latency, memory, takeover, exposure, floods and workers, beside Postfix.",
)
@click.option(
    "--only", multiple=True, type=click.Choice(list(SECTIONS)), help="This section alone; may be repeated."
)
@click.option("--rounds", type=click.IntRange(1, 100), help=f"Rounds of each measure. Default: {ROUNDS}.")
@click.option(
    "--queued", type=click.IntRange(100), help="Messages in the queue of million. Default: 1,000,000."
)
@click.option("--short", is_flag=True, help="A little of everything, to see that it runs; judges nothing.")
@click.option(
    "--dir",
    "directory",
    default=Path("/var/tmp"),
    show_default=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The disk to measure on: all queues are below a temporary directory in it.",
)
@click.option(
    "--json",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The table as JSON; - is standard output.",
)
@click.option(
    "--docs",
    default=DOCS,
    show_default=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where a complete run rewrites benchmarks.md and benchmarks.json, and adds to the history.",
)
@click.pass_context
def command(
    ctx: click.Context,
    only: tuple[str, ...],
    rounds: int | None,
    queued: int | None,
    short: bool,
    directory: Path,
    file: Path | None,
    docs: Path,
) -> None:
    """Measure two nodes of a lab (a 250 means two copies) beside Debian's Postfix (one copy).

    Same generator, same sink, same disk; the relays take turns. A complete run, with every section and with
    Postfix, takes about half an hour and rewrites the page of the documentation. Without Postfix's daemons
    (they need root) only the relay is measured. Exit status: 0 measured, and every target reached; 1 a
    target missed, or a measure failed; the rest is told all the same.
    """
    wanted = [name for name in SECTIONS if (name in only if only else short or name not in APART)]
    count = rounds or (SHORT_ROUNDS if short else ROUNDS)
    try:
        if file and str(file) != "-":
            file.touch()  # now, and not after half an hour, it is told that it cannot be written
        with terminable():
            facts, rows, failures = _measured(wanted, count, directory, short=short, queued=queued)
    except (BenchError, OSError) as problem:
        raise click.ClickException(str(problem)) from problem
    figures = report.tree(facts, count, rows)
    if file:
        with click.open_file(str(file), "w", encoding="utf-8") as out:
            out.write(json.dumps(figures, indent=1) + "\n")
    if str(file) != "-":
        report.show(Console(), facts, rows)
    if not (short or failures):
        _publish(docs, set(only), facts, count, rows)
    for failure in failures:
        click.echo(f"Error: {failure}", err=True)
    ctx.exit(bool(failures) or any(row.verdict == "MISS" for row in rows))


def _publish(docs: Path, only: set[str], facts: dict[str, str], rounds: int, rows: Sequence[Row]) -> None:
    """Rewrite the page after a complete run, or the rows of sections that only ``--only`` measures."""
    machine, before, old = report.known(docs, "relay")
    if not only and facts["Postfix"] != "not measured":
        report.remember(docs, report.remembered(facts, rounds, rows))
        apart = {key: when for key, when in machine.items() if key in APART}
        machine, before = {**facts, **apart}, rounds
        shown = [*rows, *(row for row in old if row.section in APART)]
    elif only and only <= APART and old:
        machine = {**machine, **dict.fromkeys(sorted(only), facts["when"])}
        shown = [*(row for row in old if row.section not in only), *rows]
    else:
        return
    text = report.markdown(machine, before, shown)
    report.publish(docs, "relay", text, report.tree(machine, before, shown))


def _measured(
    sections: Sequence[str], rounds: int, directory: Path, *, short: bool, queued: int | None
) -> tuple[dict[str, str], list[Row], list[str]]:
    """The machine, what was measured on it, and what could not be: one section's trouble spares the others.

    After Ctrl-C what was measured before is still told. Raises BenchError when nothing can be measured.
    """
    if problem := smtp_tools.missing():
        raise BenchError(problem)
    if problem := postfix.missing():
        click.echo(f"bench: without Postfix beside it: {problem}", err=True)
    descriptors = machine.raise_descriptors()
    rows: list[Row] = []
    failures: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="shadowrelay-bench-", dir=directory) as path,
        bar("bench") as steps,
    ):
        room = Path(path)
        room.chmod(0o711)
        facts = machine.described(room, descriptors=descriptors, with_postfix=problem is None)
        before = machine.busy()
        bench = Bench(room, rounds, short, steps, with_postfix=problem is None, queued=queued)
        for name in sections:
            try:
                rows += SECTIONS[name](bench)
            except (BenchError, LabError, OSError) as trouble:
                failures.append(f"{name}: {trouble}")
            except KeyboardInterrupt:
                failures.append(f"interrupted in {name}")
                break
        facts["others"] = f"use {before} of the cores before, {machine.busy()} after"
    return facts, rows, failures
