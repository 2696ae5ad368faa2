"""Faults in what counts as another machine."""

from __future__ import annotations

from .planting import Fault

_RULE = "a copy on its owner's own machine does not count"
_CORE = "core/test_machines.py::"
_FEW = "holders are few, on many machines, and one that can be reached is never left out"
_CHOICES = "core/reception/test_holder_choices.py::"

MACHINES = (
    Fault(
        name="a message is handed over to a copy on its own machine",
        rule=_RULE,
        file="core/ownership/handover.py",
        edits=(
            (
                "if beside else {HolderState.HOLDING}\n",
                "if not beside else {HolderState.HOLDING}\n",
            ),
        ),
        test=f"{_CORE}test_a_queue_is_handed_over_only_to_who_has_a_copy_on_another_machine",
    ),
    Fault(
        name="a worker holds a copy for its sibling",
        rule=_RULE,
        file="core/reception/shadow_servers.py",
        edits=(("for member in others if member.host != own.host]", "for member in others]"),),
        test="simulation/test_hosts.py::test_no_worker_holds_a_copy_of_what_its_node_accepted",
    ),
    Fault(
        name="only those that are chosen are asked, reachable or not",
        rule=_FEW,
        file="core/reception/shadow_servers.py",
        edits=(("range(0, len(members), size)", "range(0, min(size, len(members)), size)"),),
        test=f"{_CHOICES}test_a_member_that_can_be_reached_is_chosen_whoever_else_cannot",
    ),
    Fault(
        name="holders are chosen on one machine though there are several",
        rule=_FEW,
        file="core/reception/shadow_servers.py",
        edits=(
            (
                "for number in range(most) for host in ranked)",
                "for host in ranked for number in range(most))",
            ),
        ),
        test=f"{_CHOICES}test_no_more_members_than_asked_for_hold_copies_"
        "and_each_is_on_another_machine_while_there_is_one",
    ),
    Fault(
        name="a member that goes moves all choices",
        rule=_FEW,
        file="core/reception/shadow_servers.py",
        edits=(('_weight(own.name, "machine", host))', "_weight(own.name, str(len(machines)), host))"),),
        test=f"{_CHOICES}test_a_member_that_goes_takes_away_itself_alone_and_one_that_comes_displaces_one_at_most",
    ),
    Fault(
        name="all owners choose the same holders",
        rule=_FEW,
        file="core/reception/shadow_servers.py",
        edits=(('_weight(own.name, "machine", host))', '_weight("machine", host))'),),
        test=f"{_CHOICES}test_each_owner_has_its_own_choice_so_that_holders_share_the_load[4]",
    ),
    Fault(
        name="a drain waits for members on its own machine",
        rule=_RULE,
        file="operator/drain.py",
        edits=(("remains.reachable.isdisjoint(self.boundary.elsewhere())", "not remains.reachable"),),
        test="members/test_one_machine.py::"
        "test_where_only_its_own_machine_can_be_reached_a_drain_does_not_wait_for_it",
    ),
    Fault(
        name="a report is safe with an owner on the same machine",
        rule=_RULE,
        file="core/ownership/transfer.py",
        edits=((" if elsewhere else Decision(None)", ""),),
        test=f"{_CORE}test_a_report_that_another_node_owns_is_safe_only_if_that_is_another_machine",
    ),
    Fault(
        name="a report that is held beside its owner counts as safe",
        rule=_RULE,
        file="core/events/side_effects.py",
        edits=(
            ("        return holding(ledger, copy.owner) is HolderState.HOLDING\n", "        return True\n"),
        ),
        test=f"{_CORE}test_a_report_that_another_node_owns_is_safe_only_if_that_is_another_machine",
    ),
    Fault(
        name="a report that is superseded is waited for",
        rule="an original waits for its report, and not for ever",
        file="core/members/questions.py",
        edits=((".after(report_is_safe(ledger, copy, now))", ""),),
        test=f"{_CORE}test_a_wait_for_a_report_beside_its_owner_ends_with_the_copy",
    ),
    Fault(
        name="a rank outlives the ownership in which it was given",
        rule="superseded counts up to the rank that its owner gave",
        file="core/ownership/transfer.py",
        edits=(("        rank=0 if copy.held else copy.rank,", "        #"),),
        test="core/members/test_damage_rules.py::test_a_rank_that_another_owner_gave_does_not_outlive_its_ownership",
    ),
    Fault(
        name="what a maker's holder has of its report is taken for another maker's",
        rule="digests are compared by id and maker",
        file="core/ownership/transfer.py",
        edits=(
            ("copy.role is Role.SHADOW or copy.former_owner is None", "copy.former_owner is None and ours"),
            ("    from_a_maker =", "    ours = copy.role is Role.PRIMARY\n    from_a_maker ="),
        ),
        test="core/members/test_damage_rules.py::test_so_does_the_copy_that_its_maker_had_made_of_it",
    ),
    Fault(
        name="a node does not know on which machines its members stand",
        rule=_RULE,
        file="service/adapters.py",
        edits=(("    return others | {ServerName(settings.name): settings.host}\n", "    return {}\n"),),
        test="e2e/test_audit_contract.py::test_one_bad_disk_is_told_of_and_loses_nothing[content]",
    ),
)
