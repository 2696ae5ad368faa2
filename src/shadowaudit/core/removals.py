"""What operators did: was a removal kept by every node that knew of it, and who waits because of whom?

A removal is *pending* until every node that may have a copy has heard of it. A node that delivers before it
heard did not know better. A node that delivers after its own row REMOVE, or after the HADISCARD by which it
heard, has broken the promise. So the order of rows in one database tells; clocks tell nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shadowaudit.core.events import SENT, SETTLED_ELSEWHERE, Event, Kind
from shadowaudit.core.findings import Class, Finding
from shadowaudit.core.replay import Ending, Trace


def removals(
    events: Mapping[int, Event], traces: Mapping[str, Trace], places: Mapping[int, int]
) -> Iterator[Finding]:
    """``events``: all rows about a message by their index. ``places``: where each stands in its database."""
    rows = [index for index, event in events.items() if event.kind is Kind.REMOVE]
    if not rows:
        return
    removed = {number for index in rows for number in events[index].recipients}
    asked = told_by(events[index] for index in rows) or "no row says by whom"
    yield Finding(Class.REMOVED, asked, tuple(sorted(removed)), tuple(rows))
    sent = [index for index, event in events.items() if event.kind in SENT and removed & {*event.recipients}]
    for index in sent:
        yield from _sent(index, removed & {*events[index].recipients}, events, traces, places)


def _sent(
    index: int,
    removed: set[int],
    events: Mapping[int, Event],
    traces: Mapping[str, Trace],
    places: Mapping[int, int],
) -> Iterator[Finding]:
    """A delivery to recipients that were removed, by that node or by another one."""
    one = events[index]
    here = [at for at, event in events.items() if event.database == one.database and _hears(event, removed)]
    before = [at for at in here if places[at] < places[index]]
    own = [at for at in here if events[at].kind is Kind.REMOVE and places[at] > places[index]]
    # A database that was set back knows nothing of the rows that it gave up.
    forgot = traces[one.database].database.rolled_back
    numbers = tuple(sorted(removed))
    if before and not forgot:
        detail = f"{one.node} knew of the removal, and delivered it all the same"
        yield Finding(Class.DELIVERED_AFTER_REMOVAL, detail, numbers, (*before, index))
    elif own and not forgot:
        detail = f"{one.node}: REMOVE of what it had delivered"
        yield Finding(Class.INCONSISTENT, detail, numbers, (index, *own))
    else:
        detail = f"{one.node} delivered it before it heard of the removal"
        yield Finding(Class.REMOVED_TOO_LATE, detail, numbers, (index,))


def _hears(event: Event, removed: set[int]) -> bool:
    """Is it a row by which its node knows that one of these is settled?"""
    settled = event.kind is Kind.HADISCARD and event.reason in SETTLED_ELSEWHERE
    return (settled or event.kind is Kind.REMOVE) and bool(removed & {*event.recipients})


def waiting(events: Mapping[int, Event], traces: Mapping[str, Trace]) -> Mapping[int, Sequence[int]]:
    """Recipients whom a node has, and whom an operator suspended: with the rows that say so.

    Where a node that owns the message has resumed them, a copy that did not hear of that does not count.
    """
    found: dict[int, list[int]] = {}
    resumed: set[int] = set()
    for trace in traces.values():
        if trace.ending in (Ending.HELD, Ending.TAIL):
            for number in (trace.left & trace.suspended.keys()) - trace.resumed:
                found.setdefault(number, []).append(trace.suspended[number])
            resumed |= trace.resumed & trace.left if trace.owned else set()
    rows: dict[int, list[int]] = {}
    for number, some in found.items():
        if number not in resumed:
            rows[number] = sorted(some, key=lambda index: events[index].at)
    return rows


def told_by(events: Iterable[Event]) -> str:
    """Who did it and why, each once."""
    return "; ".join(dict.fromkeys(event.why for event in events if event.why))
