"""Faults in what rows are counted as, and which sums clear a message."""

from __future__ import annotations

from .planting import in_audit

_CLEAN = "no false alarm"
_SUMS = "the sums clear only what is proven"
_GAPS = "what is missing gives no proof"
SUMMING = (
    *in_audit(
        "core/fingerprint.py",
        (
            "all recipients have one fingerprint",
            _SUMS,
            "    return (word ^ (word >> 31)) >> (64 - BITS)",
            "    return 1",
            "sums.py::test_what_came_in_and_did_not_go_out_is_the_balance_of_a_message",
        ),
    ),
    *in_audit(
        "core/events.py",
        (
            "a bounce settles nobody",
            _CLEAN,
            "FINALS = SENT | {Kind.FAIL}",
            "FINALS = SENT",
            "hostile.py::test_a_subject_may_hold_anything_and_the_row_still_counts[formula]",
        ),
        (
            "what the mailbox server dropped settles nobody",
            _CLEAN,
            "SENT = DELIVERIES | {Kind.DUPLICATEDELIVER}",
            "SENT = DELIVERIES",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[false-promotion-dropped]",
        ),
    ),
    *in_audit(
        "logs/steps.py",
        (
            "rows of another database are this one's",
            _GAPS,
            "        if len(left):\n            self.learnt.faults[Fault.MIXED] = None",
            "        if len(left):\n            pass",
            "hostile.py::test_a_row_that_cannot_be_is_reported_and_nothing_is_proven",
        ),
        (
            "a message that was sent in doubt is like any other",
            _SUMS,
            '> 1 or "InDoubt" in one or',
            "> 1 or",
            "ends.py::test_a_message_that_was_sent_in_doubt_once_is_noted",
        ),
        (
            "named recipients count as the first ones",
            _SUMS,
            "        some = np.flatnonzero(np.array([bool(one) for one in named])[which])",
            "        some = np.flatnonzero(np.zeros(len(which)))",
            (
                "sums.py::test_a_holder_that_lets_go_of_other_recipients_than_it_held_is_seen_in_the_"
                "balance_alone"
            ),
        ),
        (
            "rows of a snapshot are not counted",
            _GAPS,
            "                self.learnt.listed[snapshot] += 1",
            "                self.learnt.listed[snapshot] += 0",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[in-transit]",
        ),
    ),
)
