"""Faults in what operators order of messages, and in who hears of it."""

from __future__ import annotations

from .planting import Fault

_ROWS = "database/test_operated.py::"
_TOLD = "members/test_orders_told.py::"

ORDERING = (
    Fault(
        name="a holder does not hear of a suspension",
        rule="whoever may hold a copy is told of an operator's order",
        file="core/delivery/operated.py",
        edits=(
            (
                "    told = addressed(order_listeners(ledger, after), orders(after, changed), now)\n",
                "    told = ()\n",
            ),
        ),
        test=_TOLD + "test_a_copy_that_is_promoted_stays_suspended_until_an_operator_resumes_it",
    ),
    Fault(
        name="a suspension does not count where the copy was promoted",
        rule="an order counts at any epoch and in any role, as a settlement does",
        file="core/reception/holding.py",
        edits=(
            (
                "    if verdict.settled_at is None:\n",
                "    if verdict.settled_at is None or not copy.held:\n",
            ),
        ),
        test=_TOLD + "test_a_copy_that_is_promoted_stays_suspended_until_an_operator_resumes_it",
    ),
    Fault(
        name="an order is shown as done before the holders have acknowledged it",
        rule="an order is pending until every database that may hold a copy has acknowledged it",
        file="core/delivery/operated.py",
        edits=(("    found = list(ledger.unacknowledged_orders(message_id))\n", "    found = []\n"),),
        test=_TOLD + "test_a_removal_is_pending_until_the_holder_has_heard_of_it",
    ),
    Fault(
        name="a removal with a report is shown as done before anybody is told of it",
        rule="a removal is pending while it waits for its report",
        file="core/delivery/operated.py",
        edits=(("        found += order_listeners(ledger, copy)\n", "        found += ()\n"),),
        test=_ROWS + "test_a_removal_whose_report_is_not_safe_yet_is_pending_before_anybody_is_told",
    ),
    Fault(
        name="what an operator ordered expires as other events do",
        rule="events of an operator's order wait until they are acknowledged",
        file="database/queue.py",
        edits=(
            (
                'SQL["expire_events"], (',
                """SQL["expire_events"].split(" AND ")[0] + " AND kind <> 'taken'", (""",
            ),
        ),
        test=_ROWS + "test_only_what_tells_of_orders_waits_for_a_member_however_long_it_is_away",
    ),
    Fault(
        name="what an attempt has in hand is removed",
        rule="recipients that an attempt has in hand are left: the attempt decides first",
        file="core/delivery/operated.py",
        edits=(
            (
                "    return tuple(one for one in meant if one.next_hop not in sending), waiting\n",
                "    return tuple(meant), waiting\n",
            ),
        ),
        test=_ROWS + "test_recipients_that_an_attempt_has_in_hand_are_left",
    ),
    Fault(
        name="who gave the message away unasked does not hear that it was removed",
        rule="the owner from which a message was taken over is told of an operator's order too",
        file="core/events/announcements.py",
        edits=(("if former and former.lineage else ())]", "if False else ())]"),),
        test=_TOLD + "test_the_owner_from_which_the_message_was_taken_over_has_to_hear_of_a_removal_too",
    ),
    Fault(
        name="a removal waits for a member that was retired before it",
        rule="a retired member counts as having acknowledged an order",
        file="core/events/announcements.py",
        edits=(("if one.retired and one.lineage}", "if False}"),),
        test=_TOLD + "test_a_member_that_was_retired_before_is_not_waited_for",
    ),
    Fault(
        name="an order is acknowledged while an attempt is under way that it does not stop",
        rule="a member acknowledges an order when no attempt of its own is under way any more",
        file="core/reception/holding.py",
        edits=(("        return bool(hops)\n    named", "        return False\n    hops = ()\n    named"),),
        test=_TOLD
        + "test_a_removal_is_not_acknowledged_while_an_attempt_is_under_way_and_applied_when_it_failed",
    ),
    Fault(
        name="an attempt delivers after its message was shown as removed",
        rule="nothing is delivered after a removal is confirmed, by attempts under way on any member",
        file="core/members/conversation.py",
        edits=(("for line in lines if too_early(ledger, line.verdict)]", "for line in lines if False]"),),
        test=_TOLD
        + "test_a_removal_is_not_acknowledged_while_an_attempt_is_under_way_and_applied_when_it_failed",
    ),
    Fault(
        name="an event of an order that waits for an attempt is acknowledged all the same",
        rule="a member acknowledges no event that it has not applied",
        file="core/members/conversation.py",
        edits=((" for event in events if first is None or event < first)", " for event in events)"),),
        test=_TOLD
        + "test_a_removal_is_not_acknowledged_while_an_attempt_is_under_way_and_applied_when_it_failed",
    ),
    Fault(
        name="a question counts as answered though the answer was left",
        rule="who was told of an order too early asks again",
        file="core/members/conversation.py",
        edits=(("    answered -= {line.verdict.message_id for line in early}\n", ""),),
        test=_TOLD + "test_an_answer_that_tells_of_a_removal_during_an_attempt_leaves_the_question_open",
    ),
    Fault(
        name="a suspended message is due",
        rule="a suspended recipient is not due",
        file="database/records.py",
        edits=(("    if recipient.suspended == FOREVER:\n        return None\n", ""),),
        test=_ROWS + "test_what_is_suspended_is_not_due_before_its_end_and_its_age_counts_from_then",
    ),
    Fault(
        name="a message ages while it is suspended",
        rule="suspended mail does not expire",
        file="core/delivery/retry.py",
        edits=(("    return max(copy.received_at, *ends) if ends", "    return copy.received_at if ends"),),
        test=_ROWS + "test_what_is_suspended_is_not_due_before_its_end_and_its_age_counts_from_then",
    ),
    Fault(
        name="an attempt begins though the message was suspended after its claim",
        rule="a suspension stops an attempt that has not begun",
        file="database/queue.py",
        edits=((" if not one.is_suspended(now)}", "}"),),
        test=_TOLD + "test_a_claim_that_has_not_begun_does_not_begin_once_the_message_is_suspended",
    ),
    Fault(
        name="of two orders the one that was heard last counts",
        rule="of an operator's orders the one that was given last counts, in whatever order they are heard",
        file="core/messages.py",
        edits=((" or (known and known >= (at, until or at)):", ":"),),
        test=_ROWS + "test_of_two_orders_the_one_that_was_given_last_counts",
    ),
    Fault(
        name="a copy that is made later is not suspended",
        rule="an offer of a copy carries the last order about each recipient",
        file="wire/xshadow.py",
        edits=(("            suspended=self.suspended,\n", ""),),
        test=_TOLD + "test_a_copy_that_is_made_later_is_suspended_too",
    ),
    Fault(
        name="an order that was given while a copy was on its way is not in that copy",
        rule="a new holder is told of orders that are not in its copy",
        file="core/reception/redundancy.py",
        edits=((" + orders(after, after.unsettled)", ""),),
        test=_ROWS + "test_a_holder_whose_offer_was_under_way_is_told_of_the_order_once_it_has_the_copy",
    ),
    Fault(
        name="a member of an earlier version hears a word that it does not know",
        rule="a member of version 3 hears of a removal as of a failure",
        file="wire/xqdiscard.py",
        edits=(('        return replace(verdict, argument="failed")\n', "        return verdict\n"),),
        test="smtp/test_member_dialogues.py::"
        "test_the_dialogue_goes_as_it_is_written[operators_orders_version_3]",
    ),
)
