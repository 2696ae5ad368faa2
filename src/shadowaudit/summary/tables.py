"""The tables of a summary in words, in the order of pflogsumm: what text and page both show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import groupby
from typing import Any

from shadowaudit.core.verdict import counted
from shadowaudit.summary import steps
from shadowaudit.summary.computing import total
from shadowaudit.summary.model import Domains, Flow, Reasons, Summary
from shadowaudit.summary.units import at_most, octets, plain, share

DAYS = 62
"""So many days at most have a row each in the text; more are told by month."""

NUMBER, NAME, TEXT, ID = "number", "name", "text", "id"
_FLOW = ("received", "octets", "delivered", "deferred", "failed", "promoted", "exposed")


@dataclass(frozen=True, slots=True)
class SummaryTable:
    """``columns``: title and kind of each. ``rows``: cells, safe to print. ``note``: what to know of it."""

    title: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[str]]
    note: str = ""


def title(summary: Summary) -> str:
    """Mail of which days, how many they are, and of which nodes."""
    asked = summary.asked
    if summary.first is None or summary.last is None:
        told = [f"since {asked.since}"] if asked.since else []
        told += [f"before {asked.until}"] if asked.until else []
        return f"Mail {' and '.join(told)} (UTC)" if told else "Mail of all days"
    of = plain(asked.node) if asked.node else counted(len(summary.nodes), "node")
    many = len(summary.days)
    days = f"{summary.first} to {summary.last}" if many > 1 else f"{summary.first}"
    return f"Mail of {days} ({counted(many, 'day')}, UTC), {of}"


def totals(summary: Summary) -> list[tuple[str, str]]:
    """Numbers, and what each is of."""
    flow, dropped = summary.totals, summary.totals.dropped_as_duplicates
    return [
        _total(flow.received, "message", " received"),
        (octets(flow.octets), "received"),
        _total(summary.recipients.addresses, "recipient"),
        _total(summary.senders.all, "sender domain"),
        _total(summary.recipients.all, "recipient domain"),
        (f"{flow.delivered:,}", "delivery" if flow.delivered == 1 else "deliveries"),
        _total(flow.deferred, "deferral"),
        _total(flow.failed, "bounce"),
        _total(flow.promoted, "promotion"),
        _total(flow.resubmitted, "message", " given back by Safety Net"),
        (f"{flow.exposed:,}", f"accepted with one copy ({share(flow.exposed, flow.received)})"),
        _total(dropped, "duplicate", " dropped by a mailbox server"),
        unread(summary),
    ]


def unread(summary: Summary) -> tuple[str, str]:
    """How many rows could not be read, and what is to be known of that."""
    found = summary.unread
    where = f", in {counted(found.files, 'file')}" if found.rows else ""
    of = " of all days and nodes" if summary.restricted else ""
    return _total(found.rows, "row", f"{of} could not be read{where}")


def remarks(summary: Summary) -> list[str]:
    """Sentences without which the numbers look wrong."""
    flow, told = summary.totals, []
    if not flow.received and (flow.delivered or flow.deferred or flow.failed or flow.dropped_as_duplicates):
        what = "These are deliveries and attempts of messages"
        told.append(
            f"No reception is known here. {what} that were received on other days, by other nodes, or in a "
            "log that was not read."
            if summary.restricted
            else f"No reception is known. {what} whose reception is in no log that was read."
        )
    return told


def _total(many: int, what: str, rest: str = "") -> tuple[str, str]:
    return f"{many:,}", f"{what if many == 1 else what + 's'}{rest}"


def days(summary: Summary) -> SummaryTable:
    """Each day."""
    return _flows("Per day", "day", summary.days)


def days_or_months(summary: Summary) -> SummaryTable:
    """Months, if there are many days."""
    many = len(summary.days) > DAYS
    return _flows("Per month", "month", by_month(summary.days)) if many else days(summary)


def hours(summary: Summary) -> SummaryTable:
    """Each hour of a few days; of more days, the mean of each hour of the day."""
    if summary.hours:
        return _flows("Per hour", "hour", {f"{hour:%m-%d %H}h": flow for hour, flow in summary.hours.items()})
    return SummaryTable(
        "Per hour of the day, mean of all days",
        (("hour", NAME), *((name, NUMBER) for name in ("received", "delivered", "deferred", "failed"))),
        [_mean(hour, flow, len(summary.days)) for hour, flow in summary.of_day.items()]
        if summary.days
        else [],
    )


def by_month(flows: Mapping[date, Flow]) -> dict[str, Flow]:
    """Days added up: YYYY-MM."""
    months = groupby(flows.items(), key=lambda one: f"{one[0]:%Y-%m}")
    return {month: total(flow for _, flow in some) for month, some in months}


def nodes(summary: Summary) -> SummaryTable:
    return _flows("Per node", "node", {plain(name): flow for name, flow in summary.nodes.items()})


def recipients(summary: Summary) -> SummaryTable:
    return _domains("Recipient domains", summary.recipients)


def senders(summary: Summary) -> SummaryTable:
    return _domains("Sender domains", summary.senders)


def sizes(summary: Summary) -> SummaryTable:
    found, note = summary.sizes, ""
    if found.messages:
        half = found.percentiles[50]
        mean = octets(found.octets / found.messages)
        note = f"mean {mean}; the median is between {octets(half.least)} and {octets(half.below)}"
    rows = []
    for step, (messages, some) in found.steps.items():
        edges = steps.size(step)
        cells = (f"{octets(edges.least)} – {octets(edges.below)}", f"{messages:,}")
        rows.append((*cells, share(messages, found.messages), octets(some)))
    columns = (("size", NUMBER), ("messages", NUMBER), ("share", NUMBER), ("octets", NUMBER))
    return SummaryTable("Sizes", columns, rows, note)


def hops(summary: Summary) -> SummaryTable:
    """Next hops with most deliveries, and all together."""
    less = 1 - 1 / (1 + steps.WIDTH)
    note = (
        f"Times are counted in steps that are {100 * steps.WIDTH:.0f} % wide. ≤ shows the end of a step: "
        f"the time itself is up to {100 * less:.0f} % less."
    )
    rows = []
    together = (summary.hops.together,) if summary.hops.all > 1 else ()
    for hop in (*summary.hops.top, *together):
        if hop.deliveries:
            times = (at_most(hop.percentiles.get(percent)) for percent in steps.PERCENTS)
            name = "all" if hop is summary.hops.together else plain(hop.next_hop)
            rows.append((f"{hop.deliveries:,}", *times, name))
    columns = (("deliveries", NUMBER), *((f"p{one} ≤", NUMBER) for one in steps.PERCENTS), ("next hop", NAME))
    return SummaryTable(_top("Time to delivery, by next hop", summary.hops), columns, rows, note)


def deferrals(summary: Summary) -> SummaryTable:
    return _reasons("Deferrals", summary.deferrals)


def bounces(summary: Summary) -> SummaryTable:
    return _reasons("Bounces", summary.bounces)


def promotions(summary: Summary) -> SummaryTable:
    rows = [
        (f"{one.messages:,}", plain(one.node), plain(one.owner), plain(one.reason))
        for one in summary.promotions
    ]
    columns = (("messages", NUMBER), ("node", NAME), ("took over from", NAME), ("reason", NAME))
    return SummaryTable("Promotions", columns, rows)


def exposure(summary: Summary) -> SummaryTable:
    """By node, and the days with most."""
    rows = [
        (f"{flow.exposed:,}", share(flow.exposed, flow.received), plain(node))
        for node, flow in summary.nodes.items()
        if flow.exposed
    ]
    found = sorted(((-flow.exposed, day) for day, flow in summary.days.items() if flow.exposed))
    most = ", ".join(f"{day} ({-many:,})" for many, day in found[:3])
    note = f"on {counted(len(found), 'day')}; most on {most}" if found and len(summary.days) > 1 else ""
    columns = (("messages", NUMBER), ("of received", NUMBER), ("node", NAME))
    return SummaryTable("Exposure: accepted with one copy", columns, rows, note)


def duplicates(summary: Summary) -> SummaryTable:
    rows = [
        (f"{flow.dropped_as_duplicates:,}", plain(node))
        for node, flow in summary.nodes.items()
        if flow.dropped_as_duplicates
    ]
    return SummaryTable(
        "Duplicates dropped by a mailbox server", (("messages", NUMBER), ("node", NAME)), rows
    )


def found(summary: Summary) -> SummaryTable:
    """What the last verdict found."""
    rows = [(f"{one.messages:,}", plain(one.severity), plain(one.name)) for one in summary.found or ()]
    columns = (("messages", NUMBER), ("severity", NAME), ("class", NAME))
    nothing = [("0", "–", "nothing")]
    return SummaryTable(
        "What the last verdict found, in all days", columns, rows or nothing, _judged(summary)
    )


def _judged(summary: Summary) -> str:
    """Of when and what the verdict is, and whether the tables have more by now."""
    found = summary.verdict
    if found is None or found.made_at is None or found.messages is None or found.files is None:
        return ""
    at = f"{datetime.fromisoformat(found.made_at).astimezone(UTC):%Y-%m-%d %H:%M}"
    told = f"Of {at} UTC: {counted(found.messages, 'message')} in {counted(found.files, 'file')}."
    if found.more:
        told += f" The tables have {counted(found.more, 'message')} more now, which it does not know."
    return told


def _flows(title: str, first: str, flows: Mapping[Any, Flow]) -> SummaryTable:
    rows = [
        (
            str(key),
            *(octets(flow.octets) if name == "octets" else f"{getattr(flow, name):,}" for name in _FLOW),
        )
        for key, flow in flows.items()
    ]
    return SummaryTable(title, ((first, NAME), *((name, NUMBER) for name in _FLOW)), rows)


def _mean(hour: int, flow: Flow, many: int) -> Sequence[str]:
    names = ("received", "delivered", "deferred", "failed")
    return (f"{hour:02}-{hour + 1:02}", *(f"{getattr(flow, name) / many:,.1f}" for name in names))


def _domains(title: str, domains: Domains) -> SummaryTable:
    rows = [
        (f"{one.messages:,}", f"{one.addresses:,}", octets(one.octets), plain(one.domain))
        for one in domains.top
    ]
    columns = (("messages", NUMBER), ("addresses", NUMBER), ("octets", NUMBER), ("domain", NAME))
    return SummaryTable(_top(title, domains), columns, rows)


def _reasons(title: str, reasons: Reasons) -> SummaryTable:
    rows = [
        (f"{one.times:,}", f"{one.recipients:,}", plain(one.next_hop), plain(one.reply), plain(one.example))
        for one in reasons.top
    ]
    columns = (
        ("times", NUMBER),
        ("recipients", NUMBER),
        ("next hop", NAME),
        ("reply", TEXT),
        ("example", ID),
    )
    shown = f" ({len(reasons.top)} of {reasons.all:,} reasons)" if len(reasons.top) < reasons.all else ""
    return SummaryTable(f"{title}: {reasons.times:,}{shown}", columns, rows)


def _top(title: str, some: Any) -> str:
    return f"{title} ({len(some.top)} of {some.all:,})" if len(some.top) < some.all else title


def every(summary: Summary) -> Iterable[SummaryTable]:
    """All that have rows, in order."""
    of_verdict = () if summary.found is None else (found(summary),)
    traffic = (days_or_months, hours, nodes, recipients, senders, sizes, hops)
    trouble = (deferrals, bounces, promotions, exposure, duplicates)
    for table in (*(one(summary) for one in (*traffic, *trouble)), *of_verdict):
        if table.rows:
            yield table
