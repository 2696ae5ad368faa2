"""Are the recipients of every row those that the message was accepted for, each under its own address?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from shadowaudit.core.events import ORIGINS, SENT, Event, Kind, canonical
from shadowaudit.core.findings import Class, Finding


def misdirected(events: Mapping[int, Event]) -> Iterator[Finding]:
    """``events`` by their index, in any order. Missing rows do not explain what differs.

    DEFER changes nothing, and the sums leave it out.
    """
    events = {index: event for index, event in events.items() if event.kind is not Kind.DEFER}
    origins = [index for index, event in events.items() if event.kind in ORIGINS]
    right: dict[int, str] = {}
    shown: dict[int, int] = {}
    for index in (*origins, *events):
        for number, address in zip(events[index].recipients, events[index].addresses, strict=False):
            right.setdefault(number, canonical(address))
            shown.setdefault(number, index)
    accepted = {number for index in origins for number in events[index].recipients}
    for index, event in events.items():
        pairs = zip(event.recipients, event.addresses, strict=False)
        wrong = {number for number, address in pairs if canonical(address) != right[number]}
        if wrong:
            first = shown[min(wrong)]
            detail = f"another address than {events[first].kind} at {events[first].node}"
            yield _finding(event, f"{detail}: {event.kind} at {event.node}", wrong, (first, index))
        if origins and (more := set(event.recipients) - accepted):
            detail = f"{len(more)} recipients more than were accepted: {event.kind} at {event.node}"
            yield _finding(event, detail, more, (origins[0], index))
    yield from _incomplete(events, origins)


def _finding(event: Event, detail: str, recipients: Collection[int], rows: tuple[int, ...]) -> Finding:
    what = Class.MISDELIVERED if event.kind in SENT else Class.ALTERED
    return Finding(what, detail, tuple(sorted(recipients)), rows)


def _incomplete(events: Mapping[int, Event], origins: Collection[int]) -> Iterator[Finding]:
    """A copy that was made before the message was accepted has to have all of its recipients."""
    for origin in origins:
        own = events[origin]
        before = [
            index
            for index, event in events.items()
            if event.kind is Kind.HAREDIRECT
            and event.database == own.database
            and event.sequence < own.sequence
        ]
        holders = {events[index].peer for index in before}
        copies: dict[str, set[int]] = {}
        rows: dict[str, list[int]] = {}
        for index, event in events.items():
            if event.kind is Kind.HARECEIVE and not event.reason and event.node in holders:
                copies.setdefault(event.node, set()).update(event.recipients)
                rows.setdefault(event.node, []).append(index)
        told = [(f"HAREDIRECT at {own.node}", set(events[index].recipients), [index]) for index in before]
        told += [(f"HARECEIVE at {node}", had, rows[node]) for node, had in copies.items()]
        for where, had, shown in told:
            if fewer := set(own.recipients) - had:
                detail = f"{len(fewer)} recipients fewer than were accepted: {where}"
                yield Finding(Class.ALTERED, detail, tuple(sorted(fewer)), (origin, *shown))
