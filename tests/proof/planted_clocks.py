"""Faults in the law of time: what a wall clock that steps may decide."""

from __future__ import annotations

from .planting import Fault

_LAW = "core/test_reckoning.py::"

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
)
