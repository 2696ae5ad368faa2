"""Faults in delayed acknowledgement: what waits, what is skipped, and what counts as a repeat."""

from __future__ import annotations

from .planting import Fault

_CORE = "core/reception/acknowledging.py"
_RULES = "core/reception/test_acknowledging.py::"
_WAITS = "reception/test_delayed_acknowledgement.py::"
_KILLED = "service/test_killed_before_the_250.py::"
_REPEATS = "a repeat is one only of a message whose 250 was never written"

ACKNOWLEDGING = (
    Fault(
        name="a node alone says 250 before the next hop has the message",
        rule="with no second copy the 250 waits until every next hop has the message",
        file="reception/acknowledgements.py",
        edits=(("                await self._due.wait()\n", "                return\n"),),
        test=f"{_WAITS}test_the_250_waits_until_the_next_hop_has_the_message",
    ),
    Fault(
        name="one next hop of several is enough for a delayed 250",
        rule="with no second copy the 250 waits until every next hop has the message",
        file=_CORE,
        edits=(
            (
                "    if not copy.exposed:\n",
                "    if not copy.exposed or any(r.settled for r in copy.recipients):\n",
            ),
        ),
        test=f"{_WAITS}test_other_sessions_go_on_while_one_waits",
    ),
    Fault(
        name="a delayed 250 waits for a next hop that has failed",
        rule="a target queue in retry is not waited for",
        file=_CORE,
        edits=(("    if any(one.retrying for one in targets):\n", "    if False:\n"),),
        test=f"{_WAITS}test_when_the_queue_goes_into_retry_waiting_and_later_messages_are_answered_at_once",
    ),
    Fault(
        name="a delayed 250 goes on to wait when the next hop fails",
        rule="a queue that goes into retry is waited for no longer",
        file="delivery/queue.py",
        edits=(("            self.failed(claimed.next_hop)\n", "            pass\n"),),
        test=f"{_WAITS}test_a_failed_attempt_answers_all_that_wait_for_that_hop",
    ),
    Fault(
        name="a long queue is waited for as soon as it has a hundred messages",
        rule="the delay is skipped until the queue has fewer than a hundred messages",
        file=_CORE,
        edits=((" or (self.long and self.messages == LONG)", ""),),
        test=f"{_RULES}test_a_queue_that_was_long_is_long_until_it_has_fewer_than_a_hundred_messages",
    ),
    Fault(
        name="a message to a list is promoted to a server that does not know the list",
        rule="a list is expanded where it is known",
        file=_CORE,
        edits=((" and LISTS not in hops\n", "\n"),),
        test=f"{_RULES}test_a_message_with_a_list_of_ours_is_not_promoted",
    ),
    Fault(
        name="promoted mail skips the journal",
        rule="each accepted message has a copy in the journal of its routes",
        file="settings/routing.py",
        edits=((" if wanted <= {journal.get(server)}]", "]"),),
        test="settings/test_hop_settings.py"
        "::test_only_a_server_with_the_same_journal_takes_a_message_in_place_of_a_slow_one",
    ),
    Fault(
        name="a queue is counted though its 250 does not wait anyway",
        rule="reception reads no more than it has to know",
        file=_CORE,
        edits=(("    if all(one.ready for one in targets):\n", "    if True:\n"),),
        test=f"{_RULES}test_the_target_queue_is_not_counted_where_the_250_does_not_wait_anyway",
    ),
    Fault(
        name="recipients of a queue count as messages",
        rule="the delay is skipped for more than a hundred messages",
        file="database/ledger.py",
        edits=(("if len(rows) == most > len(set(rows)):", "if False:"),),
        test="database/test_database_ledger.py"
        "::test_messages_for_a_next_hop_are_counted_though_they_have_many_recipients",
    ),
    Fault(
        name="with promotion only a long queue is too slow",
        rule="with promotion any message in the target queue promotes the next ones",
        file=_CORE,
        edits=(("not one.ready or one.messages for", "not one.ready or one.stays_long for"),),
        test=f"{_RULES}test_with_promotion_another_server_is_taken_in_place_of_a_slow_queue",
    ),
    Fault(
        name="what a client sent is forgotten before its 250",
        rule="a message whose process was killed before its 250 counts as never answered",
        file=_CORE,
        edits=(("(Unacknowledged(arrival.id, asked.sent, now),) if known else ()", "()"),),
        test=f"{_KILLED}test_killed_after_the_delivery_nothing_is_delivered_again",
    ),
    Fault(
        name="a 250 that was written does not end what a repeat is",
        rule=_REPEATS,
        file=_CORE,
        edits=(("    return Decision(None, (Acknowledged(message_id),))\n", "    return Decision(None)\n"),),
        test=f"{_KILLED}test_killed_after_the_delivery_nothing_is_delivered_again",
    ),
    Fault(
        name="a 250 to a client that has gone counts as written",
        rule=_REPEATS,
        file="smtp/receiving/conversation.py",
        edits=(
            (
                "            said = not self._lost.is_set() and (there or not duplex.over)\n        finally:",
                "            said = True\n        finally:\n            said = True",
            ),
        ),
        test=f"{_WAITS}test_a_client_that_vanished_repeats_what_is_still_queued",
    ),
    Fault(
        name="equal messages at the same time are taken for repeats",
        rule=_REPEATS,
        file=_CORE,
        edits=(
            (
                "None if message_id in asked.speaking else ledger.copy(message_id)",
                "ledger.copy(message_id)",
            ),
        ),
        test=f"{_WAITS}test_the_same_octets_in_two_sessions_at_a_time_are_two_messages",
    ),
    Fault(
        name="a repeat is known by its content alone",
        rule="a repeat has the same client, envelope and content",
        file="reception/acknowledgements.py",
        edits=(
            (
                "AsSent(client, of_envelope(self.mail.envelope(), said), content.value)",
                'AsSent("", content.value, content.value)',
            ),
        ),
        test=f"{_WAITS}test_a_repeat_has_the_same_client_envelope_content_and_day",
    ),
    Fault(
        name="recipients that failed are skipped in a repeat",
        rule="only recipients that have the message, or get it from here, are skipped",
        file=_CORE,
        edits=(
            (
                "        again = tuple(one for one in original.recipients if one.status is Status.FAILED)\n",
                "        again: tuple[Recipient, ...] = ()\n",
            ),
        ),
        test=f"{_WAITS}test_only_recipients_that_failed_are_tried_again",
    ),
)
