"""Faults in what the audit makes of operators' acts."""

from __future__ import annotations

from .planting import in_audit

_REMOVED = "nobody who knows of a removal delivers"
_CLEAN = "no false alarm"
_OUTCOME = "a removal is an outcome, counted and named"
_ALONE = "faults.py::test_a_fault_alone_is_found_as_what_it_is"
OPERATED = (
    *in_audit(
        "core/removals.py",
        (
            "a delivery after the removal is a pending one that came too late",
            _REMOVED,
            "    if before and not forgot:",
            "    if forgot:",
            f"{_ALONE}[delivered-by-who-removed]",
        ),
        (
            "who heard of the removal from its owner may deliver",
            _REMOVED,
            "    return (settled or event.kind is Kind.REMOVE) and",
            "    return event.kind is Kind.REMOVE and",
            f"{_ALONE}[delivered-by-who-heard]",
        ),
        (
            "who heard of the removal only later is accused",
            _CLEAN,
            "    before = [at for at in here if places[at] < places[index]]",
            "    before = [at for at in events if _hears(events[at], removed)]",
            f"{_ALONE}[removed-too-late]",
        ),
        (
            "what was delivered may be removed",
            "rows that cannot be so are found",
            "    elif own and not forgot:",
            "    elif forgot:",
            f"{_ALONE}[removed-after-delivery]",
        ),
    ),
    *in_audit(
        "core/events.py",
        (
            "what was removed is lost",
            _OUTCOME,
            "FINALS = SENT | {Kind.FAIL, Kind.REMOVE, Kind.EXPAND}",
            "FINALS = SENT | {Kind.FAIL, Kind.EXPAND}",
            f"{_ALONE}[removed]",
        ),
        (
            "an operator's suspension is a message set aside",
            _CLEAN,
            '        return self.source == ADMIN and "Job" in self.entries',
            '        return self.source == SAFETY_NET and "Job" in self.entries',
            f"{_ALONE}[suspended]",
        ),
    ),
    *in_audit(
        "core/replay.py",
        (
            "what was resumed stays suspended",
            _CLEAN,
            "        trace.resumed |= set(event.recipients)",
            "        pass",
            f"{_ALONE}[resumed]",
        ),
    ),
    *in_audit(
        "core/removals.py",
        (
            "what its owner resumed waits where that was not heard",
            _CLEAN,
            "        if number not in resumed:\n",
            "        if True:\n",
            f"{_ALONE}[resumed-by-another]",
        ),
    ),
    *in_audit(
        "core/judge.py",
        (
            "a message that an operator resumed may be sent twice",
            "a duplicate needs a cause that the promise allows",
            "if resumed := [at for at in self._rows(Kind.RESUME) if not self.events[at].operated]:",
            "if resumed := self._rows(Kind.RESUME):",
            f"{_ALONE}[resumed-and-sent-twice]",
        ),
    ),
    *in_audit(
        "core/reported.py",
        (
            "the report on a removal may be missing",
            "who is owed a report gets one",
            "_REPORTED = frozenset({Kind.FAIL, Kind.REMOVE})",
            "_REPORTED = frozenset({Kind.FAIL})",
            f"{_ALONE}[removed-unreported]",
        ),
    ),
    *in_audit(
        "logs/steps.py",
        (
            "a row about a queue cannot be read",
            _CLEAN,
            "closing | queue",
            "closing",
            f"{_ALONE}[queue-suspended]",
        ),
    ),
)
