"""Was the sender told of each recipient that was given up, and did the members of each list get the message?
Some node makes a report of every bounce, and a message to the members of every list that is settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shadowaudit.core.events import SAYS_WHO_ASKED, Event, Kind
from shadowaudit.core.findings import Class, Finding
from shadowaudit.core.fingerprint import derived
from shadowaudit.core.text import numbers_in

_REPORTED = frozenset({Kind.FAIL, Kind.REMOVE})
_NOBODY = frozenset({"", "<>"})


def unreported(events: Mapping[int, Event], about: Mapping[int, Event], *, untold: bool) -> Iterator[Finding]:
    """``about``: rows that name this message, on any node: those of reports (``Kind.REPORT``), and others.

    ``untold``: there may be more rows than these. Older logs do not say who asked for no report.
    """
    made = {report.message for report in about.values() if report.kind is Kind.REPORT}
    for index, event in events.items():
        if event.kind is Kind.REMOVE and not event.reference:
            continue  # a sender hears of a removal only if its operator asked for that
        if event.kind not in _REPORTED or (not event.reference and event.sender in _NOBODY):
            continue
        named = [event.reference] if event.reference else _derived(event)
        if missing := [one for one in named if one not in made]:
            what = Class.UNPROVEN_LOSS if untold else Class.REPORT_MISSING
            if not event.reference and event.schema < SAYS_WHO_ASKED:
                what = Class.REPORT_UNKNOWN
            detail = (
                f"no log has the report on it, {missing[0]}"
                if event.reference
                else "no log has a report on it"
            )
            yield Finding(what, detail, event.recipients, (index,))


def unsent(events: Mapping[int, Event], about: Mapping[int, Event], *, untold: bool) -> Iterator[Finding]:
    """Lists that were expanded, and whose members got nothing. The arguments are as for ``unreported``."""
    made = {one.message for one in about.values() if one.kind is Kind.MADE}
    for index, event in events.items():
        if event.kind is Kind.EXPAND and event.reference not in made:
            what = Class.UNPROVEN_LOSS if untold else Class.LOST
            detail = f"no log makes the message to the list's members, {event.reference}"
            yield Finding(what, detail, event.recipients, (index,))
        elif event.kind is Kind.EXPAND and event.related != event.addresses:
            detail = f"{event.node}: {event.kind} says two things of its list"
            yield Finding(Class.INCONSISTENT, detail, event.recipients, (index,))


def _derived(event: Event) -> list[str]:
    """The ids of the reports on these recipients: another node may have made them."""
    unasked = numbers_in(event.entries.get("NoReport", "")) or ()
    return [report_id(event.message, number) for number in event.recipients if number not in unasked]


def report_id(message: str, recipient: int) -> str:
    """The id of the report that a recipient failed."""
    return derived(f"report\0{message}\0{recipient}\0failed")
