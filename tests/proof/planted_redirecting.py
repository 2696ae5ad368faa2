"""Faults in a redirect of a queue, and in what holders make of a handover."""

from __future__ import annotations

from .planting import Fault

_REDIRECT = "operator/test_redirect.py::"
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
        edits=(("        if why := await self._unwilling(to):\n", "        if why := '':\n"),),
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
)
