"""Faults in what keeps a message from being made, offered, awaited or counted twice."""

from __future__ import annotations

from .planting import Fault

_EFFECTS = "core/events/test_side_effects.py::"
_RESUBMISSION = "core/safety_net/test_resubmission.py::"

SETTLED_TWICE = (
    Fault(
        name="a holder that reaches no other machine answers for a silent owner",
        rule="silence alone does not show that an owner is gone",
        file="safety_net/making.py",
        edits=(("return None if alone else frozenset(elsewhere)", "return frozenset(elsewhere)"),),
        test=_RESUBMISSION
        + "test_a_silent_owner_is_answered_for_if_no_member_sees_it_and_another_machine_answers",
    ),
    Fault(
        name="what was left to an owner is never made",
        rule="what was left to an owner is made when it is lost",
        file="core/safety_net/resubmission.py",
        edits=(("(not known.whole or (known.trusting and not trusting))", "(not known.whole)"),),
        test=_RESUBMISSION + "test_what_was_left_to_an_owner_is_made_when_it_is_retired_or_lost_its_database",
    ),
    Fault(
        name="an owner that is asked goes on waiting for what is safe already",
        rule="no wait for a report outlives the report",
        file="core/members/answers.py",
        edits=(("    ended = waited_in_vain(ledger, copy, now)\n", "    ended = Decision(copy)\n"),),
        test=_EFFECTS + "test_an_owner_that_is_asked_ends_a_wait_for_what_is_safe_already",
    ),
    Fault(
        name="a report that is made once more after a database was put back leaves at once",
        rule="what another process may have made is asked about",
        file="core/delivery/journal.py",
        edits=((" or original.role is Role.SHADOW or earlier", " or original.role is Role.SHADOW"),),
        test=_EFFECTS + "test_what_is_made_of_a_message_of_an_earlier_process_is_asked_about_first",
    ),
    Fault(
        name="a report that another node made is waited for",
        rule="no wait for a report outlives the report",
        file="core/delivery/settling.py",
        edits=(("if r.settles and not already_safe(ledger, r.id)", "if r.settles"),),
        test=_EFFECTS + "test_a_report_that_somebody_else_made_is_safe_at_once",
    ),
    Fault(
        name="what a member said of a job outlives its database",
        rule="what is awaited of a database ends with it",
        file="core/ownership/heartbeat.py",
        edits=(("*gone, ForgetTold(name), *again", "*gone, *again"),),
        test="operator/test_jobs.py::test_what_a_member_said_of_a_job_ends_with_its_disk[remove]",
    ),
    Fault(
        name="a member that was started again keeps what it was given before",
        rule="what is awaited of a database ends with it",
        file="safety_net/pace.py",
        edits=(("known is None or known.run != run", "known is None"),),
        test="operator/test_suspended_queues.py::"
        "test_a_member_that_comes_back_without_its_disk_is_told_what_is_suspended[False]",
    ),
    Fault(
        name="changes of a request are counted from one after a disk is lost",
        rule="a later change counts, whatever its node has lost",
        file="core/safety_net/requesting.py",
        edits=(("revision=next_revision(known.revision, now)", "revision=known.revision + 1"),),
        test="core/safety_net/test_requesting.py::"
        "test_a_change_counts_over_earlier_ones_that_its_node_lost_with_its_disk",
    ),
    Fault(
        name="a bounce is done while its reports have one copy",
        rule="done is what every holder knows",
        file="database/job_selection.py",
        edits=(('else ("unacknowledged", "unreported"):', 'else ("unacknowledged",):'),),
        test="operator/test_jobs.py::"
        "test_a_bounce_is_done_when_each_report_has_two_copies_and_every_holder_knows",
    ),
    Fault(
        name="a bounce is done before the holders know",
        rule="done is what every holder knows",
        file="database/job_selection.py",
        edits=(('else ("unacknowledged", "unreported"):', 'else ("unreported",):'),),
        test="operator/test_jobs.py::"
        "test_a_bounce_is_done_when_each_report_has_two_copies_and_every_holder_knows",
    ),
    Fault(
        name="a hop's heartbeat blames the host that was asked last",
        rule="a failure names the address that failed",
        file="delivery/hop_shadows.py",
        edits=(('"; ".join((there or elsewhere)[:MOST_TOLD])', '"; ".join((there + elsewhere)[-1:])'),),
        test="delivery/test_tracked_hops.py::"
        "test_a_heartbeat_that_fails_names_the_address_of_the_hop_and_no_other",
    ),
    Fault(
        name="a queue of suspended messages says that members are asked",
        rule="a queue says what holds it",
        file="admin/render.py",
        edits=(('return "asking" if found.asking else "suspended"', 'return "asking"'),),
        test="admin/test_admin_api.py::test_a_queue_of_which_every_message_is_suspended_says_so",
    ),
)
