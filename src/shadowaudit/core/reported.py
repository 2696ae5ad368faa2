"""Was the sender told of each recipient that was given up, and did the members of each list get the message?
Some node makes a report of every bounce, and a message to the members of every list that is settled.

The row that makes it may be lost with a disk: a node that takes a message over makes no second one of what it
has already. Where rows may be missing, any row of it will do (``Kind.KNOWN``): it has a case of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from shadowaudit.core.events import SAYS_WHO_ASKED, Event, Kind, is_derived
from shadowaudit.core.findings import Class, Finding
from shadowaudit.core.fingerprint import derived
from shadowaudit.core.text import numbers_in

_REPORTED = frozenset({Kind.FAIL, Kind.REMOVE})
_NOBODY = frozenset({"", "<>"})


def absent(events: Iterable[Event]) -> Iterator[tuple[Event, str]]:
    """Rows that lead to a message which none of these rows makes, and its id, if it can be the id of that."""
    rows = list(events)
    made = {one.message for one in rows if one.kind in (Kind.REPORT, Kind.MADE)}
    for event in rows:
        for message in () if _cannot_tell(event) else _leads_to(event):
            if message not in made and _may_be(event, message):
                yield event, message


def unreported(events: Mapping[int, Event], about: Mapping[int, Event], *, untold: bool) -> Iterator[Finding]:
    """``about``: rows that name this message, on any node: those of reports (``Kind.REPORT``), and others.

    ``untold``: there may be more rows than these. Older logs do not say who asked for no report.
    """
    made = _there(about.values(), Kind.REPORT, untold=untold)
    for index, event in events.items():
        if event.kind not in _REPORTED:
            continue
        if missing := [one for one in _leads_to(event) if one not in made]:
            what = Class.UNPROVEN_LOSS if untold else Class.REPORT_MISSING
            if _cannot_tell(event):
                what = Class.REPORT_UNKNOWN
            detail = (
                f"no log has the report on it, {missing[0]}"
                if event.reference
                else "no log has a report on it"
            )
            yield Finding(what, detail, event.recipients, (index,))


def unsent(events: Mapping[int, Event], about: Mapping[int, Event], *, untold: bool) -> Iterator[Finding]:
    """Lists that were expanded, and whose members got nothing. The arguments are as for ``unreported``."""
    made = _there(about.values(), Kind.MADE, untold=untold)
    for index, event in events.items():
        if event.kind is Kind.EXPAND and event.reference not in made:
            what = Class.UNPROVEN_LOSS if untold else Class.LOST
            detail = f"no log makes the message to the list's members, {event.reference}"
            yield Finding(what, detail, event.recipients, (index,))
        elif event.kind is Kind.EXPAND and event.related != event.addresses:
            detail = f"{event.node}: {event.kind} says two things of its list"
            yield Finding(Class.INCONSISTENT, detail, event.recipients, (index,))


def _there(rows: Iterable[Event], made_by: Kind, *, untold: bool) -> set[str]:
    return {one.message for one in rows if one.kind is made_by or (untold and one.kind is Kind.KNOWN)}


def _may_be(event: Event, message: str) -> bool:
    if event.kind is Kind.EXPAND:
        return is_derived(message) and message != event.message
    return message in {report_id(event.message, number) for number in event.recipients}


def _leads_to(event: Event) -> list[str]:
    """The ids of the reports, or of the message to members, that are due for the row."""
    if event.kind is Kind.EXPAND:
        return [event.reference]
    if event.kind not in _REPORTED:
        return []
    if event.reference:
        return [event.reference]
    if event.kind is Kind.REMOVE or event.sender in _NOBODY:
        return []  # a sender hears of a removal only if its operator asked for that
    return _derived(event)


def _cannot_tell(event: Event) -> bool:
    """Does the row's log not say whether a report was wanted?"""
    return event.kind in _REPORTED and not event.reference and event.schema < SAYS_WHO_ASKED


def _derived(event: Event) -> list[str]:
    """The ids of the reports on these recipients: another node may have made them."""
    unasked = numbers_in(event.entries.get("NoReport", "")) or ()
    return [report_id(event.message, number) for number in event.recipients if number not in unasked]


def report_id(message: str, recipient: int) -> str:
    """The id of the report that a recipient failed."""
    return derived(f"report\0{message}\0{recipient}\0failed")
