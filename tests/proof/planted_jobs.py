"""Faults in jobs and in suspended queues."""

from __future__ import annotations

from .planting import Fault

_RULES = "core/test_jobs_rules.py::"
_JOBS = "operator/test_jobs.py::"
_QUEUES = "operator/test_suspended_queues.py::"
_COMMANDS = "operator/test_verbs_by_command.py::"

JOBS = (
    Fault(
        name="how far a job is, is not stored with what it did",
        rule="a job's place is stored in the transaction that does it",
        file="operator/carrying.py",
        edits=(("            after=part.place or own.after,\n", "            after=own.after,\n"),),
        test=_JOBS + "test_a_job_goes_on_after_a_restart_where_it_was",
    ),
    Fault(
        name="a job does not ask whether an attempt is under way",
        rule="a message that an attempt has in hand is left, and looked at again",
        file="operator/carrying.py",
        edits=(("            elif being_sent(ledger, message_id) or not", "            elif not"),),
        test=_JOBS + "test_a_message_that_an_attempt_has_in_hand_is_left_and_looked_at_again",
    ),
    Fault(
        name="the job that is heard last counts",
        rule="merging jobs is a maximum",
        file="core/ownership/jobs.py",
        edits=(("    return max(one, other, key=_weight)\n", "    return other\n"),),
        test=_RULES + "test_the_order_in_which_changes_of_a_job_are_heard_makes_no_difference",
    ),
    Fault(
        name="the suspension that is heard last counts",
        rule="merging suspensions is a maximum",
        file="core/suspending.py",
        edits=(("    if known and _weight(known) >= _weight(given):\n", "    if known == given:\n"),),
        test=_RULES + "test_the_order_in_which_suspensions_are_heard_makes_no_difference",
    ),
    Fault(
        name="a queue that is suspended after the claim is tried",
        rule="each attempt asks whether the queue is suspended",
        file="delivery/queue.py",
        edits=(
            (
                "        if self.suspended(claimed.next_hop):  # since the claim\n",
                "        if not claimed:\n",
            ),
        ),
        test=_QUEUES + "test_a_queue_that_is_suspended_after_the_claim_gets_no_attempt",
    ),
    Fault(
        name="mail ages while its queue is suspended",
        rule="suspended mail does not expire",
        file="database/queue.py",
        edits=((" + self.not_aged\n", "\n"),),
        test=_QUEUES + "test_nothing_is_claimed_for_a_suspended_queue_and_late_mail_does_not_expire",
    ),
    Fault(
        name="the retry of a queue is in no tracking log",
        rule="an act on a queue is a row on every node that does it",
        file="operator/carrying.py",
        edits=((", _queue_acts(job, own, now))", ")"),),
        test=_COMMANDS + "test_a_retry_of_a_queue_ends_its_rest_on_every_node_and_each_notes_it",
    ),
    Fault(
        name="the retry of a queue leaves its next hop at rest",
        rule="a retry of a queue ends the rest of its next hop",
        file="operator/carrying.py",
        edits=(("                self.try_now(job.filter.queue)\n", "                pass\n"),),
        test=_COMMANDS + "test_a_retry_of_a_queue_ends_its_rest_on_every_node_and_each_notes_it",
    ),
    Fault(
        name="reports of a job are written for no message",
        rule="the sender of a message that a job ends is told, if that is asked for",
        file="operator/verbs.py",
        edits=(("    reports = written[copy.id].reports if written else ()\n", "    reports = ()\n"),),
        test=_COMMANDS + "test_a_sender_gets_one_report_of_what_a_job_ended_by_a_filter",
    ),
    Fault(
        name="a delay notice counts the age while the queue was suspended",
        rule="mail in a suspended queue does not age",
        file="delivery/reports.py",
        edits=(("since(copy, (recipient,)) + spent", "since(copy, (recipient,))"),),
        test=_QUEUES + "test_a_delay_notice_promises_the_time_in_which_the_queue_was_suspended_besides",
    ),
    Fault(
        name="a walk and a count do not ask whether a recipient is suspended",
        rule="a filter means the same in SQL and in the core",
        file="database/job_selection.py",
        edits=(('        "suspended": wanted.suspended,\n', '        "suspended": None,\n'),),
        test="database/test_job_selection.py::"
        "test_a_count_and_a_walk_find_exactly_what_the_core_says_is_meant",
    ),
    Fault(
        name="a 250 waits for a suspended queue",
        rule="a delayed acknowledgement is skipped when the target queue is suspended",
        file="core/reception/acknowledging.py",
        edits=(("    if any(one.suspended for one in targets):\n", "    if not targets:\n"),),
        test="reception/test_delayed_acknowledgement.py::test_a_suspended_queue_is_not_waited_for",
    ),
    Fault(
        name="what is pending is counted from the time of another node's clock",
        rule="a removal is pending until every member that may hold a copy has acknowledged it",
        file="operator/carrying.py",
        edits=(
            ("            began = own.since and own.since - SET_BACK\n", "            began = job.made_at\n"),
        ),
        test=_JOBS + "test_a_removal_is_pending_also_if_the_clock_of_who_ordered_it_is_ahead",
    ),
    Fault(
        name="a resume is dated by its own clock alone",
        rule="a later suspend or resume overrules an earlier one",
        file="core/ownership/jobs.py",
        edits=(("    job = _after_all(ledger, job)\n", ""),),
        test=_RULES + "test_a_resume_overrules_a_suspension_that_was_dated_by_a_clock_ahead",
    ),
    Fault(
        name="a condition of a later version is left out of the filter",
        rule="a job is about the messages that its filter means, and no others",
        file="wire/jobs.py",
        edits=(("    if unknown := sorted(set(found) - _CONDITIONS):\n", "    if unknown := ():\n"),),
        test=_RULES + "test_a_filter_with_a_condition_of_a_later_version_is_not_taken_without_it",
    ),
    Fault(
        name="a message that was set aside goes out without a question",
        rule="what members may have promoted meanwhile is asked about before it is sent",
        file="core/ownership/set_aside.py",
        edits=(("asked_about(queued, now) if queued.holders else queued", "queued"),),
        test="core/test_poison_rules.py::test_a_resumed_message_goes_out_after_its_holders_are_asked",
    ),
)
