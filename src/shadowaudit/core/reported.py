"""Was the sender told of each recipient that was given up? Some node makes a report of every bounce."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from shadowaudit.core.events import SAYS_WHO_ASKED, Event, Kind
from shadowaudit.core.findings import Class, Finding
from shadowaudit.core.fingerprint import dashed
from shadowaudit.core.text import numbers_in

_NOBODY = frozenset({"", "<>"})


def unreported(
    events: Mapping[int, Event], reports: Mapping[int, Event], *, untold: bool
) -> Iterator[Finding]:
    """``reports``: rows of reports about this message, on any node (``Kind.REPORT``).

    ``untold``: there may be more rows than these. Older logs do not say who asked for no report.
    """
    made = {report.message for report in reports.values()}
    for index, event in events.items():
        if event.kind is not Kind.FAIL or (not event.reference and event.sender in _NOBODY):
            continue
        named = [event.reference] if event.reference else _derived(event)
        if missing := [one for one in named if one not in made]:
            what = Class.UNPROVEN_LOSS if untold else Class.REPORT_MISSING
            if not event.reference and event.schema < SAYS_WHO_ASKED:
                what = Class.REPORT_UNKNOWN
            detail = f"no log makes the report {missing[0]}" if event.reference else "no log makes a report"
            yield Finding(what, detail, event.recipients, (index,))


def _derived(event: Event) -> list[str]:
    """The ids of the reports on these recipients: another node may have made them."""
    unasked = numbers_in(event.entries.get("NoReport", "")) or ()
    return [report_id(event.message, number) for number in event.recipients if number not in unasked]


def report_id(message: str, recipient: int) -> str:
    """The id of the report that a recipient failed: the nodes derive it (a UUID of version 8)."""
    raw = bytearray(hashlib.sha256(f"report\0{message}\0{recipient}\0failed".encode()).digest()[:16])
    raw[6] = 0x80 | (raw[6] & 0x0F)
    raw[8] = 0x80 | (raw[8] & 0x3F)
    return dashed(bytes(raw))
