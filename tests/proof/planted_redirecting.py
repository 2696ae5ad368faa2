"""Faults in a redirect of a queue, and in what holders make of a handover."""

from __future__ import annotations

from .planting import Fault

_REDIRECT = "operator/test_redirect.py::"
_HOP = "delivery/test_extra_hop.py::"
_CLAIMS = "core/members/test_claims.py::"

REDIRECTING = (
    Fault(
        name="a redirect takes a message out of its delivery attempt",
        rule="a message is not handed over during its delivery attempt",
        file="members/giving.py",
        edits=(("    if busy(ledger, message_id):\n", "    if copy.damaged:\n"),),
        test=_REDIRECT + "test_a_message_is_not_taken_out_of_its_delivery_attempt",
    ),
    Fault(
        name="a redirect takes new mail too",
        rule="mail that arrives after the beginning of a redirect stays, unless the node is drained",
        file="operator/redirect.py",
        edits=(
            (
                "        return None if self._draining() else seen.began_at\n",
                "        return None if not self._draining() else seen.began_at\n",
            ),
        ),
        test=_REDIRECT + "test_new_mail_stays_unless_the_node_is_being_drained",
    ),
    Fault(
        name="a redirect to a full member is begun",
        rule="a member that takes no mail now is refused as the target of a redirect",
        file="operator/redirect.py",
        edits=(
            (" await self._giving.unwilling(to, PATIENCE):\n            raise", " '':\n            raise"),
        ),
        test=_REDIRECT + "test_a_member_that_cannot_take_the_queue_is_refused_with_the_reason",
    ),
    Fault(
        name="a redirect offers a copy that was refused again and again",
        rule="a copy that the member refuses is offered once in a redirect",
        file="operator/redirect.py",
        edits=(("            self._refused.add(message_id)\n", "            pass\n"),),
        test=_REDIRECT + "test_a_member_that_refuses_one_message_gets_the_others",
    ),
    Fault(
        name="the lowest rank promotes what was handed over to another holder",
        rule="if the owner handed the message over, the holder that it named promotes, whatever the ranks",
        file="core/members/claims.py",
        edits=(
            (
                "    return 0 if copy.pending is Reason.HANDED_OVER else copy.rank\n",
                "    return copy.rank\n",
            ),
        ),
        test=_CLAIMS
        + "test_a_holder_that_promotes_for_another_reason_waits_for_the_one_that_the_owner_named",
    ),
    Fault(
        name="another holder adopts a handover",
        rule="a handover is to one holder alone",
        file="core/members/claims.py",
        edits=(("copy if claim.reason is Reason.HANDED_OVER else intended", "intended"),),
        test=_CLAIMS + "test_the_holder_to_which_the_owner_gave_the_message_promotes_whatever_the_ranks",
    ),
    Fault(
        name="the owner delivers to its own machine",
        rule="mail for a destination on the owner's machine is delivered by a member on another one",
        file="delivery/queue.py",
        edits=(
            (
                "        if self.detour and self.detour.wanted(claimed) and",
                "        if claimed.copy.damaged and self.detour and",
            ),
        ),
        test=_HOP + "test_a_member_on_another_machine_delivers_and_the_owner_keeps_the_copy",
    ),
    Fault(
        name="an extra hop follows the copy to another site",
        rule="an extra hop stays within the site where it can",
        file="delivery/detour.py",
        edits=(
            (
                "key=lambda name: (name not in near, name not in holding, name)",
                "key=lambda name: (name not in holding, name)",
            ),
        ),
        test="delivery/test_extra_hop.py::test_the_extra_hop_stays_within_the_site_where_it_can",
    ),
    Fault(
        name="an extra hop goes to and fro",
        rule="a message makes one extra hop at most",
        file="delivery/detour.py",
        edits=(
            (
                "        return claimed.copy.former_owner not in self._boundary.reachable()\n",
                "        return True\n",
            ),
        ),
        test=_HOP + "test_nodes_whose_settings_contradict_each_other_do_not_pass_a_message_to_and_fro",
    ),
    Fault(
        name="an extra hop takes a message out of another attempt",
        rule="a message is not handed over while another fork of it is under way",
        file="delivery/detour.py",
        edits=(
            ("            return being_sent(ledger, message_id, but=hop)\n", "            return False\n"),
        ),
        test=_HOP + "test_it_does_not_wait_for_another_fork_for_long",
    ),
)
