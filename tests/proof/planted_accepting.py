"""Faults on the owner's side, from MAIL to the reply after the content, and in the repair of exposure."""

from __future__ import annotations

from .planting import Fault

_LOSES = "a message answered 250 has two durable copies"
_REFUSED = "after a 4yz nobody may deliver the message"
_NOTHING = "a connection lost before the dot leaves nothing on any node"

ACCEPTING = (
    Fault(
        name="250 before the local commit",
        rule=_LOSES,
        file="reception/intake.py",
        edits=(
            (
                "        performer = Performer(\n            transact=intake.database.transact_briefly,\n",
                "        async def early(work):\n"
                "            self.later = asyncio.ensure_future(intake.database.transact(work))\n"
                "            return Answer.ACCEPTED\n\n"
                "        performer = Performer(\n            transact=early,\n",
            ),
        ),
        test="test_persist_then_speak.py::test_a_message_that_could_not_be_written_here_is_answered_by_nothing",
    ),
    Fault(
        name="the local commit before the shadow's answer",
        rule="a local row means that a copy exists elsewhere",
        file="reception/two_copies.py",
        edits=(
            (
                "        step = offer(",
                "        first = (OfferAttempt(member, Leg.LOST, len(attempts) + 1, ''),)\n"
                "        await Transact(lambda ledger: ledger.apply(accept(\n"
                "            ledger, arrival, content, first, Policy(), clock(), last_resort=True)))\n"
                "        step = offer(",
            ),
        ),
        test="reception/test_intake.py::test_the_250_waits_for_the_holder",
    ),
    Fault(
        name="the first candidate's silence counts as its answer",
        rule=_LOSES,
        file="smtp/members/offer.py",
        edits=(
            (
                "        return self._attempt("
                "Leg.LOST if self._ended else Leg.REFUSED, str(failed), concern=concern)",
                "        mark = self._session.greeting.lineage.mark\n"
                "        return self._attempt(Leg.ACKNOWLEDGED, str(failed), mark)",
            ),
        ),
        test="smtp/test_member_client.py::test_a_holder_that_never_answers_may_have_a_copy",
    ),
    Fault(
        name="451 before the copies are revoked",
        rule=_REFUSED,
        file="reception/two_copies.py",
        edits=(
            (
                "    return Decided(await take_back(arrival, attempts))\n",
                "    return Decided(Answer.NOT_REDUNDANT)\n",
            ),
        ),
        test="reception/test_intake.py::test_a_holder_that_never_answers_is_revoked_before_the_451",
    ),
    Fault(
        name="451 after a revoke that nobody confirmed",
        rule=_REFUSED,
        file="reception/two_copies.py",
        edits=(("            return Answer.HANG_UP\n", "            continue\n"),),
        test="reception/test_intake.py::test_without_a_confirmed_revoke_the_sender_hears_nothing",
    ),
    Fault(
        name="451 after the own commit failed",
        rule=_REFUSED,
        file="smtp/receiving/content.py",
        edits=(
            (
                '            log.exception("sink_finish_failed")\n            return Hangup()\n',
                '            log.exception("sink_finish_failed")\n            return [LOCAL_ERROR]\n',
            ),
        ),
        test="test_persist_then_speak.py::test_a_message_that_could_not_be_written_here_is_answered_by_nothing",
    ),
    Fault(
        name="the end of a copy is noted after it was sent",
        rule="what may be held elsewhere is revoked, or told of the outcome",
        file="smtp/members/offer.py",
        edits=(
            (
                "                self._ended = True\n                promised",
                "                promised",
            ),
            (
                'LAST{promised}\\r\\n".encode(), self._block)\n',
                'LAST{promised}\\r\\n".encode(), self._block)\n                self._ended = True\n',
            ),
        ),
        test="smtp/test_member_client.py::test_once_the_end_was_begun_to_be_sent_there_may_be_a_copy",
    ),
    Fault(
        name="half a body is ended as if it were whole",
        rule=_NOTHING,
        file="reception/shadow_session.py",
        edits=(
            (
                "            session.abort()\n        elif",
                "            asyncio.ensure_future(self._offering.finish())\n        elif",
            ),
        ),
        test="reception/test_intake.py::test_a_connection_lost_before_the_end_leaves_nothing_on_any_node[streaming]",
    ),
    Fault(
        name="a lost connection before the dot counts as the end",
        rule=_NOTHING,
        file="smtp/receiving/session.py",
        edits=(
            ("            await transaction.body.abort()\n", "            await transaction.body.finish()\n"),
        ),
        test="reception/test_intake.py::test_a_connection_lost_before_the_end_leaves_nothing_on_any_node[small]",
    ),
    Fault(
        name="a reset keeps half a transaction",
        rule=_NOTHING,
        file="smtp/receiving/session.py",
        edits=(("            await transaction.body.abort()\n", "            pass\n"),),
        test="smtp/test_member_session.py::test_a_reset_between_chunks_leaves_nothing",
    ),
    Fault(
        name="a message being decided on is called unknown",
        rule="an id in flight is left out of the answer",
        file="reception/intake.py",
        edits=(
            (
                "        intake, members = self._intake, self._intake.members\n"
                "        self._intake.in_flight.add(self._arrival.id)\n",
                "        intake, members = self._intake, self._intake.members\n"
                "        self._intake.in_flight.discard(self._arrival.id)\n",
            ),
        ),
        test="test_persist_then_speak.py::"
        "test_while_a_message_is_decided_on_its_owner_does_not_call_it_unknown[small]",
    ),
    Fault(
        name="what arrived is left behind when a holder could not be offered it",
        rule=_REFUSED,
        file="reception/intake.py",
        edits=(("            await intake.database.transact_briefly(self._forget)\n", ""),),
        test="reception/test_intake.py::"
        "test_a_content_that_cannot_be_read_for_its_holder_is_not_accepted_and_nothing_is_left_of_it"
        "[for the second one]",
    ),
    Fault(
        name="what was known of the holder before it was offered the copy decides",
        rule="an acknowledgement counts only on an unbroken lineage",
        file="running.py",
        edits=(
            (
                "                arriving = self.transact(work)\n",
                "                known = self.known(offered.to)\n"
                "                arriving = self.transact(work)\n",
            ),
            ("attempt, self.known(offered.to))", "attempt, known)"),
        ),
        test="reception/test_intake.py::"
        "test_an_acknowledgement_whose_database_is_gone_when_it_is_read_does_not_count",
    ),
    Fault(
        name="a node goes on when a message could not be recorded behind its 250",
        rule=_LOSES,
        file="reception/intake.py",
        edits=(
            (
                "if isinstance(error := recording.exception(), Exception):",
                "if recording.exception() is False:",
            ),
        ),
        test="reception/test_intake.py::"
        "test_a_message_that_cannot_be_recorded_behind_its_250_ends_the_node_and_stays_on_its_disk",
    ),
    Fault(
        name="a session is used before the greeting is written down",
        rule="an acknowledgement counts only on an unbroken lineage",
        file="core/greeting.py",
        edits=(
            (
                "    await Transact(lambda ledger: met(ledger, greeting, clock(), "
                "after_silence=silent, asked_at=asked_at))\n",
                "    del silent\n",
            ),
        ),
        test="test_persist_then_speak.py::"
        "test_a_session_is_not_used_before_what_the_member_said_of_itself_is_written",
    ),
    Fault(
        name="a copy is offered again before its rank is written down",
        rule="every possible holder is on record before it can hold anything",
        file="members/repair.py",
        edits=(
            (
                "            copy = ledger.apply(reserve_rank(ledger, message_id, member))\n",
                "            copy = reserve_rank(ledger, message_id, member).then\n",
            ),
        ),
        test="members/test_repair_steps.py::"
        "test_the_rank_of_an_offer_and_who_may_hold_it_are_written_down_before_it_is_made",
    ),
    Fault(
        name="nobody looks for messages that are exposed",
        rule="always two copies in transit",
        file="members/repair.py",
        edits=(("        self._found.extend(found)\n", ""),),
        test="members/test_repair.py::test_an_exposed_message_gets_a_second_copy_when_a_member_is_there",
    ),
    Fault(
        name="two offers to one database leave two holders",
        rule="a database is one holder, with the rank that it was offered last",
        file="core/reception/redundancy.py",
        edits=(("tuple({holder.database_id: holder for holder in found}.values())", "tuple(found)"),),
        test="core/reception/test_redundancy.py::test_two_offers_to_one_database_leave_one_holder_with_the_last_rank",
    ),
)
