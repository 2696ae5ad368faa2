"""``shadowaudit explain``."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from shadowaudit.cli import options
from shadowaudit.core.events import Event
from shadowaudit.core.findings import MEANING
from shadowaudit.core.weighing import weigh
from shadowaudit.engine.exact import judge_any, message_id
from shadowaudit.logs.manifest import find
from shadowaudit.logs.seek import journeys


@click.command("explain")
@click.argument("what", metavar="MESSAGE-ID|ADDRESS")
@options.places
@click.option("--lost", multiple=True, metavar="DATABASE-ID", help="As for verify.")
@click.option("--allow-open", is_flag=True, help="As for verify.")
@click.option("--most", default=20, show_default=True, help="Show no more messages than that.")
@click.option("--json", "as_json", is_flag=True, help="Print rows and findings as JSON, one message a line.")
def command(
    what: str, places: tuple[Path, ...], lost: tuple[str, ...], most: int, *, allow_open: bool, as_json: bool
) -> None:
    """Tell the journey of a message over all nodes: who had it, when, and what is wrong with that.

    MESSAGE-ID is the id of the log (network-message-id) or the Message-ID header; an ADDRESS of a sender or
    recipient tells of all its messages. No engine is needed: the files are searched as they are.
    Exit status 0: found, 1: no row mentions it.
    """
    if not places:
        raise click.UsageError("say where the logs are: shadowaudit explain MESSAGE-ID DIR…")
    with options.told():
        found, facts = journeys(what, find(places), most=most)
        evidence = weigh(facts, lost=lost, allow_open=allow_open)
    console = Console()
    for events in found:
        findings = judge_any(events, evidence).findings
        if as_json:
            told = [{"class": one.what, "severity": one.severity, "detail": one.detail} for one in findings]
            print(
                json.dumps(
                    {"id": message_id(events), "rows": [one.line for one in events], "findings": told},
                    ensure_ascii=False,
                )
            )
            continue
        _tell(console, events)
        for one in findings:
            console.print(
                f"  [bold]{one.what}[/]: {escape(one.detail)} [dim]({MEANING[one.what][1]})[/]",
                highlight=False,
            )
        if not findings:
            console.print("  [green]nothing to remark[/]")
    if not found:
        print(f"no row mentions {what}", file=sys.stderr)
        sys.exit(1)


def _tell(console: Console, events: list[Event]) -> None:
    subject = next((one.subject for one in events if one.subject), "")
    console.print(f"\n[bold]{escape(message_id(events))}[/]  {escape(subject)}", highlight=False)
    table = Table(
        "time of the node", "node", "row", "event", "recipients", "with", "", box=None, pad_edge=False
    )
    for one in sorted(events, key=lambda event: (event.at, event.sequence)):
        moment = (
            datetime.fromtimestamp(one.at / 1000, UTC)
            .isoformat(timespec="milliseconds")
            .removesuffix("+00:00")
        )
        named = ", ".join(one.addresses[:3]) + (" …" if len(one.addresses) > 3 else "")
        row = (moment, one.node, str(one.sequence), one.kind, named, one.peer, one.reason[:60])
        table.add_row(*map(escape, row))
    console.print(table)
