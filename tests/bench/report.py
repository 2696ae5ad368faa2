"""The table, on the terminal and in the documentation, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .figures import Row

COLUMNS = ("measure", "unit", "two copies", "Postfix, one copy", "without shadowing", "ratio", "target", "")
_BEGIN, _END = "<!-- {0}: written by scripts/bench {0} -->", "<!-- {0}: end -->"


def cells(row: Row) -> tuple[str, ...]:
    """One line of the table, under COLUMNS."""
    values = (row.ours, row.postfix, row.without, row.ratio)
    return (
        row.measure,
        row.unit,
        *("–" if value is None else str(value) for value in values),
        "" if row.target is None else str(row.target),
        row.verdict,
    )


def show(console: Console, machine: Mapping[str, str], rows: Sequence[Row]) -> None:
    for name, value in machine.items():
        console.print(f"{name + ':':<14}{value}", highlight=False, markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for title in COLUMNS:
        table.add_column(title, justify="left" if title in ("measure", "unit", "") else "right", no_wrap=True)
    section = rows[0].section if rows else ""
    for row in rows:
        if row.section != section:
            table.add_section()
            section = row.section
        colour = {"pass": "green", "MISS": "red"}.get(row.verdict)
        *rest, verdict = cells(row)
        table.add_row(*rest, f"[{colour}]{verdict}[/]" if colour else verdict)
    if not console.is_terminal:
        console.width = 200  # a pipe has no width: one measure on one line for grep
    console.print(table)


def tree(machine: Mapping[str, str], rounds: int, rows: Sequence[Row]) -> dict[str, Any]:
    return {"machine": dict(machine), "rounds": rounds, "rows": [row.tree() for row in rows]}


def markdown(machine: Mapping[str, str], rounds: int, rows: Sequence[Row]) -> str:
    """Machine and table, as the documentation shows them."""
    lines = [
        "| the machine | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in machine.items()),
        "",
    ]
    fewer = "memory, takeover and exposure: 3 at most"
    lines += [f"Medians of {rounds} alternating rounds ({fewer}), with the lowest and the highest.", ""]
    lines += ["[benchmarks.json](benchmarks.json) has every round.", ""]
    lines += [f"| {' | '.join(COLUMNS)} |", f"|---|---|{'---:|' * 4}---|---|"]
    lines += [f"| {' | '.join(cells(row))} |" for row in rows]
    return "\n".join(lines)


def publish(directory: Path, name: str, text: str, figures: Mapping[str, Any]) -> None:
    """Replace what ``benchmarks.md`` and ``benchmarks.json`` say of one bench; the others' stays."""
    page, data = directory / "benchmarks.md", directory / "benchmarks.json"
    before = page.read_text("utf-8") if page.exists() else "# Benchmarks\n"
    page.write_text(replaced(before, name, text), "utf-8")
    known = json.loads(data.read_text("utf-8")) if data.exists() else {}
    data.write_text(json.dumps({**known, name: figures}, indent=1) + "\n", "utf-8")


def replaced(page: str, name: str, text: str) -> str:
    """The page with new text between the marks of one bench, which it has, or else gets at its end."""
    begin, end = _BEGIN.format(name), _END.format(name)
    before, found, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    if not found:
        before, after = page.rstrip("\n") + "\n\n", "\n"
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"
