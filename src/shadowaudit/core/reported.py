"""Was the sender told of each recipient that was given up, and did the members of each list get the message?
Some node makes a report of every bounce, and a message to the members of every list that is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from shadowaudit.core.events import SAYS_WHO_ASKED, Event, Kind
from shadowaudit.core.findings import Class, Finding
from shadowaudit.core.fingerprint import derived
from shadowaudit.core.text import numbers_in

_REPORTED = frozenset({Kind.FAIL, Kind.REMOVE})
_NOBODY = frozenset({"", "<>"})


@dataclass(frozen=True, slots=True)
class Missing:
    """What it means that no row makes a report, or the message to a list's members.

    ``untold``: that row may be missing. ``taken``: is this row's word taken for it? A node that settles a
    recipient makes what that leads to, unless it is safe there already; who made it may have lost its log.
    """

    untold: bool
    taken: Callable[[Event], bool]

    def found(self, index: int, event: Event, what: Class, detail: str) -> Finding:
        """``what``: if no row is missing."""
        if self.taken(event):
            what, detail = Class.HOLDERS_WORD, f"{detail}: the log of who made it is lost"
        elif self.untold:
            what = Class.UNPROVEN_LOSS
        return Finding(what, detail, event.recipients, (index,))


def unreported(
    events: Mapping[int, Event], about: Mapping[int, Event], missing: Missing
) -> Iterator[Finding]:
    """``about``: rows that name this message, on any node: those of reports (``Kind.REPORT``), and others.

    Older logs do not say who asked for no report.
    """
    made = {report.message for report in about.values() if report.kind is Kind.REPORT}
    for index, event in events.items():
        if event.kind is Kind.REMOVE and not event.reference:
            continue  # a sender hears of a removal only if its operator asked for that
        if event.kind not in _REPORTED or (not event.reference and event.sender in _NOBODY):
            continue
        named = [event.reference] if event.reference else _derived(event)
        absent = [one for one in named if one not in made]
        if absent and not event.reference and event.schema < SAYS_WHO_ASKED:
            yield Finding(Class.REPORT_UNKNOWN, "no log has a report on it", event.recipients, (index,))
        elif absent:
            which = f"the report on it, {absent[0]}" if event.reference else "a report on it"
            yield missing.found(index, event, Class.REPORT_MISSING, f"no log has {which}")


def unsent(events: Mapping[int, Event], about: Mapping[int, Event], missing: Missing) -> Iterator[Finding]:
    """Lists that were expanded, and whose members got nothing. The arguments are as for ``unreported``."""
    made = {one.message for one in about.values() if one.kind is Kind.MADE}
    for index, event in events.items():
        if event.kind is Kind.EXPAND and event.reference not in made:
            detail = f"no log makes the message to the list's members, {event.reference}"
            yield missing.found(index, event, Class.LOST, detail)
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
