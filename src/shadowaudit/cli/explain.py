"""``shadowaudit explain``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from shadowaudit.cli import options
from shadowaudit.cli.progress import Shown
from shadowaudit.core.events import Event, Kind
from shadowaudit.core.findings import MEANING, Finding
from shadowaudit.core.weighing import weigh
from shadowaudit.core.workers import label
from shadowaudit.engine.exact import looked_at
from shadowaudit.logs.manifest import find, open_logs
from shadowaudit.logs.seek import journeys


@click.command("explain")
@click.argument("what", metavar="MESSAGE-ID|ADDRESS")
@options.places
@click.option("--lost", multiple=True, type=options.Lost(), metavar="DATABASE-ID|NODE", help="As for verify.")
@click.option("--allow-open", is_flag=True, help="As for verify.")
@click.option(
    "--most",
    default=20,
    show_default=True,
    type=click.IntRange(min=1),
    help="Show no more messages than that.",
)
@click.option("--json", "as_json", is_flag=True, help="Print rows and findings as JSON, one message a line.")
def command(
    what: str,
    places: tuple[Path | str, ...],
    lost: tuple[str, ...],
    most: int,
    *,
    allow_open: bool,
    as_json: bool,
) -> None:
    """Tell the journey of a message over all nodes: who had it, when, and what is wrong with that.

    MESSAGE-ID is the id of the log (network-message-id) or the Message-ID header; an ADDRESS of a sender or
    recipient tells of all its messages, the earliest first. Give the whole of it: a part of an id or of an
    address finds nothing. The domain of an address may be in upper or lower case, the part before it is taken
    as it is.

    The files are searched as they are: no engine is needed. Logs that a node still writes are not, and are
    named. Exit status 0: found, 1: no row mentions it, 2: usage.
    """
    if not what.strip("<> "):
        raise click.UsageError("say which message: its id, or an address of its sender or a recipient")
    if not places:
        raise click.UsageError("say where the logs are: shadowaudit explain MESSAGE-ID DIR…")
    here = options.Places.of(places).here
    if len(here) < len(places):
        raise click.UsageError(
            "explain reads directories of this machine: logs at a URI are for Spark's queries"
        )
    with options.told("interrupted", what="explain", so="no message was told of to its end"):
        opened = open_logs(here)  # first: they may be closed meanwhile
        found = journeys(what, find(here), most=most)
        evidence = weigh(found.facts, lost=lost, allow_open=allow_open, opened=opened)
        console = Console()
        for one in found.found:
            rows, judgement = looked_at(one.key, one.pieces, evidence)
            events = sorted(rows, key=lambda event: (event.at, event.sequence))
            if as_json:
                _print(one.name, events, judgement.findings)
            else:
                _tell(console, one.name, events)
                _remark(console, judgement.findings)
        options.tell_of_open_logs(Shown(), opened)
        options.tell_of_packed_logs(Shown(), here)
    if found.more:
        print(f"… and {found.more:,} more: --most {len(found.found) + found.more}", file=sys.stderr)
    if not found.found:
        print(f"no row {'of a closed log ' if opened else ''}mentions {what}", file=sys.stderr)
        sys.exit(1)


def _print(name: str, events: list[Event], findings: Sequence[Finding]) -> None:
    told = [{"class": one.what, "severity": one.severity, "detail": one.detail} for one in findings]
    journey = {"id": name, "rows": [one.line for one in events], "findings": told}
    print(json.dumps(journey, ensure_ascii=False))


def _remark(console: Console, findings: Sequence[Finding]) -> None:
    for one in findings:
        remark = f"[bold]{one.what}[/]: {escape(one.detail)} [dim]({MEANING[one.what][1]})[/]"
        console.print(Padding(remark, (0, 0, 0, 2)), highlight=False)
    if not findings:
        console.print("  [green]nothing to remark[/]")


def _tell(console: Console, name: str, events: list[Event]) -> None:
    """A row a line where there is room; in 80 columns the last column goes on below itself, none is cut."""
    subject = next((one.subject for one in events if one.subject), "")
    console.print(f"\n[bold]{escape(name)}[/]  {escape(subject)}", highlight=False)
    short = _short({one.node for one in events})
    table = Table(box=None, pad_edge=False)
    for title in ("time (UTC)", "node", "row", "event"):
        table.add_column(title, no_wrap=True, justify="right" if title == "row" else "left")
    table.add_column("with, recipients, answer", overflow="fold")
    day = ""
    for one in events:
        moment = datetime.fromtimestamp(one.at / 1000, UTC)
        if f"{moment:%Y-%m-%d}" != day:
            day = f"{moment:%Y-%m-%d}"
            table.add_row(f"[dim]{day}[/]")
        time = moment.time().isoformat(timespec="milliseconds")
        row = (time, short.get(one.node, one.node), str(one.sequence), one.kind, _rest(one, short))
        table.add_row(*map(escape, row))
    console.print(table)


def _short(nodes: set[str]) -> dict[str, str]:
    """Short names of the nodes and workers, where they tell them apart."""
    labels = {name: label(name) for name in nodes}
    return labels if len(set(labels.values())) == len(labels) else {}


def _rest(one: Event, short: Mapping[str, str]) -> str:
    """The other side, the first recipients, and what was said, without the ids that stand above."""
    named = ", ".join(one.addresses[:3]) + (" …" if len(one.addresses) > 3 else "")
    said = one.reason.removeprefix(f"{one.peer}=").replace(one.message, "").strip()
    other = (
        f"as {one.message}" if one.kind in (Kind.RESUBMISSION, Kind.SENT_PAST, Kind.MADE, Kind.KNOWN) else ""
    )
    if one.kind in (Kind.RESUBMITTED, Kind.SENT_AGAIN, Kind.JOURNAL, Kind.MEMBERS):
        other = f"of {one.reference}"
    said = said[:60]
    if one.why:  # its reason stands in both, and is told once
        said = one.why if said in one.why else f"{said} ({one.why})"
    return "; ".join(part for part in (short.get(one.peer, one.peer), named, other, said) if part)
