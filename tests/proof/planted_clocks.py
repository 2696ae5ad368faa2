"""Faults in the law of time: what a wall clock that steps may decide."""

from __future__ import annotations

from .planting import Fault

_LAW = "core/test_reckoning.py::"
_STEPS = "delivery/test_clocks_that_step.py::"

CLOCKS = (
    Fault(
        name="boots of the machine are not told apart",
        rule="the boot clock measures an absence only within one boot",
        file="core/reckoning.py",
        edits=(("found.boot_id == reading.boot_id and found.boot", "found.boot"),),
        test=_LAW + "test_another_boot_that_has_run_for_longer_is_another_boot",
    ),
    Fault(
        name="what a wall clock claims after a boot ages mail at once",
        rule="the wall clock's word on an absence has to be confirmed",
        file="core/reckoning.py",
        edits=(
            ("joined((*self.spans, self.pending) if self.pending else self.spans)", "joined(self.spans)"),
        ),
        test=_LAW + "test_after_a_boot_the_wall_clock_says_it_but_nothing_ages_before_that_is_confirmed",
    ),
    Fault(
        name="the wall clock of a new database counts as right",
        rule="an absence is measured only from a wall clock that something confirmed",
        file="core/reckoning.py",
        edits=(
            (
                "        if pending and not found.settled:",
                "        if pending and found.boot < timedelta(0):",
            ),
        ),
        test=_LAW + "test_a_new_database_whose_clock_was_wrong_ages_nothing_by_the_difference",
    ),
    Fault(
        name="a wall clock that went back had measured the absence",
        rule="what the wall clock takes back does not age",
        file="core/reckoning.py",
        edits=(
            (
                "    if reckoning.pending and ahead - reckoning.ahead < -TOLERANCE:",
                "    if reckoning.pending and reckoning.settled:",
            ),
        ),
        test=_LAW
        + "test_a_wall_clock_that_is_set_meanwhile_has_to_be_calm_anew_and_what_it_took_back_does_not_age",
    ),
    Fault(
        name="reckoned time catches up with the wall clock, and mail ages by it",
        rule="what reckoned time moves by ages nothing",
        file="core/reckoning.py",
        edits=(("[*spans, (time, time + ahead)], time", "spans, time"),),
        test=_LAW + "test_a_step_is_believed_when_members_agree_and_moves_reckoned_time_at_the_next_opening",
    ),
    Fault(
        name="one of two members decides what time it is",
        rule="of two that differ neither is believed",
        file="core/reckoning.py",
        edits=(("2 * ours > len(differences) + 1", "2 * ours >= len(differences) + 1"),),
        test=_LAW + "test_the_majority_says_what_time_it_is_and_we_have_a_voice",
    ),
    Fault(
        name="the members do not veto",
        rule="a node whose clock is not that of the members ends nothing",
        file="core/reckoning.py",
        edits=(
            (
                "    if said is Opinion.DIFFER and not confirmed:",
                "    if said is Opinion.DIFFER and stepped:",
            ),
        ),
        test=_LAW
        + "test_members_that_differ_veto_though_the_clock_goes_as_ever_and_an_operator_overrules_them",
    ),
    Fault(
        name="decisions go by the wall clock",
        rule="no mail ends by a step of the wall clock, and none waits for it",
        file="node_clock.py",
        edits=(("        return self._reckoning.at(self._boot())\n", "        return self.read().wall\n"),),
        test=_STEPS + "test_a_retry_that_was_planned_by_a_clock_that_is_ahead_is_due_in_time",
    ),
    Fault(
        name="endings go by the wall clock",
        rule="no mail ends by a step of the wall clock",
        file="node_clock.py",
        edits=(
            (
                "        return Endings(found.at(reading.boot), found.doubtful, bool(self._doubts))\n",
                "        return Endings(reading.wall)\n",
            ),
        ),
        test=_STEPS + "test_an_owner_whose_clock_is_wrong_for_four_seconds_expires_none_of_twenty",
    ),
    Fault(
        name="endings go by the upper bound",
        rule="after a boot mail has the age that is certain",
        file="members/suspended.py",
        edits=(
            (
                "        return within(self._spans(next_hop, ends), received_at, ends.now)\n",
                "        return within(self.queues.spans(next_hop, ends.now), received_at, ends.now)\n",
            ),
        ),
        test=_STEPS + "test_after_a_boot_mail_has_the_age_that_is_certain",
    ),
    Fault(
        name="the veto counts for nothing",
        rule="a node whose clock is in doubt ends nothing",
        file="core/reckoning.py",
        edits=(("        return NEVER if self.doubt else self.now\n", "        return self.now\n"),),
        test=_STEPS
        + "test_while_the_clock_is_in_doubt_even_old_mail_waits_until_an_operator_confirms_the_time",
    ),
    Fault(
        name="members do not tell their time",
        rule="a node that differs from the members knows it",
        file="members/pool.py",
        edits=(("if theirs.time is not None and (voice", "if theirs.time is None and (voice"),),
        test=_STEPS + "test_members_tell_their_time_and_a_node_that_differs_from_them_knows_it",
    ),
    Fault(
        name="rows of the log have reckoned time",
        rule="the log says what the wall clock said",
        file="database/ledger.py",
        edits=(("        ahead = self.ahead()\n", "        ahead = None\n"),),
        test=_STEPS + "test_what_the_tracking_log_says_is_what_the_wall_clock_said",
    ),
    Fault(
        name="an absence of unknown length is a short one",
        rule="whether others may have forgotten goes by the upper bound",
        file="core/reckoning.py",
        edits=(("else UNKNOWN\n", "else timedelta(0)\n"),),
        test="database/test_reckonings.py::"
        "test_after_a_boot_with_a_clock_that_went_back_nobody_knows_how_long_the_node_was_away",
    ),
    Fault(
        name="the mailbox server forgets by the wall clock",
        rule="a step of the wall clock forgets no delivery",
        file="mailbox/server.py",
        edits=(("            now = self.clock()\n", "            now = self.clock.read().wall\n"),),
        test="mailbox/test_mailbox_server.py::test_a_wall_clock_that_steps_forgets_no_delivery",
    ),
)
