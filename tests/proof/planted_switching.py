"""Faults in the switch of shadow redundancy for all members."""

from __future__ import annotations

from .planting import Fault

_CORE = "core/test_switching.py::"
_NODES = "operator/test_redundancy_switch.py::"

SWITCHING = (
    Fault(
        name="a switch counts whatever the settings file says since",
        rule="a settings file that says something else than at the switch counts again",
        file="core/switching.py",
        edits=(("if switch and switch.against == file else file", "if switch else file"),),
        test=_CORE + "test_a_switch_counts_until_the_settings_file_says_something_else_than_at_the_switch",
    ),
    Fault(
        name="a switch is compared with the file of the node that made it",
        rule="each node keeps what its own file said when it learnt the switch",
        file="core/switching.py",
        edits=(
            (
                "    after = replace(given, against=file)\n",
                "    after = replace(given) if file or not file else given\n",
            ),
        ),
        test=_CORE + "test_each_node_keeps_what_its_own_file_said_when_it_learnt_the_switch",
    ),
    Fault(
        name="an earlier switch overwrites a later one",
        rule="of two switches the one with the higher revision counts",
        file="core/switching.py",
        edits=(("    if known and _weight(known) >= _weight(given):\n", "    if known == given:\n"),),
        test=_CORE + "test_each_change_is_a_revision_and_the_highest_counts_in_every_order",
    ),
    Fault(
        name="holders that were released still count",
        rule="a holder that was told to discard its copy does not count as a second copy",
        file="core/switching.py",
        edits=(
            (
                "            after = after.with_holder(replace(holder, state=HolderState.SUPERSEDED))\n",
                "            after = after.with_holder(holder)\n",
            ),
        ),
        test=_NODES + "test_off_lets_copies_go_and_accepts_alone_and_on_makes_what_is_queued_redundant",
    ),
    Fault(
        name="an owner that is asked about a message releases its holders",
        rule="only an owner that surely has the message tells its holders to discard their copies",
        file="core/switching.py",
        edits=((" or copy.confirmation is not Confirmation.NONE:\n", ":\n"),),
        test=_CORE + "test_a_node_that_may_not_own_the_message_or_has_no_good_copy_lets_no_copy_go",
    ),
    Fault(
        name="an owner releases its holders without a look at its own copy",
        rule="a copy is let go only after its owner has compared its own with its digest",
        file="members/repair.py",
        edits=(
            (
                "[one for one in found if await self._examiner.look(one) is Finding.SOUND]",
                "[one for one in found if Finding.SOUND]",
            ),
        ),
        test=_NODES + "test_a_copy_goes_only_after_its_owner_has_compared_its_own",
    ),
    Fault(
        name="of two switches made apart the earlier one counts",
        rule="of two switches with one revision the later one counts",
        file="core/switching.py",
        edits=(
            (
                "    return switch.revision, switch.changed_at, [",
                "    return switch.revision, datetime.min, [",
            ),
        ),
        test=_CORE + "test_of_two_changes_with_one_revision_the_later_one_counts_everywhere",
    ),
    Fault(
        name="what a node switches after its disk was lost is overruled",
        rule="a change counts over earlier ones that its node lost with its disk",
        file="core/shared_records.py",
        edits=(("    return max(known + 1, int(now.timestamp() * 1000))\n", "    return known + 1\n"),),
        test=_CORE + "test_a_change_counts_over_earlier_ones_that_its_node_lost_with_its_disk",
    ),
    Fault(
        name="a queue that a node resumes after its disk was lost stays suspended",
        rule="a change counts over earlier ones that its node lost with its disk",
        file="core/suspending.py",
        edits=(
            (
                "        revision=next_revision(max((one.revision for one in records), default=0), now),\n",
                "        revision=1 + max((one.revision for one in records), default=0),\n",
            ),
        ),
        test="core/test_jobs_rules.py::"
        "test_a_queue_is_suspended_or_resumed_over_earlier_changes_that_its_node_lost_with_its_disk",
    ),
    Fault(
        name="a clock that was ahead makes the next change nothing",
        rule="a change counts over all that its node knows, whatever the clocks say",
        file="core/shared_records.py",
        edits=(
            (
                "    return max(known + 1, int(now.timestamp() * 1000))\n",
                "    return int(now.timestamp() * 1000)\n",
            ),
        ),
        test=_CORE + "test_a_change_counts_over_all_that_its_node_knows_though_a_clock_was_ahead",
    ),
    Fault(
        name="what was switched waits for the next restart",
        rule="a switch counts on every member at once",
        file="safety_net/resubmitting.py",
        edits=(
            (
                "        records, news, switch, suspensions = await self._database.transact(_records)\n",
                "        records, news, _, suspensions = await self._database.transact(_records)\n"
                "        switch = self._in_force.switch\n",
            ),
        ),
        test=_NODES + "test_it_is_switched_on_every_member_and_all_show_who_and_why",
    ),
)
