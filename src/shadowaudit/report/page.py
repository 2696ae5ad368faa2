"""report.html: problems first, then distributions; one file that needs nothing else."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import pyarrow.parquet as pq

from shadowaudit.core.findings import MEANING, Class, Severity
from shadowaudit.core.verdict import Verdict, counted
from shadowaudit.report.charts import distribution, over_time
from shadowaudit.results import Tables

EXAMPLES = 10
_STEPS = 20  # a power of ten: see engine.totals
_MEASURES = {
    "accept": (
        "From the end of the message to 250",
        "by one clock: the id is given when the message is complete",
    ),
    "deliver": ("From 250 to the last recipient's end", "by one clock, unless another node took it over"),
    "discard": ("From the last end to the holder's discard", "by two nodes' clocks: take it as a hint"),
}


def write_report(out: Path, verdict: Verdict) -> Path:
    """Write report.html from the tables in ``out``. Raises OSError."""
    stats = pq.read_table(out / "stats.parquet").to_pylist()
    copies = pq.read_table(out / "copies.parquet").to_pylist()
    page = (
        _environment()
        .get_template("page.html")
        .render(
            verdict=verdict,
            totals=verdict.totals,
            period=_period(verdict.totals),
            groups=_groups(verdict, Tables(out).examples(EXAMPLES)),
            charts=[chart for name in _MEASURES if (chart := _measure(name, stats))],
            hops=_hops(stats),
            curve=over_time(
                {
                    "messages in transit": [(row["at"], row["messages"]) for row in copies],
                    "shadow copies held": [(row["at"], row["copies"]) for row in copies],
                },
                "messages in transit and copies over time",
            ),
            style=files("shadowaudit.report").joinpath("page.css").read_text("utf-8"),
            signs={0: "✓", 1: "✗", 3: "?"},
        )
    )
    path = out / "report.html"
    path.write_text(page, "utf-8")
    return path


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(
            lambda name: files("shadowaudit.report").joinpath(name).read_text("utf-8")
        ),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters["number"] = lambda value: f"{value:,}"
    made.filters["counted"] = counted
    made.filters["addresses"] = lambda text: ", ".join(json.loads(text or "[]"))
    made.filters["duration"] = _milliseconds
    return made


def _period(totals: Mapping[str, int]) -> str:
    if not totals.get("first_at"):
        return ""
    ends = (datetime.fromtimestamp(totals[name] / 1000, UTC) for name in ("first_at", "last_at"))
    return " – ".join(end.strftime("%Y-%m-%d %H:%M:%S") for end in ends) + " UTC"


def _groups(verdict: Verdict, examples: Mapping[Class, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The classes found, worst first, with examples."""
    order = list(Severity)
    found = sorted(verdict.classes, key=lambda name: (order.index(verdict.severity(Class(name))), name))
    return [
        {
            "name": name,
            "count": verdict.classes[name],
            "severity": verdict.severity(Class(name)).value,
            "meaning": MEANING[Class(name)][1],
            "examples": examples.get(Class(name), []),
        }
        for name in found
    ]


def _counts(rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Rows with ``step`` and ``count`` as a distribution: milliseconds, share up to there."""
    steps: dict[int, int] = defaultdict(int)
    for row in rows:
        steps[row["step"]] += row["count"]
    total, so_far = sum(steps.values()), 0
    points = []
    for step in sorted(steps):
        so_far += steps[step]
        points.append((10.0 ** ((step + 1) / _STEPS) - 1, so_far / total))
    return [(points[0][0], 0.0), *points] if points else []


def _measure(name: str, stats: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    rows = [row for row in stats if row["measure"] == name]
    if not rows:
        return None
    title, remark = _MEASURES[name]
    nodes = sorted({row["node"] for row in rows if row["node"]})
    by_node = {node: _counts([row for row in rows if row["node"] == node]) for node in nodes[:4]}
    series = by_node if 1 < len(nodes) <= 4 else {"all": _counts(rows)}
    everything = _counts(rows)
    quantiles = {share: _at(everything, share) for share in (0.5, 0.9, 0.99)}
    return {"title": title, "remark": remark, "svg": distribution(series, title), "quantiles": quantiles}


def _at(points: Sequence[tuple[float, float]], share: float) -> float:
    return next((x for x, y in points if y >= share), points[-1][0] if points else 0.0)


def _hops(stats: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in stats:
        if row["measure"] == "deliver":
            groups[row["node"], row["hop"]].append(row)
    found = []
    for (node, hop), rows in groups.items():
        points = _counts(rows)
        found.append(
            {
                "node": node or "unknown",
                "hop": hop or "–",
                "count": sum(row["count"] for row in rows),
                **{f"p{share}": _at(points, share / 100) for share in (50, 90, 99)},
            }
        )
    return sorted(found, key=lambda one: -int(one["count"]))[:40]


def _milliseconds(value: float) -> str:
    if value < 1000:
        return f"{value:.0f} ms"
    return f"{value / 1000:.1f} s" if value < 120_000 else f"{value / 60_000:.1f} min"
