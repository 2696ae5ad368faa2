"""Faults in how soon and how fast a node carries out resubmit requests."""

from __future__ import annotations

from .planting import Fault

_FILE = "safety_net/pace.py"
_PACE = "safety_net/test_pacing.py::"

PACING = (
    Fault(
        name="a node that returns goes on with a request before it has asked",
        rule="a returning member asks about its requests before it goes on",
        file=_FILE,
        edits=(("        return all(", "        return True or all("),),
        test=f"{_PACE}test_nothing_is_made_before_every_member_that_can_be_reached_has_answered",
    ),
    Fault(
        name="a member that never answers about requests is waited for without end",
        rule="no request waits for ever",
        file=_FILE,
        edits=((" or now - known.since >= patience", ""),),
        test=f"{_PACE}test_a_member_that_does_not_answer_is_waited_for_as_long_as_the_reconcile_timeout",
    ),
    Fault(
        name="a member that was away is not given the requests when it is back",
        rule="a request reaches a member that was away when it is back",
        file=_FILE,
        edits=(("            del self.given[name]\n", "            pass\n"),),
        test=f"{_PACE}test_a_member_is_given_the_records_again_after_a_change_a_while_and_a_new_contact",
    ),
    Fault(
        name="what the rate did not use is saved up",
        rule="resubmission never starves new mail",
        file=_FILE,
        edits=(
            (
                "min(rate, self._allowance + (now - self.refilled) * rate)",
                "self._allowance + (now - self.refilled) * rate",
            ),
        ),
        test=f"{_PACE}test_no_more_is_made_than_the_rate_allows_and_nothing_is_saved_up",
    ),
)
