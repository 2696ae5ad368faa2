"""Faults in what is made of messages that Safety Net gives back."""

from __future__ import annotations

from .planting import in_audit

_ONCE = "what Safety Net gives back was delivered inside the boundary, and is given back once"
_ACCUSES = "a log with a gap accuses nobody"
_CLEAN = "no false alarm"
_SUMS = "sums clear a message only if its rows would"
RESUBMITTING = (
    *in_audit(
        "core/resubmitted.py",
        (
            "what crossed the boundary may be given back",
            _ONCE,
            "            if ends.outside and not ends.inside:",
            "            if ends.outside and ends.inside:",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[resubmitted-outside]",
        ),
        (
            "a delivery after it was given back counts",
            _ONCE,
            "            if here and self._place(one) > self._place(given):\n                continue\n",
            "",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[resubmitted-early]",
        ),
        (
            "a holder need not have heard of the delivery",
            _ONCE,
            "            elif prefix and not ends.known:",
            "            elif prefix and not ends.known and not ends.inside:",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[resubmitted-early-by-holder]",
        ),
        (
            "a delivery that may be in rows that are missing is held against who gives it back",
            _ACCUSES,
            "        return not self.untold and (bool(self.origins) or all(ends))",
            "        return bool(self.origins) or all(ends)",
            "resubmitted.py::test_what_no_log_delivers_is_a_violation_if_all_logs_are_complete",
        ),
        (
            "its id may be any that is derived",
            _ONCE,
            "            if event.message != resubmission_id(request, event.reference):",
            "            if not is_derived(event.message):",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[resubmitted-under-another-id]",
        ),
        (
            "what was given back may be given back again",
            _ONCE,
            "        yield from case.again(index, event)\n",
            "",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[resubmitted-again]",
        ),
    ),
    *in_audit(
        "core/events.py",
        (
            "what is given back is a promotion",
            _CLEAN,
            "    if kind is Kind.RESUBMIT and source == SAFETY_NET:",
            "    if kind is Kind.RESUBMIT and source == AGENT:",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[resubmitted]",
        ),
    ),
    *in_audit(
        "logs/steps.py",
        (
            "the sums clear what was given back",
            _SUMS,
            "*key_of(about), odd=not report))",
            "*key_of(about)))",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[resubmitted-outside]",
        ),
    ),
    *in_audit(
        "core/altered.py",
        (
            "two nodes may give back two contents",
            "what was sent is what was accepted",
            " and not given_back and any",
            " and any",
            "resubmitted.py::test_two_nodes_may_make_it_and_one_of_them_sends_it",
        ),
    ),
    *in_audit(
        "core/events.py",
        (
            "what is sent again past a hop counts as a promotion",
            _CLEAN,
            "    if kind is Kind.RESUBMIT and PAST_A_HOP in reference:",
            "    if False:",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[sent-again-past-a-hop]",
        ),
    ),
)
