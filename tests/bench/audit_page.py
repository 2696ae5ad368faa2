"""What was measured of the audit, as a table: on the terminal, and in docs/benchmarks-audit.md."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from shadowaudit.spark.java import find_java

from .machine import described
from .report import replaced

DUCKDB = "DuckDB, the sums alone"
HERE = "here: processes of this machine"
ONE, TWO = "Spark, one worker", "Spark, two workers"
CSV = "Spark's CSV reader, the sums alone"
AGAIN = "three new files, the rest settled"

PASS, MISS = "pass", "MISS"
STREAM = "Spark, logs into tables"
RATIOS = {HERE: 2.6, TWO: 8.0, AGAIN: 1.0}
"""How many times DuckDB's seconds, whole process, at LARGE rows and above."""
LARGE = 20_000_000
GROWTH = 1.25
"""Peak memory at the most rows over that at the fewest: does not grow with the rows, but for noise."""

COLUMNS = (
    "rows", "", "whole process, s", "job, s", "processor, s", "peak memory, MB", "× DuckDB, whole process",
    "× DuckDB, job", "target", "",
)  # fmt: skip
_PACKAGES = ("pyspark", "duckdb", "pyarrow", "numpy", "numba")
_TOLD = ("when", "processor", "cores", "memory", "kernel", "disk", "shadowrelay")


def machine(directory: Path) -> dict[str, str]:
    """Which machine it was, and whose programs."""
    known = described(directory, descriptors="", with_postfix=False)
    java = find_java()
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return {name: known[name] for name in _TOLD} | {
        "Python": f"{known['Python'].partition(',')[0]}, {packages}",
        "Java": f"{java.version}, by {java.origin}",
    }


def lines(figures: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Lines under COLUMNS: medians over the rounds; ratios are formed in each round."""
    cases: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for one in figures:
        cases.setdefault((one["rows"], one["what"]), []).append(one)
    found = []
    for (rows, what), runs in sorted(cases.items(), key=lambda item: item[0][0]):
        base = cases.get((rows, DUCKDB), [])
        whole, job = _ratios(runs, base, "seconds"), _ratios(runs, base, "job")
        target = RATIOS.get(what) if rows >= LARGE else None
        verdict = "" if target is None or not whole else PASS if statistics.median(whole) <= target else MISS
        found.append(
            (
                f"{rows / 1e6:.1f} M",
                what,
                *(_spread([one[name] for one in runs], ".1f") for name in ("seconds", "job", "cpu")),
                _spread([one["memory"] for one in runs], ",.0f"),
                _spread(whole, ".2f"),
                _spread(job, ".2f"),
                "" if target is None else f"≤ {target}",
                verdict,
            )
        )
    return found + _growth(cases)


def _ratios(runs: Sequence[Mapping[str, Any]], base: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [one[name] / other[name] for one, other in zip(runs, base, strict=False) if other[name]]


def _growth(cases: Mapping[tuple[int, str], Sequence[Mapping[str, Any]]]) -> list[tuple[str, ...]]:
    """How memory grows from the fewest rows to the most."""
    sizes = sorted({rows for rows, _ in cases})
    if len(sizes) < 2:
        return []
    few, many = sizes[0], sizes[-1]
    found = []
    for what in dict.fromkeys(what for _, what in cases):
        if (few, what) in cases and (many, what) in cases:
            less, more = (
                statistics.median(one["memory"] for one in cases[rows, what]) for rows in (few, many)
            )
            bound = f"≤ {GROWTH}" if what in (HERE, ONE, TWO) else ""
            verdict = "" if not bound else PASS if more / less <= GROWTH else MISS
            title = f"{what}: peak memory, × that at {few / 1e6:.1f} M"
            found.append(
                (f"{many / 1e6:.1f} M", title, "", "", "", f"{more / less:.2f}", "", "", bound, verdict)
            )
    return found


def _spread(values: Sequence[float], form: str) -> str:
    if not values:
        return "–"
    middle = format(statistics.median(values), form)
    if len(values) == 1:
        return middle
    return f"{middle} ({format(min(values), form)}–{format(max(values), form)})"


def show(console: Console, found: Sequence[tuple[str, ...]]) -> None:
    table = Table(*COLUMNS, box=None)
    for line in found:
        table.add_row(*line)
    if not console.is_terminal:
        console.width = 200
    console.print(table)


def publish(directory: Path, told: Mapping[str, str], figures: Sequence[Mapping[str, Any]]) -> None:
    """Replace what ``benchmarks-audit.md`` and ``.json`` say of these sizes; other sizes stay."""
    page, data = directory / "benchmarks-audit.md", directory / "benchmarks-audit.json"
    known: dict[str, Any] = json.loads(data.read_text("utf-8")) if data.exists() else {}
    now = {one["rows"] for one in figures}
    runs = [one for one in known.get("runs", ()) if one["rows"] not in now] + list(figures)
    data.write_text(json.dumps({"machine": dict(told), "runs": runs}, indent=1) + "\n", "utf-8")
    text = [
        "| the machine | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in told.items()),
        "",
        "Medians, with the lowest and highest; [benchmarks-audit.json](benchmarks-audit.json): every run.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"|---|---|{'---:|' * 6}---|---|",
        *(f"| {' | '.join(line)} |" for line in lines(runs)),
    ]
    page.write_text(replaced(page.read_text("utf-8"), "audit", "\n".join(text)), "utf-8")
