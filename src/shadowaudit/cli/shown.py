"""The verdict in a terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from shadowaudit.core.findings import MEANING, Class, Severity
from shadowaudit.core.verdict import INCOMPLETE, PROVEN, VIOLATED, Verdict, counted

_COLOUR = {Severity.VIOLATION: "red", Severity.UNPROVEN: "yellow", Severity.NOTE: "cyan"}
_SIGN = {PROVEN: "[bold green]✓", VIOLATED: "[bold red]✗", INCOMPLETE: "[bold yellow]?"}
_MOST = 12


def show(verdict: Verdict, out: Path, console: Console, *, report: bool, at: str = "") -> None:
    """The verdict in a sentence, what it leaves out, then why: problems first, then what is allowed.

    ``at``: the time, where one verdict follows another.
    """
    totals = verdict.totals
    given_back = f"{many:,} given back; " if (many := totals.get("resubmitted", 0)) else ""
    console.print(
        f"{at}{' ' if at else ''}{_SIGN[verdict.status]} {escape(verdict.sentence)}[/]",
        highlight=False,
        soft_wrap=True,
    )
    for caveat in verdict.caveats:
        console.print(f"  not in the proof: {escape(caveat)}", highlight=False, style="dim", soft_wrap=True)
    console.print(
        f"{counted(verdict.files, 'file')} of {verdict.servers}: "
        f"{counted(totals.get('rows', 0), 'row')} about "
        f"{counted(totals.get('messages', 0), 'message')}; {totals.get('delivered', 0):,} deliveries; "
        f"{given_back}{totals.get('suspects', 0):,} judged row by row",
        highlight=False,
        soft_wrap=True,
    )
    for gap in verdict.evidence.gaps[:_MOST]:
        console.print(f"[yellow]missing[/] {escape(gap.what)}", highlight=False, soft_wrap=True)
        console.print(
            f"        {escape(gap.where)}: {escape(gap.so)}", highlight=False, style="dim", soft_wrap=True
        )
    if len(verdict.evidence.gaps) > _MOST:
        console.print(
            f"        and {len(verdict.evidence.gaps) - _MOST:,} more: see verdict.json", style="dim"
        )
    if verdict.classes:
        console.print(_table(verdict))
    for note in verdict.evidence.notes:
        console.print(f"[cyan]note[/] {escape(note)}", highlight=False, soft_wrap=True)
    name = "report.html" if report else "verdict.json"
    console.print(f"Report: {escape(str(out / name))}", highlight=False, soft_wrap=True)
    console.print(escape(verdict.work), highlight=False, style="dim", soft_wrap=True)


def _table(verdict: Verdict) -> Table:
    table = Table("", "found", "means", box=None, pad_edge=False)
    order = list(Severity)
    rows = sorted(verdict.classes.items(), key=lambda row: order.index(verdict.severity(Class(row[0]))))
    for name, many in rows:
        colour = _COLOUR[verdict.severity(Class(name))]
        table.add_row(f"{many:,}", f"[{colour}]{name}[/]", MEANING[Class(name)][1])
    return table
