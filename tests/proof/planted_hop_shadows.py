"""Faults in the shadow queues of hops: what enters, what leaves, and what is sent again."""

from __future__ import annotations

from .planting import Fault

_KEPT = "our copy stays until the hop has delivered"
_WAY = "what a hop fails to deliver goes another way, once"
_WHO = "a hop is told to track only if it shows the pinned certificate"
_CORE = "core/delivery/test_hop_shadows.py::"
_REAL = "delivery/test_tracked_hops.py::"

HOP_SHADOWS = (
    Fault(
        name="what a hop takes does not enter its shadow queue",
        rule=_KEPT,
        file="core/delivery/settling.py",
        edits=(("    if hop.tracks is not None:\n", "    if False:\n"),),
        test=f"{_CORE}test_what_a_hop_takes_and_tracks_is_settled_and_enters_its_shadow_queue",
    ),
    Fault(
        name="Safety Net forgets what a hop has not delivered",
        rule=_KEPT,
        file="core/safety_net/expiry.py",
        edits=(
            (
                "        if ledger.hop_shadows_of(copy.id):\n            return Decision(False)\n        n",
                "        if False:\n            return Decision(False)\n        n",
            ),
        ),
        test=f"{_CORE}test_safety_net_keeps_what_a_hop_has_not_delivered_yet",
    ),
    Fault(
        name="a former owner drops the only copy of what a hop has",
        rule=_KEPT,
        file="core/reception/holding.py",
        edits=(("    if ledger.hop_shadows_of(copy.id):\n", "    if False:\n"),),
        test=f"{_CORE}test_a_former_owner_keeps_its_copy_until_no_hop_has_anything_of_the_message",
    ),
    Fault(
        name="a mended message forgets what hops have of it",
        rule=_KEPT,
        file="core/reception/holding.py",
        edits=(("DropDamaged(here.id, instead=here)", "DropDamaged(here.id)"),),
        test=f"{_CORE}test_a_good_copy_in_place_of_damaged_rows_leaves_what_hops_have_of_it",
    ),
    Fault(
        name="what a hop takes of a damaged message does not enter its shadow queue",
        rule=_KEPT,
        file="core/delivery/settling.py",
        edits=(("    if hop.tracks:\n", "    if False:\n"),),
        test=(
            f"{_CORE}test_what_a_hop_takes_while_rows_become_damaged_enters_its_queue_and_the_giver_hears_nothing"
        ),
    ),
    Fault(
        name="a row that cannot be believed keeps its message for ever",
        rule="a damaged row of a shadow queue goes by age",
        file="core/delivery/hop_shadows.py",
        edits=(("        if since <= before:\n", "        if False:\n"),),
        test=(
            "database/test_database_hop_shadows.py::"
            "test_a_row_that_is_not_believed_goes_by_age_and_its_message_with_it"
        ),
    ),
    Fault(
        name="what joins a damaged row hides what the hop had before",
        rule=_WAY,
        file="core/delivery/hop_shadows.py",
        edits=(("        if by.hop in ledger.hop_shadows_unsound(message_id):\n", "        if False:\n"),),
        test=(
            "database/test_database_hop_shadows.py::"
            "test_what_joins_a_row_that_is_not_believed_takes_every_relayed_recipient_along"
        ),
    ),
    Fault(
        name="a hop discards what another database of it had taken",
        rule=_KEPT,
        file="core/delivery/hop_shadows.py",
        edits=(("row is None or row.database_id != database_id or", "row is None or"),),
        test=f"{_CORE}test_another_database_of_the_hop_cannot_say_that_this_one_delivered",
    ),
    Fault(
        name="a notification without recipients discards them all",
        rule=_KEPT,
        file="core/delivery/hop_shadows.py",
        edits=(
            (
                "gone = set(row.recipients) & set(verdict.recipients)",
                "gone = set(row.recipients) & set(verdict.recipients or row.recipients)",
            ),
        ),
        test=f"{_CORE}test_a_notification_that_names_no_recipient_discards_nothing",
    ),
    Fault(
        name="the answer of a hop counts though its process has a successor",
        rule=_KEPT,
        file="core/members/hop_discards.py",
        edits=((" or peer.lineage.incarnation != answered.mark.incarnation:", ":"),),
        test=f"{_CORE}test_the_answer_of_a_process_that_has_a_successor_counts_for_nothing",
    ),
    Fault(
        name="events of a hop are not acknowledged",
        rule="a discard notification is applied durably, and then acknowledged",
        file="core/members/hop_discards.py",
        edits=(("after=peer.applied if peer else None", "after=None"),),
        test=f"{_CORE}test_an_answer_is_applied_with_how_far_it_goes_before_the_next_query_acknowledges_it",
    ),
    Fault(
        name="what joins a lost row hides the loss",
        rule=_WAY,
        file="core/delivery/hop_shadows.py",
        edits=(("    if loss_of(known, ledger.hop_peer(by.hop)):\n", "    if False:\n"),),
        test=f"{_CORE}test_what_joins_what_the_hop_has_lost_is_sent_again_with_it",
    ),
    Fault(
        name="a rolled-back hop counts as the one that took the mail",
        rule=_WAY,
        file="core/delivery/hop_shadows.py",
        edits=(("if continuity is Continuity.BROKEN else None", "if False else None"),),
        test=f"{_CORE}test_a_hop_that_is_back_with_another_state_gets_everything_again",
    ),
    Fault(
        name="mail is sent again though there is no other way",
        rule=_WAY,
        file="core/delivery/hop_shadows.py",
        edits=(
            ("reason is None or not (lost or ways)", "reason is None"),
            ("tuple(one for one in about if one.next_hop in ways)", "about"),
        ),
        test=f"{_CORE}test_a_silent_hop_is_waited_for_if_there_is_no_other_way",
    ),
    Fault(
        name="what was sent again stays in the shadow queue",
        rule=_WAY,
        file="core/delivery/hop_shadows.py",
        edits=(("Decision(made.id, left).after(queued)", "queued.but(made.id)"),),
        test=f"{_CORE}test_a_hop_that_is_back_with_another_state_gets_everything_again",
    ),
    Fault(
        name="other recipients of a message get the id of the first",
        rule=_WAY,
        file="core/delivery/hop_shadows.py",
        edits=(("row.message_id, row.database_id, numbers)", "row.message_id, row.database_id)"),),
        test=f"{_CORE}test_other_recipients_of_a_message_become_another_message",
    ),
    Fault(
        name="a hop is given up though it answered in between",
        rule="a hop is given up after so many failed heartbeats in a row",
        file="core/delivery/hop_watch.py",
        edits=(
            (
                "return HopWatch(self.name, max(asked_at, self.talked_at or asked_at))",
                "return replace(self, talked_at=max(asked_at, self.talked_at or asked_at))",
            ),
        ),
        test="core/delivery/test_hop_watch.py::test_an_answer_in_between_begins_the_count_anew",
    ),
    Fault(
        name="the new message goes to the hop that is given up",
        rule=_WAY,
        file="delivery/attempt.py",
        edits=(("        search.avoided = self._hosts.avoided(claimed.copy.id)\n", ""),),
        test=f"{_REAL}test_a_hop_that_is_given_up_is_passed_by_on_another_host",
    ),
    Fault(
        name="a message that goes past a host puts the whole next hop to rest",
        rule="the next hop fails when no host is left; here other mail has one",
        file="delivery/attempt.py",
        edits=(("if search.passed_by:", "if False:"),),
        test=f"{_REAL}test_a_message_without_another_host_waits_alone_until_the_avoided_one_takes_mail",
    ),
    Fault(
        name="a message goes past the only host for ever",
        rule=_WAY,
        file="delivery/hosts.py",
        edits=(
            ("            return {}\n        return {address", "            pass\n        return {address"),
        ),
        test=f"{_REAL}test_a_message_goes_past_no_host_where_there_is_no_other",
    ),
    Fault(
        name="a message goes past a host that takes mail again, though no other takes it",
        rule=_WAY,
        file="delivery/hosts.py",
        edits=(("self.avoided.items() if not takes}", "self.avoided.items()}"),),
        test=f"{_REAL}test_a_message_without_another_host_waits_alone_until_the_avoided_one_takes_mail",
    ),
    Fault(
        name="a hop is not found any more when its route was renamed",
        rule=_WAY,
        file="delivery/hop_shadows.py",
        edits=(("        if self.hosts.ways(next_hop):\n", "        if True:\n"),),
        test=f"{_REAL}test_a_hop_is_found_and_passed_by_though_its_route_was_renamed",
    ),
    Fault(
        name="a damaged content is sent again",
        rule="no content leaves that differs from its digest",
        file="core/delivery/hop_shadows.py",
        edits=((" or row.message_id in unsound:", ":"),),
        test=f"{_CORE}test_a_content_that_is_not_good_goes_nowhere",
    ),
    Fault(
        name="any certificate will do",
        rule=_WHO,
        file="smtp/sending/tls.py",
        edits=(
            (
                "if certificate is None or certificate not in pinned.peers:",
                "certificate = next(iter(pinned.peers))\n    if certificate not in pinned.peers:",
            ),
        ),
        test=f"{_REAL}test_a_hop_that_does_not_show_the_pinned_certificate_gets_nothing",
    ),
    Fault(
        name="a hop may have another name than its certificate",
        rule=_WHO,
        file="smtp/sending/tracked.py",
        edits=(("    if theirs.name != connection.peer:\n", "    if False:\n"),),
        test=f"{_REAL}test_a_hop_with_the_name_of_another_one_gets_nothing",
    ),
    Fault(
        name="the mark of the hop stays in the reply that is kept",
        rule="replies are kept as the hop gave them",
        file="smtp/sending/connection.py",
        edits=(
            (
                "            reply, self.mark = unmarked(reply)\n",
                "            _, self.mark = unmarked(reply)\n",
            ),
        ),
        test=f"{_REAL}test_our_copy_is_the_shadow_of_the_hop_until_the_hop_has_delivered",
    ),
    Fault(
        name="a session ends without asking what the hop delivered",
        rule="a hop is asked at the end of each session",
        file="smtp/sending/session.py",
        edits=(("        if self.owes:\n            await self.ask()\n", ""),),
        test=f"{_REAL}test_a_session_asks_before_it_says_quit",
    ),
    Fault(
        name="a look at the queue of a working hop reads every copy",
        rule="a long shadow queue costs little while its hop works",
        file="core/delivery/hop_shadows.py",
        edits=(("    if reason is None or not (lost or ways):\n", "    if False:\n"),),
        test=f"{_CORE}test_a_look_at_the_queue_of_a_working_hop_reads_no_copy",
    ),
    Fault(
        name="a hop that tracks nothing now is told to track",
        rule=_WHO,
        file="smtp/sending/session.py",
        edits=(("        if not tracked.may_track(connection):\n", "        if False:\n"),),
        test=f"{_REAL}test_a_hop_that_tracks_no_more_tells_what_it_delivered_and_gets_ordinary_mail",
    ),
    Fault(
        name="a hop that is back still counts as given up",
        rule="a hop is given up after so many failed heartbeats in a row",
        file="delivery/hop_talk.py",
        edits=(("            self.watches[name] = self.watch(name).answered(began)\n\n", "\n"),),
        test=f"{_REAL}test_a_hop_that_was_given_up_and_is_back_keeps_what_it_takes",
    ),
)
