"""A summary computed from gold tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from shadowaudit.core.findings import Severity
from shadowaudit.core.workers import nodes_of
from shadowaudit.summary import steps
from shadowaudit.summary.gold import Gold
from shadowaudit.summary.model import (
    FLOWS,
    Asked,
    Domain,
    Domains,
    Flow,
    Found,
    Hop,
    Hops,
    Judged,
    Promotion,
    Reason,
    Reasons,
    Sizes,
    Summary,
    Unread,
)
from shadowaudit.summary.sums import having, integers, summed

HOURLY = 2
"""So many days at most have their hours told one by one."""


def summarize(gold: Gold, asked: Asked) -> Summary:
    """What the tables say of the days and the node asked for. Raises NoSuchNodeError."""
    tables = (gold.of(asked.node) if asked.node else gold).tables
    traffic = tables["traffic"]
    traffic = traffic.append_column("date", compute.cast(traffic["hour"], pa.date32()))
    days = _flows(traffic, "date")
    domains = summed(tables["domains"], ["side", "domain"], ["messages", "addresses", "octets"])
    every = _every(min(days), max(days), timedelta(days=1)) if days else []
    return Summary(
        asked=asked,
        first=every[0] if every else None,
        last=every[-1] if every else None,
        totals=total(days.values()),
        unread=_unread(tables["files"]),
        days={day: days.get(day, Flow()) for day in every},
        hours=_hours(traffic) if 0 < len(every) <= HOURLY else {},
        of_day=_of_day(traffic),
        nodes=_nodes(traffic),
        senders=_domains(domains, "sender", asked.top),
        recipients=_domains(domains, "recipient", asked.top),
        sizes=_sizes(tables["sizes"]),
        hops=_hops(tables["latencies"], asked.top),
        deferrals=_reasons(tables["reasons"], "DEFER", asked.top),
        bounces=_reasons(tables["reasons"], "FAIL", asked.top),
        promotions=_promotions(tables["promotions"], traffic["node"]),
        found=_found(tables["findings"]) if "findings" in tables else None,
        verdict=None if gold.verdict is None else _judged(gold.verdict, gold.messages),
    )


def _every(begin: Any, end: Any, step: timedelta) -> list[Any]:
    """From one day or hour to another one, both among them."""
    return [begin + number * step for number in range((end - begin) // step + 1)]


def _flow(row: Mapping[str, Any]) -> Flow:
    return Flow(**{name: row[name] or 0 for name in FLOWS})


def _flows(traffic: Any, key: str) -> dict[Any, Flow]:
    return {row[key]: _flow(row) for row in summed(traffic, [key], FLOWS).to_pylist() if row[key] is not None}


def _nodes(traffic: Any) -> dict[str, Flow]:
    """By name. Rows that name none are of a node without a name."""
    flows = {row["node"] or "": _flow(row) for row in summed(traffic, ["node"], FLOWS).to_pylist()}
    nodes = nodes_of(flows)
    by_node: dict[str, list[Flow]] = {}
    for name, flow in sorted(flows.items()):
        by_node.setdefault(nodes[name], []).append(flow)
    return {name: some[0] if len(some) == 1 else total(some) for name, some in sorted(by_node.items())}


def total(flows: Iterable[Flow]) -> Flow:
    """All of them added up."""
    sums = dict.fromkeys(FLOWS, 0)
    for flow in flows:
        for name in FLOWS:
            sums[name] += getattr(flow, name)
    return Flow(**sums)


def _hours(traffic: Any) -> dict[datetime, Flow]:
    """Each hour from the first to the last one."""
    microseconds = traffic.append_column("since", compute.cast(traffic["hour"], pa.int64()))
    flows = _flows(microseconds, "since")
    found = {datetime.fromtimestamp(since // 1_000_000, UTC): flow for since, flow in flows.items()}
    return {hour: found.get(hour, Flow()) for hour in _every(min(found), max(found), timedelta(hours=1))}


def _of_day(traffic: Any) -> dict[int, Flow]:
    hours = _flows(traffic.append_column("of_day", compute.hour(traffic["hour"])), "of_day")
    return {hour: hours.get(hour, Flow()) for hour in range(24)}


def _domains(domains: Any, side: str, top: int) -> Domains:
    """``domains``: one row for each side and domain."""
    measures = ("messages", "addresses", "octets")
    found = having(domains, "side", side)
    return Domains(
        all=len(found),
        addresses=_sum(found, "addresses"),
        top=tuple(
            Domain(domain=_text(row["domain"]) or "", **{name: row[name] or 0 for name in measures})
            for row in _most(found, "messages", ["domain"], top).to_pylist()
        ),
    )


def _most(table: Any, measure: str, ties: Sequence[str], top: int) -> Any:
    """The rows with most of the measure, and then in the order of the ties."""
    order = [(measure, "descending"), *((name, "ascending") for name in ties)]
    return table.take(compute.select_k_unstable(table, k=max(1, min(top, len(table))), sort_keys=order))


def _sum(table: Any, name: str) -> int:
    return _number(compute.sum(table[name]))


def _number(scalar: Any) -> int:
    return int(scalar.as_py() or 0)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _sizes(sizes: Any) -> Sizes:
    rows = summed(sizes, ["step"], ("messages", "octets")).to_pylist()
    found = {row["step"]: (row["messages"], row["octets"]) for row in rows}
    counts = {step: messages for step, (messages, _) in found.items()}
    return Sizes(
        messages=sum(counts.values()),
        octets=sum(octets for _, octets in found.values()),
        percentiles=steps.percentiles(counts, steps.size),
        steps=dict(sorted(found.items())),
    )


def _hops(latencies: Any, top: int) -> Hops:
    all_hops = summed(latencies, ["next_hop"], ["deliveries"])
    most = _most(all_hops, "deliveries", ["next_hop"], top)["next_hop"]
    names = most.to_pylist()
    chosen = latencies.filter(compute.is_in(latencies["next_hop"], most.combine_chunks()))
    counts: dict[str | None, dict[int, int]] = {name: {} for name in names}
    for row in summed(chosen, ["next_hop", "step"], ["deliveries"]).to_pylist():
        counts[row["next_hop"]][row["step"]] = row["deliveries"]
    together = {
        row["step"]: row["deliveries"] for row in summed(latencies, ["step"], ["deliveries"]).to_pylist()
    }
    return Hops(
        all=len(all_hops),
        together=_hop(None, together),
        top=tuple(_hop(name, counts[name]) for name in names),
    )


def _hop(name: str | None, counts: Mapping[int, int]) -> Hop:
    return Hop(
        next_hop=name,
        deliveries=sum(counts.values()),
        percentiles=steps.percentiles(counts, steps.latency),
        steps=dict(sorted(counts.items())),
    )


def _reasons(reasons: Any, event: str, top: int) -> Reasons:
    keys = ["next_hop", "code", "status", "reply"]
    of_event = having(reasons, "event_id", event)
    found = summed(of_event, keys, ["times", "recipients"], greatest="example")
    return Reasons(
        all=len(found),
        times=_sum(found, "times"),
        recipients=_sum(found, "recipients"),
        top=tuple(
            Reason(**row)
            for row in _most(found, "times", ["next_hop", "reply", "code", "status"], top).to_pylist()
        ),
    )


def _promotions(promotions: Any, servers: Any) -> tuple[Promotion, ...]:
    """All of them between nodes, most messages first. ``servers``: those that received mail, too."""
    keys = ["node", "owner", "reason"]
    found = summed(promotions, keys, ["messages"])
    rows = _most(found, "messages", keys, len(found)).to_pylist()
    names = {*compute.unique(servers).to_pylist(), *(row[key] for row in rows for key in keys[:2])}
    nodes = nodes_of(name for name in names if name is not None)
    messages: Counter[tuple[str | None, str | None, str | None]] = Counter()
    for row in rows:
        messages[nodes.get(row["node"]), nodes.get(row["owner"]), row["reason"]] += row["messages"]
    return tuple(
        Promotion(node=node, owner=owner, reason=reason, messages=many)
        for (node, owner, reason), many in messages.most_common()
    )


def _unread(files: Any) -> Unread:
    some = compute.sum(compute.sign(files["problems"]))  # pyarrow would bring pandas to compare with a 0
    return Unread(rows=_sum(files, "problems"), files=_number(some))


def _judged(verdict: Mapping[str, Any], messages: int) -> Judged:
    """``messages``: of the tables."""
    totals = verdict.get("totals")
    judged = None if totals is None else int(totals.get("messages", 0))
    more = 0 if judged is None else max(0, messages - judged)
    return Judged(made_at=verdict.get("made_at"), files=verdict.get("files"), messages=judged, more=more)


def _found(findings: Any) -> tuple[Found, ...]:
    """Worst first, then most messages."""
    ones = findings.append_column("messages", integers(np.ones(len(findings), np.int64)))
    order = list(Severity)
    found = (
        Found(severity=row["severity"], name=row["class"], messages=row["messages"])
        for row in summed(ones, ["severity", "class"], ["messages"]).to_pylist()
    )
    return tuple(
        sorted(found, key=lambda one: (order.index(Severity(one.severity)), -one.messages, one.name))
    )
