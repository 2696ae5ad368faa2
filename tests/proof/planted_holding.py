"""Faults on the holder's side: copies, greetings, discards, promotion and the swap of roles."""

from __future__ import annotations

from .planting import Fault

_CLAIMS = "core/members/test_claims.py::"

HOLDING = (
    Fault(
        name="the holder answers 250 before its commit",
        rule="a message answered 250 has two durable copies",
        file="members/answering.py",
        edits=(
            (
                "        held, stored = await self._answering.database.transact_briefly(work)\n",
                "        import asyncio\n"
                "        self.later = asyncio.ensure_future(self._answering.database.transact(work))\n"
                "        held, stored = OfferAnswer.QUEUED, True\n",
            ),
        ),
        test="test_persist_then_speak.py::test_a_copy_that_could_not_be_written_is_not_acknowledged",
    ),
    Fault(
        name="a reply announces what is not committed yet",
        rule="only committed sequences are ever announced",
        file="members/answering.py",
        edits=(
            (
                "        return self.database.lineage.mark\n",
                "        return self.database.ledger.lineage.mark\n",
            ),
        ),
        test="test_persist_then_speak.py::"
        "test_a_reply_is_marked_with_what_is_committed_and_not_with_what_may_never_be",
    ),
    Fault(
        name="a greeting is answered before it is written down",
        rule="each member durably remembers the highest that it saw of every other",
        file="members/answering.py",
        edits=(
            (
                "        await self._meet(theirs)\n        self.boundary.called",
                "        answer = await self.database.transact("
                "lambda ledger: introduce(ledger, theirs.name))\n"
                "        import asyncio\n"
                "        self.later = asyncio.ensure_future(self._meet(theirs))\n"
                "        self.boundary.called",
            ),
            (
                "        ours = await self.database.transact("
                "lambda ledger: introduce(ledger, theirs.name))\n",
                "        ours = answer\n",
            ),
        ),
        test="test_persist_then_speak.py::test_a_greeting_that_could_not_be_written_is_not_answered",
    ),
    Fault(
        name="a late question of a process that has a successor counts",
        rule="what a process says counts until its successor introduces itself",
        file="core/members/conversation.py",
        edits=(("    if _has_successor(ledger, asker):\n        return QueryResponse(())\n", ""),),
        test="core/members/test_conversation.py::"
        "test_a_question_of_a_process_that_has_a_successor_counts_for_nothing",
    ),
    Fault(
        name="a late answer of a process that has a successor counts",
        rule="what a process says counts until its successor introduces itself",
        file="core/members/conversation.py",
        edits=(("    if _has_successor(ledger, speaker):\n        return False\n", ""),),
        test="core/members/test_conversation.py::test_an_answer_of_a_process_that_has_a_successor_counts_for_nothing",
    ),
    Fault(
        name="a late greeting of a database that was replaced is believed",
        rule="a word of a database that another one took the place of proves nothing",
        file="core/ownership/heartbeat.py",
        edits=(
            (
                "    if found.incarnation == replaced and not _is_same(asked_at, former):",
                "    if False:",
            ),
        ),
        test="core/ownership/test_heartbeat.py::"
        "test_a_late_greeting_of_a_database_that_another_took_the_place_of_breaks_nothing",
    ),
    Fault(
        name="who was replaced is not believed when it answers",
        rule="a word of a database that another one took the place of proves nothing",
        file="core/ownership/heartbeat.py",
        edits=((" and not _is_same(asked_at, former):", ":"),),
        test="core/ownership/test_heartbeat.py::"
        "test_who_answers_when_we_know_of_both_is_the_one_that_lives[put back]",
    ),
    Fault(
        name="REVOKE is answered before its tombstone is committed",
        rule="a revoke that was confirmed is durable",
        file="members/answering.py",
        edits=(
            (
                "        said = await self.database.transact(\n",
                "        import asyncio\n"
                "        from shadowrelay.core.members.conversation import Line\n"
                "        from shadowrelay.core.decisions import VerdictKind, Verdict\n"
                "        said = QueryResponse(())\n"
                "        if (gone := query.revoke) is not None:\n"
                "            verdict = Verdict(gone.message_id, gone.epoch, VerdictKind.REJECTED)\n"
                "            said = QueryResponse((Line(None, verdict),))\n"
                "        self.later = asyncio.ensure_future(self.database.transact(\n",
            ),
            (
                "sighted, self.policy, now, closed=closed\n            )\n        )\n",
                "sighted, self.policy, now, closed=closed\n            )\n        ))\n",
            ),
        ),
        test="test_persist_then_speak.py::test_a_revoke_that_could_not_be_written_is_not_confirmed",
    ),
    Fault(
        name="a revoked copy is dropped without a tombstone",
        rule="a body still on its way must not become a copy after the revoke",
        file="core/reception/holding.py",
        edits=(
            (
                "return Decision(confirmed, (tombstone, *released.writes)",
                "return Decision(confirmed, (*released.writes,)",
            ),
        ),
        test="core/reception/test_holding.py::test_revoke_drops_the_copy_and_refuses_it_for_ever",
    ),
    Fault(
        name="events count as applied before they are",
        rule="AFTER acknowledges what is applied durably here",
        file="members/link.py",
        edits=(
            (
                "        more = await Transact(apply)\n",
                "        from shadowrelay.core.events.discard import applied\n"
                "        from shadowrelay.core.identifiers import Mark\n"
                "        last = max((line.event or 0 for line in answered.lines), default=0)\n"
                "        upto = Mark(answered.mark.incarnation, last)\n"
                "        await Transact(lambda ledger, upto=upto: ledger.apply(\n"
                "            applied(ledger, member.name, upto)))\n"
                "        more = await Transact(apply)\n",
            ),
        ),
        test="members/test_link_steps.py::test_events_and_how_far_they_are_applied_are_one_transaction",
    ),
    Fault(
        name="a member's lineage is not looked at when it calls",
        rule="a broken lineage promotes at first contact",
        file="members/answering.py",
        edits=(("        await self._meet(theirs)\n        self.boundary", "        self.boundary"),),
        test="smtp/test_member_session.py::test_a_member_that_introduces_itself_with_a_broken_lineage_is_noticed",
    ),
    Fault(
        name="a broken lineage passes for a silent owner that is back",
        rule="a broken lineage promotes at first contact",
        file="core/ownership/heartbeat.py",
        edits=(("    if former is None or continuity is not Continuity.BROKEN:\n", "    if True:\n"),),
        test="members/test_link.py::test_a_member_that_comes_back_with_another_database_loses_its_copies_to_us",
    ),
    Fault(
        name="the second opinion is ignored",
        rule="no promotion by time while another member is in contact with the owner",
        file="members/link.py",
        edits=(
            (
                "            if answered.seen == member:\n",
                "            if False:\n",
            ),
        ),
        test="members/test_link_steps.py::"
        "test_nothing_is_promoted_while_another_member_is_in_contact_with_the_owner",
    ),
    Fault(
        name="a node that is opening says what it knows",
        rule="until the opening ends questions hear pending",
        file="core/members/conversation.py",
        edits=(("    closed = closed or chores.closed(ledger)\n", "    closed = False\n"),),
        test="smtp/test_member_session.py::test_a_node_that_is_opening_greets_and_says_and_takes_nothing",
    ),
    Fault(
        name="a node that is opening takes copies",
        rule="until the opening ends offers are answered 451",
        file="members/answering.py",
        edits=(
            (
                "        if self._opening() or chores.takes_no_copies(self.database.ledger):\n",
                "        if False:\n",
            ),
        ),
        test="smtp/test_member_session.py::test_a_node_that_is_opening_greets_and_says_and_takes_nothing",
    ),
    Fault(
        name="what is left of a chore is not written down",
        rule="what is done in parts is found again by the next start",
        file="core/ownership/chores.py",
        edits=(
            (
                "    if left := _part_of(ledger, chore):\n",
                "    if _part_of(ledger, chore) and (left := None):\n",
            ),
        ),
        test="database/test_database_opening.py::"
        "test_a_long_queue_is_marked_part_by_part_and_nothing_is_sent_before_the_last_one",
    ),
    Fault(
        name="the queue goes on while it is being marked",
        rule="nothing is sent before it is written down everywhere what is asked about",
        file="database/queue.py",
        edits=(("    if chores.held_back(ledger):\n        return []\n", ""),),
        test="database/test_database_opening.py::"
        "test_a_long_queue_is_marked_part_by_part_and_nothing_is_sent_before_the_last_one",
    ),
    Fault(
        name="an opening that a kill cut short counts as a presence",
        rule="one that was away too long sets aside what nobody confirms",
        file="database/opening.py",
        edits=(("    if left is None:\n        ledger", "    if True:\n        ledger"),),
        test="database/test_database_opening.py::"
        "test_an_opening_that_a_kill_cut_short_is_found_by_the_next_one_and_was_no_presence",
    ),
    Fault(
        name="an opening may take as long as it likes",
        rule="past its deadline the process ends",
        file="service/opening.py",
        edits=(
            (
                "        async with asyncio.timeout(limit):\n",
                "        async with asyncio.timeout(5 * limit):\n",
            ),
        ),
        test="service/test_opening.py::test_an_opening_that_takes_too_long_ends_the_node",
    ),
    Fault(
        name="what comes during a snapshot is not listed",
        rule="a snapshot lists whatever is in transit when it ends",
        file="database/listing.py",
        edits=(("                    yield write.after\n", "                    yield from ()\n"),),
        test="database/test_database_ledger.py::"
        "test_a_long_snapshot_is_taken_in_parts_and_lists_what_comes_meanwhile",
    ),
    Fault(
        name="what was undone counts",
        rule="counts are of what is durable",
        file="database/group_commit.py",
        edits=(("    ledger.tally.undo(counted)\n", ""),),
        test="database/test_tally.py::test_what_is_undone_does_not_count[True]",
    ),
    Fault(
        name="contact is not looked at again when the promotion commits",
        rule="an owner that is heard of meanwhile stays the owner",
        file="members/link.py",
        edits=(("        if not silent():\n            return 0, None\n", ""),),
        test="members/test_link_steps.py::"
        "test_nothing_is_promoted_when_the_owner_was_heard_of_while_the_others_were_asked",
    ),
    Fault(
        name="a promotion does not wait for the answers",
        rule="a promotion is pending, durably, until all in reach were asked",
        file="core/members/concluding.py",
        edits=(("    return reachable - {question.taken_from} <= by\n", "    return True\n"),),
        test=_CLAIMS + "test_nothing_is_promoted_before_every_member_in_reach_was_asked",
    ),
    Fault(
        name="every holder promotes, whatever its rank",
        rule="of several holders the lowest rank promotes",
        file="core/members/claims.py",
        edits=(
            (
                "    return (int(verdict.argument), speaker.name) < (_order(copy), ledger.name)\n",
                "    return False\n",
            ),
        ),
        test=_CLAIMS + "test_of_two_holders_the_lower_rank_promotes_and_the_other_becomes_its_holder",
    ),
    Fault(
        name="a take over does not tell the other holders",
        rule="every possible holder is told who owns the message now",
        file="core/ownership/transfer.py",
        edits=(
            ("    told = [holder.database_id for holder in fellows]\n", "    told: list[DatabaseId] = []\n"),
        ),
        test=_CLAIMS + "test_of_two_holders_the_lower_rank_promotes_and_the_other_becomes_its_holder",
    ),
    Fault(
        name="a take over does not tell the former owner",
        rule="a returning owner must learn that it owns the message no more",
        file="core/ownership/transfer.py",
        edits=(("        told.append(copy.owner_database)\n", "        pass\n"),),
        test="core/ownership/test_transfer.py::test_promotion_raises_the_epoch_and_tells_the_former_owner",
    ),
    Fault(
        name="roles are swapped without what is settled here",
        rule="half a message delivered is half a message discarded",
        file="core/ownership/transfer.py",
        edits=(
            (
                "delivered(held, settled) + orders(held, held.unsettled), now),\n",
                "orders(held, held.unsettled), now),\n",
            ),
        ),
        test="core/ownership/test_transfer.py::test_what_was_settled_here_travels_to_the_new_owner",
    ),
    Fault(
        name="an owner yields to hearsay of another of the same epoch",
        rule="of two owners of one epoch, one alone yields",
        file="core/members/questions.py",
        edits=(("speaker.name == (owner if copy.owned else copy.owner)\n", "copy.owned\n"),),
        test="core/ownership/test_transfer.py::test_an_owner_yields_at_equal_epoch_to_the_rival_itself_and_asks_after_hearsay",
    ),
    Fault(
        name="a holder takes a reference from a member that is neither owner nor holder of the original",
        rule="no member can read mail by guessing ids",
        file="core/reception/by_reference.py",
        edits=(
            (
                "    return asker in {original.owner, *(holder.name for holder in original.holders)}\n",
                "    return True\n",
            ),
        ),
        test="members/test_content_by_reference.py::"
        "test_a_member_that_does_not_have_a_message_cannot_get_it_by_its_id",
    ),
    Fault(
        name="a holder refers to stored octets without comparing them",
        rule="nothing whose digest was not compared counts as a copy",
        file="members/answering.py",
        edits=(
            (
                "        return found if await examiner.look(found.id) is Finding.SOUND else None\n",
                "        return found\n",
            ),
        ),
        test="members/test_content_by_reference.py::test_a_holder_whose_original_is_damaged_is_sent_the_content",
    ),
    Fault(
        name="a holder does not say who told it of a delivery",
        rule="what was told is compared with the log of who told it",
        file="core/reception/holding.py",
        edits=(
            (
                "reason=reason, told_by=told_by, mark=mark)",
                'reason=reason, told_by="", mark=mark)',
            ),
        ),
        test="core/members/test_questions.py::"
        "test_the_row_of_what_was_told_says_by_which_database_and_how_far_its_log_had_got",
    ),
)
