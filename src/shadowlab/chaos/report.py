"""Prints the verdict as a table."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from shadowlab.chaos.result import ChaosResult
from shadowlab.chaos.verdict import ChaosVerdict

_MOST_NAMED = 20


def print_table(result: ChaosResult, console: Console | None = None) -> None:
    """Print one line per figure, then each lost or unexpected delivery."""
    page = console or Console(highlight=False)
    if not page.is_terminal:
        page.width = 120
    tree = result.tree()
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column()
    for name, text in _MEANINGS.items():
        table.add_row(_NAMES.get(name, name), str(tree["recipients"][name]), text)
    for cause, count in tree["causes"].items():
        table.add_row("", str(count), f"duplicated: {cause}")
    for outcome, count in tree["attempts"].items():
        table.add_row("", str(count), f"messages {outcome}")
    table.add_row("throughput", str(tree["acknowledged_per_second"]), "messages acknowledged per second")
    table.add_row("longest wait", _shown(tree["longest_wait"]), "seconds for a 250")
    table.add_row(
        "longest repair", _shown(tree["longest_repair"]), "seconds until all mail had two copies again"
    )
    table.add_row("faults", str(sum(tree["faults"].values())), _listed(tree["faults"]))
    table.add_row("", str(tree["copies_spoilt"]), "copies that were damaged on their disks")
    page.print(table)
    for what in ("lost", "unexpected", "damaged", "wrong_mailbox", "unexplained"):
        for message_id, recipient in tree[what][:_MOST_NAMED]:
            name = _NAMES.get(what, what)
            page.print(f"[red]{name}[/]: {escape(message_id)} for {escape(recipient)}", soft_wrap=True)
    for problem in result.objections:
        page.print(f"[red]problem[/]: {escape(problem)}", soft_wrap=True)
    if result.directory:
        page.print(f"The lab is down. Logs and chaos/history.jsonl are in {escape(str(result.directory))}")
    page.print(
        f"[bold {'green' if result.held else 'red'}]Verdict{' (interrupted)' if result.interrupted else ''}, "
        f"seed {result.plan.seed}, per recipient: {_sentence(result.verdict)}[/]",
        soft_wrap=True,
    )


_MEANINGS = {
    "acknowledged": "recipients of messages that were answered 250",
    "attempted": "of messages that were sent whole and not refused",
    "delivered": "arrived",
    "lost": "acknowledged, and did not arrive",
    "unexpected": "arrived, though refused or never sent whole",
    "damaged": "arrived, and not as they were sent",
    "wrong_mailbox": "arrived at a recipient that the sender did not name",
    "duplicated": "arrived more often than sent",
    "recovered": "arrived, though the sender got no answer",
}
_NAMES = {"damaged": "delivered damaged", "wrong_mailbox": "wrong mailbox"}


def _shown(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.1f}"


def _listed(faults: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(faults.items()))


def _sentence(found: ChaosVerdict) -> str:
    return (
        f"acknowledged {found.acknowledged}, delivered {found.delivered}, lost {found.lost.total()}, "
        f"unexpected {found.unexpected.total()}, duplicates {found.duplicated.total()}, "
        f"delivered damaged {found.damaged.total()}, wrong mailbox {found.wrong_mailbox.total()}"
    )
