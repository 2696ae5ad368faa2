"""A summary as a page: tiles and charts first, then the tables. One file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Any

from shadowaudit.report.charts import bars, distribution, over_time
from shadowaudit.report.rendering import rendered
from shadowaudit.summary import steps, tables
from shadowaudit.summary.computing import total
from shadowaudit.summary.model import FLOWS, Flow, Hop, Summary
from shadowaudit.summary.units import at_most, octets, plain, share

_LEAST = 4  # moments, the end among them: two days or hours are seen as well in the tables
_WEEKLY = 120
"""From so many days on, a line for each week is quieter than one for each day."""

_HALF = 4  # days: fewer at the end would be a week by themselves, and belong to the one before

_CURVES = 4
"""So many next hops at most have a curve: there are four colours."""


def page(summary: Summary, uri: str, version: int, made_at: str) -> str:
    """The page. ``uri``: of the tables, as users may see it; ``made_at``: when that version was published, as
    ISO 8601 in UTC."""
    return rendered(
        "summary.html",
        "shadowaudit.summary",
        summary=summary,
        heading=tables.title(summary),
        remarks=tables.remarks(summary),
        unread=" ".join(tables.unread(summary)),
        uri=uri,
        version=version,
        made_at=f"{datetime.fromisoformat(made_at):%Y-%m-%d %H:%M} UTC",
        tiles_told=_tiles(summary),
        charts=_charts(summary),
        groups=_sheets(summary),
        folded=[
            one for one in (tables.days(summary), tables.hours(summary), tables.sizes(summary)) if one.rows
        ],
    )


def _sheets(summary: Summary) -> list[Sequence[tables.SummaryTable]]:
    """Those that stand together. Charts show hours and sizes."""
    told: list[Sequence[tables.SummaryTable]] = [
        [tables.nodes(summary)],
        [tables.recipients(summary), tables.senders(summary)],
        [tables.hops(summary)],
        [tables.deferrals(summary)],
        [tables.bounces(summary)],
        [tables.promotions(summary)],
        [tables.exposure(summary), tables.duplicates(summary)],
    ]
    if summary.found is not None:
        told.append([tables.found(summary)])
    found = ([_named_first(table) for table in group if table.rows] for group in told)
    return [some for some in found if some]


def _named_first(table: tables.SummaryTable) -> tables.SummaryTable:
    """A phone shows the first columns: replies, or names, which the text has last, as they may be long."""
    kinds = [kind for _, kind in table.columns]
    first = tables.TEXT if tables.TEXT in kinds else tables.NAME
    order = sorted(range(len(kinds)), key=lambda number: kinds[number] != first)
    rows = [[row[number] for number in order] for row in table.rows]
    return replace(table, columns=[table.columns[number] for number in order], rows=rows)


def _tiles(summary: Summary) -> list[dict[str, str]]:
    flow = summary.totals
    within = summary.hops.together.percentiles.get(95)
    told = tables.totals(summary)
    received, size, recipients, _, _, delivered, deferred, failed, promoted, given_back, _, dropped, _ = told
    exposed = (f"{flow.exposed:,}", f"accepted with one copy, {share(flow.exposed, flow.received)}")
    time_taken = (at_most(within), "95 % are delivered within")
    shown = [received, size, recipients, delivered, time_taken, deferred, failed, promoted, exposed, dropped]
    if flow.resubmitted:
        shown.append(given_back)
    return [{"value": value, "label": label, "kind": ""} for value, label in shown]


def _charts(summary: Summary) -> list[dict[str, Any]]:
    flows, sizes = _moments(summary), summary.sizes
    hourly, weekly = bool(summary.hours), len(summary.days) > _WEEKLY
    each = "each hour" if hourly else "each day"
    usual, told = (_weeks(summary), "week by week, mean of a day") if weekly else (flows, each)
    of_day = [
        (f"{hour:02}h", flow.received / max(1, len(summary.days))) for hour, flow in summary.of_day.items()
    ]
    of_size = [(octets(steps.size(step).least), messages) for step, messages in _whole(sizes.steps)]
    mean = f"mean {octets(sizes.octets / sizes.messages)}" if sizes.messages else ""
    found = (
        ("Received and delivered", told, _over(usual, ("received", "delivered"))),
        ("Deferred and failed", told, _over(usual, ("deferred", "failed"))),
        ("Promoted, and accepted with one copy", each, _over(flows, ("promoted", "exposed"))),
        (
            "Received, hour by hour of the day",
            "mean of all days",
            "" if hourly else bars(of_day, "messages received, hour by hour of the day", "{:,.1f}".format),
        ),
        ("Time to delivery, by next hop", "share of deliveries", _latencies(summary)),
        ("Sizes of messages", mean, bars(of_size, "messages by size") if len(of_size) > 1 else ""),
    )
    return [{"title": title, "told": "", "remark": remark, "svg": svg} for title, remark, svg in found if svg]


def _moments(summary: Summary) -> list[tuple[float, Flow]]:
    """Milliseconds since 1970, and what happened in the day or hour that begins then; last, where it ends."""
    if summary.hours:
        found = [(1000 * hour.timestamp(), flow) for hour, flow in summary.hours.items()]
        length = 3_600_000.0
    else:
        found = [(1000 * _midnight(day).timestamp(), flow) for day, flow in summary.days.items()]
        length = 86_400_000.0
    return [*found, (found[-1][0] + length, found[-1][1])] if found else []


def _weeks(summary: Summary) -> list[tuple[float, Flow]]:
    """As ``_moments``, of seven days each, with the mean of a day. The last week has what is left."""
    days = list(summary.days.items())
    begins = list(range(0, len(days), 7))
    if 0 < len(days) % 7 < _HALF:
        begins.pop()
    found = []
    for begin, end in pairwise([*begins, len(days)]):
        some = days[begin:end]
        sums = total(flow for _, flow in some)
        mean = Flow(**{name: round(getattr(sums, name) / len(some)) for name in FLOWS})
        found.append((1000 * _midnight(some[0][0]).timestamp(), mean))
    after = _midnight(days[-1][0] + timedelta(days=1))
    return [*found, (1000 * after.timestamp(), found[-1][1])]


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _over(flows: Sequence[tuple[float, Flow]], names: Sequence[str]) -> str:
    if len(flows) < _LEAST or not any(getattr(flow, name) for _, flow in flows for name in names):
        return ""
    return over_time(
        {name: [(at, getattr(flow, name)) for at, flow in flows] for name in names},
        f"{' and '.join(names)} over time",
    )


def _latencies(summary: Summary) -> str:
    hops = [*summary.hops.top[:_CURVES]] if len(summary.hops.top) > 1 else [summary.hops.together]
    return distribution(
        {_name(hop, summary): _curve(hop.steps) for hop in hops if hop.deliveries}, "time to delivery"
    )


def _name(hop: Hop, summary: Summary) -> str:
    return "all" if hop is summary.hops.together else plain(hop.next_hop)


def _curve(counts: Mapping[int, int]) -> list[tuple[float, float]]:
    """Milliseconds, and the share of deliveries up to there."""
    whole, so_far = sum(counts.values()), 0
    points: list[tuple[float, float]] = []
    for step, many in counts.items():
        so_far += many
        points.append((steps.latency(step).below, so_far / whole))
    return [(points[0][0], 0.0), *points]


def _whole(counts: Mapping[int, tuple[int, int]]) -> list[tuple[int, int]]:
    """The messages of each step between the first and the last one that have any."""
    used = [step for step, (messages, _) in counts.items() if messages]
    return [(step, counts.get(step, (0, 0))[0]) for step in range(min(used), max(used) + 1)] if used else []
