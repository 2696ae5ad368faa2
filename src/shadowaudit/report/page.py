"""report.html: the verdict in a sentence, tiles and charts, then the problems. It needs no other file."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from shadowaudit.core.findings import ADVICE, BROKEN, MEANING, Class, Severity
from shadowaudit.core.verdict import Verdict, counted
from shadowaudit.engine.totals import STEPS_PER_DECADE
from shadowaudit.report.charts import distribution, over_time
from shadowaudit.report.rendering import rendered
from shadowaudit.results import Tables

EXAMPLES = 10
_HOPS = 40
_MEASURES = {
    "accept": ("From the end of the message to its 250", "one clock"),
    "deliver": (
        "From 250 until the last recipient is settled",
        "one clock, unless another node took the message over",
    ),
    "discard": ("From then until the holder discards its copy", "clocks of two nodes, which may differ"),
}
_TILES = (
    ("messages", "messages"),
    ("accepted", "recipients, of whom"),
    ("delivered", "got it"),
    ("bounced", "could not get it"),
    ("otherwise", "removed, or a list"),
    ("open", "have no end yet"),
    ("again", "got it once more"),
    ("resubmitted", "given back by Safety Net"),
    ("rows", "rows read"),
)
_ALWAYS = ("messages", "accepted", "delivered", "bounced", "rows")


def write_report(out: Path, verdict: Verdict) -> Path:
    """Write report.html from the tables in ``out``. Raises OSError."""
    stats = pq.read_table(out / "stats.parquet").to_pylist()
    copies = pq.read_table(out / "copies.parquet").to_pylist()
    groups = _groups(verdict, Tables(out).examples(EXAMPLES))
    told = (("Notes", verdict.evidence.notes),)
    page = rendered(
        "page.html",
        verdict=verdict,
        files=counted(verdict.files, "file"),
        nodes=verdict.servers,
        period=_period(verdict.totals),
        tiles_told=_tiles(verdict),
        charts=_charts(stats, copies),
        hops=_hops(stats),
        problems=[group for group in groups if group["severity"] != Severity.NOTE],
        notes=[group for group in groups if group["severity"] == Severity.NOTE],
        caveats=[(title, some) for title, some in told if some],
        signs={0: "✓", 1: "✗", 3: "?"},
    )
    path = out / "report.html"
    path.write_text(page, "utf-8")
    return path


def _tiles(verdict: Verdict) -> list[dict[str, str]]:
    """Problems; then the recipients of all messages, and how they ended: these add up; then what was read."""
    totals = {**verdict.totals, "rows": verdict.rows, **verdict.recipients}
    violations, unproven = verdict.count(Severity.VIOLATION), verdict.count(Severity.UNPROVEN)
    missing = len(verdict.evidence.gaps) + unproven
    told = [
        ("violations", violations, "bad" if violations else "good"),
        ("gaps in the evidence", missing, "warn" if missing else "good"),
        *((label, totals.get(name, 0), "") for name, label in _TILES if name in _ALWAYS or totals.get(name)),
    ]
    return [{"value": f"{many:,}", "label": label, "kind": kind} for label, many, kind in told]


def _charts(stats: Sequence[Mapping[str, Any]], copies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    curve = over_time(
        {
            "messages in transit": [(row["at"], row["messages"]) for row in copies],
            "shadow copies held": [(row["at"], row["copies"]) for row in copies],
        },
        "messages in transit and copies over time",
    )
    charts = [chart for name in _MEASURES if (chart := _measure(name, stats))]
    if curve:
        charts.append(
            {
                "title": "In transit, and copies held",
                "told": "",
                "remark": "each node's own clock",
                "svg": curve,
            }
        )
    return charts


def _period(totals: Mapping[str, int]) -> str:
    if not totals.get("first_at"):
        return ""
    ends = (datetime.fromtimestamp(totals[name] / 1000, UTC) for name in ("first_at", "last_at"))
    return " – ".join(end.strftime("%Y-%m-%d %H:%M:%S") for end in ends) + " UTC"


def _groups(verdict: Verdict, examples: Mapping[Class, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The classes found, worst first, with examples."""
    return [
        {
            "name": what.value,
            "count": many,
            "severity": verdict.severity(what).value,
            "told": BROKEN.get(what, MEANING[what][1]),
            "meaning": MEANING[what][1][:1].upper() + MEANING[what][1][1:],
            "advice": ADVICE.get(what, ""),
            "examples": [_example(one) for one in examples.get(what, [])],
        }
        for what, many in verdict.found
    ]


def _example(row: Mapping[str, Any]) -> dict[str, Any]:
    evidence = row["evidence"] or ""
    return {
        **row,
        "addresses": json.loads(row["addresses"] or "[]"),
        "evidence": evidence,
        "steps": steps(evidence.split("\n")),
    }


def _counts(rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Rows with ``step`` and ``count`` as a distribution: milliseconds, share up to there."""
    steps: dict[int, int] = defaultdict(int)
    for row in rows:
        steps[row["step"]] += row["count"]
    total, so_far = sum(steps.values()), 0
    points = []
    for step in sorted(steps):
        so_far += steps[step]
        points.append((10.0 ** ((step + 1) / STEPS_PER_DECADE) - 1, so_far / total))
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
    half, most, nearly = (_milliseconds(_at(everything, share)) for share in (0.5, 0.9, 0.99))
    told = f"half within {half}, 90 % {most}, 99 % {nearly}"
    return {"title": title, "told": told, "remark": remark, "svg": distribution(series, title)}


def _at(points: Sequence[tuple[float, float]], share: float) -> float:
    return next((x for x, y in points if y >= share), points[-1][0] if points else 0.0)


def _hops(stats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A table of the next hops with most messages."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in stats:
        if row["measure"] == "deliver":
            groups[row["node"], row["hop"]].append(row)
    found = sorted(groups.items(), key=lambda one: -sum(row["count"] for row in one[1]))
    rows = []
    for (node, hop), some in found[:_HOPS]:
        points = _counts(some)
        times = (_milliseconds(_at(points, share)) for share in (0.5, 0.9, 0.99))
        rows.append((node or "unknown", hop or "–", f"{sum(row['count'] for row in some):,}", *times))
    titles = ("messages", "half", "90 %", "99 %")
    return {
        "columns": [("node", ""), ("next hop", ""), *((one, "number") for one in titles)],
        "rows": rows,
    }


def _milliseconds(value: float) -> str:
    if value < 1000:
        return f"{value:.0f} ms"
    return f"{value / 1000:.1f} s" if value < 120_000 else f"{value / 60_000:.1f} min"


_FROM, _TO, _ANSWER, _EVENT, _RECIPIENTS = 2, 4, 5, 8, (12, 11)  # Exchange 2010 has one column less
_MOST = 3  # recipients told of each row


@dataclass(frozen=True, slots=True)
class Step:
    """A row, in the words of the log. ``at``: by the clock of the node that wrote it."""

    at: datetime
    event: str
    origin: str
    target: str
    recipients: str
    answer: str


def steps(rows: Iterable[str]) -> list[Step]:
    """The rows in the order of their times. A row that is cut, or of no known shape, is left out."""
    found = (step for row in rows if (step := _step(row)) is not None)
    return sorted(found, key=lambda step: step.at)


def _step(row: str) -> Step | None:
    try:
        cells = next(csv.reader([row]), [])
        at = datetime.fromisoformat(cells[0]) if len(cells) > max(_RECIPIENTS) else None
    except (csv.Error, ValueError):
        return None
    if at is None:
        return None
    named = next((cells[column] for column in _RECIPIENTS if "@" in cells[column]), "")
    recipients = [one for one in named.split(";") if one]
    more = f" and {len(recipients) - _MOST:,} more" if len(recipients) > _MOST else ""
    return Step(
        at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC),
        cells[_EVENT],
        cells[_FROM],
        cells[_TO],
        ", ".join(recipients[:_MOST]) + more,
        cells[_ANSWER],
    )
