"""Faults of the receiving side between hops: who may track, what is taken once, and who hears of it."""

from __future__ import annotations

from .planting import Fault

_HANDED = "core/reception/test_handed.py::"
_HOPS = "reception/test_hops.py::"

HOPS_IN = (
    Fault(
        name="a peer beyond the boundary hears of nothing",
        rule="who handed a message over hears when the next hop has it",
        file="core/events/announcements.py",
        edits=(("    return (*told, *to_giver(ledger, copy.id, recipients, now))\n", "    return told\n"),),
        test=_HANDED + "test_the_peer_hears_of_a_delivery_with_its_own_id_and_numbers",
    ),
    Fault(
        name="a peer hears of a failure whose report is still under way",
        rule="a peer's copy goes when the report about it is safe",
        file="core/events/announcements.py",
        edits=(
            (
                "        if recipient.settled and not recipient.waits and number",
                "        if recipient.settled and number",
            ),
        ),
        test=_HANDED + "test_a_failure_is_told_once_its_report_is_settled",
    ),
    Fault(
        name="a peer hears that all is delivered when its part is",
        rule="an event for a peer names its recipients by the peer's numbers",
        file="core/events/announcements.py",
        edits=(
            ("        number = handed.theirs(recipient.number)\n", "        number = recipient.number\n"),
        ),
        test=_HANDED + "test_an_event_names_its_recipients_even_if_they_are_all_that_we_have",
    ),
    Fault(
        name="what is handed over again is taken again",
        rule="a lost reply between hops makes no duplicate",
        file="core/reception/redundancy.py",
        edits=(("    if not before:\n        return arrival, ()\n", "    return arrival, ()\n"),),
        test=_HANDED + "test_a_message_that_is_handed_over_again_is_not_taken_again",
    ),
    Fault(
        name="a peer that was put back is not told again",
        rule="a peer that forgot what is delivered hears it when it hands the message over again",
        file="core/reception/redundancy.py",
        edits=(("    return rest, tuple(told)\n", "    return rest, ()\n"),),
        test=_HANDED + "test_a_peer_that_forgot_what_is_delivered_hears_it_again",
    ),
    Fault(
        name="what a replaced database handed over is told to its successor",
        rule="events go to the database that handed the message over",
        file="core/members/hops.py",
        edits=(("            writes.append(DropEvents(former.database_id))\n", "            pass\n"),),
        test=_HANDED + "test_what_a_replaced_database_handed_over_is_told_to_nobody",
    ),
    Fault(
        name="a certificate that a pinned one vouches for is enough",
        rule="a peer is known by the very certificate that is pinned",
        file="reception/hops.py",
        edits=(
            (
                "        self._peer = self._intakes.tls.pinned.get(certificate)\n",
                "        self._peer = next(iter(self._intakes.tls.pinned.values()))\n",
            ),
        ),
        test=_HOPS + "test_a_certificate_that_a_pinned_one_vouches_for_is_not_that_one",
    ),
    Fault(
        name="a peer passes for the database of another",
        rule="a peer cannot hear of messages that another one handed over",
        file="reception/hops.py",
        edits=(("        return known | {ledger.lineage.database_id}\n", "        return set()\n"),),
        test=_HOPS + "test_a_peer_cannot_pass_for_the_database_of_another_and_hear_its_events",
    ),
    Fault(
        name="a peer passes for the database of a peer of another connector",
        rule="a peer cannot hear of messages that another one handed over",
        file="reception/hops.py",
        edits=(
            (
                "one in ledger.hop_rows.peers_but(name)]",
                "one in ledger.hop_rows.peers_but(name) if one.name in self._intakes.tls.pinned.values()]",
            ),
        ),
        test=_HOPS + "test_a_peer_cannot_pass_for_the_database_of_a_peer_of_another_connector",
    ),
    Fault(
        name="a boundary of several tracks for its senders",
        rule="XSHADOW is offered to peers only by a node without members",
        file="reception/hops.py",
        edits=(
            (
                "        return intake.policy.shadow_redundancy_enabled and not others\n",
                "        return True\n",
            ),
        ),
        test=_HOPS + "test_nothing_is_offered_where_there_are_members",
    ),
    Fault(
        name="what a hop has delivered is told no more once redundancy is off",
        rule="who handed a message over hears when the next hop has it",
        file="reception/hops.py",
        edits=(
            ("        return known or self._intakes.tracking\n", "        return self._intakes.tracking\n"),
        ),
        test=_HOPS + "test_what_was_handed_over_is_told_where_nothing_is_tracked_any_more",
    ),
    Fault(
        name="a damaged row says who hears of what",
        rule="a row that decides something is compared with its sum",
        file="database/hop_rows.py",
        edits=(("sound(handed_of, row)", "handed_of(row[:-1])"),),
        test="database/test_hop_rows.py::test_a_damaged_row_of_what_was_handed_over_tells_the_peer_nothing",
    ),
    Fault(
        name="a hop forgets what it took when it took it under another id of its own",
        rule="a lost reply between hops makes no duplicate",
        file="core/reception/redundancy.py",
        edits=(("    writes += [arrival.handed] if arrival.handed else []\n", ""),),
        test="core/reception/test_handed.py::test_a_message_that_is_handed_over_again_is_not_taken_again",
    ),
    Fault(
        name="a sender that keeps its copy waits for the next hop",
        rule="a peer that tracks its message is answered when this node has it",
        file="reception/intake.py",
        edits=(
            (
                "        waits = shadow is not None and handed is None\n",
                "        waits = shadow is not None\n",
            ),
        ),
        test="reception/test_hops.py::"
        "test_a_peer_that_tracks_its_message_keeps_its_copy_and_waits_for_no_next_hop",
    ),
)
