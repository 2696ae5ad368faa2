"""report.html: the verdict in a sentence and tiles, the problems, then charts. It needs no other file."""

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
_ENDS = (
    ("delivered", "got it"),
    ("bounced", "could not get it: bounced"),
    ("otherwise", "another end: removed, a list, or had before"),
    ("open", "have no end yet"),
)
_LOSSES = frozenset({Class.LOST, Class.PARTIALLY_LOST, Class.DAMAGED})


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
        recipients=_recipients(verdict),
        again=verdict.recipients["again"],
        resubmitted=verdict.totals.get("resubmitted", 0),
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
    """The numbers of the sentence."""
    broken, unproven = sum(verdict.broken.values()), verdict.count(Severity.UNPROVEN)
    gaps = len(verdict.evidence.gaps)
    told = [
        ("messages with a broken promise", broken, "bad" if broken else "good"),
        ("messages not proven", unproven, "warn" if unproven else "good"),
        ("gaps in the logs", gaps, "warn" if gaps else "good"),
        ("messages in all", verdict.totals.get("messages", 0), ""),
    ]
    return [{"value": f"{many:,}", "label": label, "kind": kind} for label, many, kind in told]


def _recipients(verdict: Verdict) -> dict[str, Any]:
    """How the recipients of all messages ended, as a sum that adds up."""
    told, lost = verdict.recipients, _LOSSES & {what for what, _ in verdict.found}
    ends = [(name, label) for name, label in _ENDS if told[name] or name == "delivered"]
    words = {"open": "lost, or without an end yet"} if lost else {}
    rows = [(words.get(name, label), f"{told[name]:,}") for name, label in ends]
    return {
        "columns": [("recipients", ""), ("", "number")],
        "rows": [*rows, ("together", f"{told['accepted']:,}")],
    }


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
            "meaning": MEANING[what][1][:1].upper() + MEANING[what][1][1:] if what in BROKEN else "",
            "again": verdict.repeated.get(what.value, 0),
            "advice": ADVICE.get(what, ""),
            "examples": [_example(one) for one in examples.get(what, [])],
        }
        for what, many in verdict.found
    ]


def _example(row: Mapping[str, Any]) -> dict[str, Any]:
    evidence = row["evidence"] or ""
    found = steps(evidence.split("\n"))
    addresses = json.loads(row["addresses"] or "[]")
    return {
        **row,
        "sender": next((step.sender for step in found if step.sender), ""),
        "at": found[0].at if found else None,
        "addresses": [*addresses[:_MOST], *([f"{len(addresses) - _MOST} more"] if addresses[_MOST:] else [])],
        "evidence": evidence,
        "steps": found,
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
_SENDER = 7  # columns behind the recipients
_MOST = 3  # recipients told of each row
_WORDS = {
    "RECEIVE": "accepted it",
    "DSN": "made it, to report on another message",
    "HAREDIRECT": "the second copy is stored",
    "HAREDIRECTFAIL": "no second copy could be made",
    "HARECEIVE": "stored the second copy",
    "HADISCARD": "discarded its copy",
    "HADAMAGE": "found its copy damaged",
    "HARESTORE": "mended a damaged copy",
    "RESUBMIT": "took it over, or gave it back",
    "TRANSFER": "handed it over",
    "DELIVER": "delivered it",
    "SEND": "sent it on",
    "SENDEXTERNAL": "sent it on, out of this organization",
    "DUPLICATEDELIVER": "the mailbox server had it already",
    "DEFER": "could not send it yet",
    "FAIL": "gave it up",
    "REMOVE": "an operator removed it",
    "SUSPEND": "suspended it",
    "RESUME": "resumed it",
    "LOAD": "listed what it holds",
    "EXPAND": "made copies for the members of a list",
}
_REPLIED = frozenset(
    {"DELIVER", "SEND", "SENDEXTERNAL", "DUPLICATEDELIVER", "DEFER", "FAIL", "HAREDIRECTFAIL"}
)
"""Rows whose source-context is what another server said."""


@dataclass(frozen=True, slots=True)
class Step:
    """A row, in the words of the log. ``at``: by the clock of the node that wrote it."""

    at: datetime
    event: str
    origin: str
    target: str
    recipients: str
    answer: str
    sender: str = ""

    @property
    def told(self) -> str:
        """What the event means, in words; an event of Exchange's may have none here."""
        return _WORDS.get(self.event, "")


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
    place = next((column for column in _RECIPIENTS if "@" in cells[column]), None)
    named, sender = "", ""
    if place is not None:
        named, sender = cells[place], next(iter(cells[place + _SENDER :]), "")
    recipients = [one for one in named.split(";") if one]
    more = f" and {len(recipients) - _MOST:,} more" if len(recipients) > _MOST else ""
    return Step(
        at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC),
        cells[_EVENT],
        cells[_FROM],
        cells[_TO],
        ", ".join(recipients[:_MOST]) + more,
        cells[_ANSWER] if cells[_EVENT] in _REPLIED else "",
        sender,
    )
