"""The table, on the terminal and in the documentation, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .figures import Row, row_of
from .published import PUBLISHED

COLUMNS = ("measure", "unit", "two copies", "Postfix, one copy", "without shadowing", "ratio", "target", "")
PAGE = (*COLUMNS, "as published", "what 250 means")
"""The columns of the page: those of the terminal, and what others publish."""

HISTORY = "benchmarks-history.json"
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


def lines(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The table of the page, under PAGE: what was measured, then what others publish."""
    measured = [(*cells(row), "", row.means) for row in rows]
    nothing = ("–",) * (len(COLUMNS) - 4) + ("", "")
    others = [one.cells() for one in PUBLISHED]
    return measured + [(measure, unit, *nothing, figure, means) for measure, unit, figure, means in others]


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
    text = [f"- {name}: {value}" for name, value in machine.items()]
    fewer = "memory, takeover and exposure: 3 at most"
    text += ["", f"Medians of {rounds} alternating rounds ({fewer}), with the lowest and the highest."]
    text += [f"[Every round](benchmarks.json), [all complete runs]({HISTORY}).", ""]
    text += [f"| {' | '.join(PAGE)} |", f"|---|---|{'---:|' * 4}---|---|---|---|"]
    text += [f"| {' | '.join(line)} |" for line in lines(rows)]
    return "\n".join(text)


def remembered(machine: Mapping[str, str], rounds: int, rows: Sequence[Row]) -> dict[str, Any]:
    """What the history keeps of a complete run: the ratio of each target, and whether it was met."""
    judged = [row for row in rows if row.target is not None]
    return {
        "when": machine.get("when", ""),
        "rounds": rounds,
        "targets": {
            row.measure: {
                "median": None
                if (found := row.ratio if row.target.of_ratio else row.ours) is None
                else found.median,
                "target": str(row.target),
                "verdict": row.verdict,
            }
            for row in judged
            if row.target is not None
        },
    }


def remember(directory: Path, run: Mapping[str, Any]) -> None:
    """Add a complete run to the history; one of the same minute takes the place of the one before."""
    data = directory / HISTORY
    before = json.loads(data.read_text("utf-8")) if data.exists() else []
    runs = [one for one in before if one["when"] != run["when"]]
    data.write_text(json.dumps([*runs, run], indent=1) + "\n", "utf-8")


def publish(directory: Path, name: str, text: str, figures: Mapping[str, Any]) -> None:
    """Replace what ``benchmarks.md`` and ``benchmarks.json`` say of one bench; the others' stays."""
    page, data = directory / "benchmarks.md", directory / "benchmarks.json"
    before = page.read_text("utf-8") if page.exists() else "# Benchmarks\n"
    page.write_text(replaced(before, name, text), "utf-8")
    others = json.loads(data.read_text("utf-8")) if data.exists() else {}
    data.write_text(json.dumps({**others, name: figures}, indent=1) + "\n", "utf-8")


def known(directory: Path, name: str) -> tuple[dict[str, str], int, list[Row]]:
    """What ``publish`` was given last: machine, rounds and rows; nothing if there was nothing."""
    data = directory / "benchmarks.json"
    found = json.loads(data.read_text("utf-8")).get(name) if data.exists() else None
    return (found["machine"], found["rounds"], list(map(row_of, found["rows"]))) if found else ({}, 0, [])


def replaced(page: str, name: str, text: str) -> str:
    """The page with new text between the marks of one bench, which it has, or else gets at its end."""
    begin, end = _BEGIN.format(name), _END.format(name)
    before, found, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    if not found:
        before, after = page.rstrip("\n") + "\n\n", "\n"
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"
