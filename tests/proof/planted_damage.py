"""Faults in what keeps damage from being sent, promoted, counted, or taken for something else."""

from __future__ import annotations

from .planting import Fault

_UNVERIFIED = "nothing unverified leaves"
_BELIEVED = "a row is believed if its sum is right"
_FETCHED = "a good copy is fetched before a message is set aside"
_DAMAGE = "members/test_mend.py::"
_A_FILE = _DAMAGE + "test_a_damaged_content_is_fetched_and_leaves_as_it_was_accepted[one bit flipped]"
_A_ROW = _DAMAGE + "test_a_damaged_row_damages_that_message_alone_and_is_restored"
_FLIPS = "database/test_flips.py::test_a_flipped_bit_of_each_column_is_found_or_does_no_harm"
_AGAIN = "members/test_events_again.py::"
_CORE = "core/members/test_damage_rules.py::"
_OFFERED = "smtp/test_member_dialogues.py::test_the_dialogue_goes_as_it_is_written[hold_and_discard]"

DAMAGE = (
    Fault(
        name="a row is believed whatever its sum says",
        rule=_BELIEVED,
        file="database/sums.py",
        edits=(
            (
                "        return make(believed(row[:-1], row[-1], old=True))\n"
                "    except (Unbelievable, *IMPOSSIBLE):\n",
                "        return make(row[:-1])\n    except (Unbelievable, *IMPOSSIBLE):\n",
            ),
        ),
        test=_FLIPS + "[tombstone]",
    ),
    Fault(
        name="a sum leaves out what identifies its row",
        rule=_BELIEVED,
        file="database/sums.py",
        edits=(("ascii(columns)", "ascii(columns[1:])"),),
        test=_FLIPS + "[outcome]",
    ),
    Fault(
        name="a wrong sum is made right when members are to be asked",
        rule=_BELIEVED,
        file="database/queries.sql",
        edits=(
            (
                "       asked_sum = iif(asked_sum = row_sum(hex(id), confirmation, confirm_since, "
                "check_at),\n                       row_sum(hex(id), 'ask', ?1, check_at), asked_sum)\n",
                "       asked_sum = row_sum(hex(id), 'ask', ?1, check_at)\n",
            ),
        ),
        test=_FLIPS + "[message]",
    ),
    Fault(
        name="a scrub reads messages alone",
        rule="a scrub reads every row",
        file="members/scrub.py",
        edits=(("        await self._compare_rows()\n", ""),),
        test=_AGAIN + "test_a_scrub_finds_a_damaged_event_whoever_it_is_for[recipients = '3']",
    ),
    Fault(
        name="a discard event is told whatever its sum says",
        rule=_BELIEVED,
        file="database/event_rows.py",
        edits=(("sums.sound(records.event_of, row)", "sums.readable(records.event_of, row[:-1])"),),
        test=_AGAIN + "test_the_holder_of_a_damaged_event_learns_what_was_delivered_and_nothing_else"
        "[another recipient]",
    ),
    Fault(
        name="a damaged discard event is dropped",
        rule="what a damaged discard event said is said again",
        file="core/events/again.py",
        edits=(("        writes += addressed([event.addressee], _verdicts(ledger, event), now)\n", ""),),
        test=_AGAIN + "test_the_holder_of_a_damaged_event_learns_what_was_delivered_and_nothing_else"
        "[no kind at all]",
    ),
    Fault(
        name="a holder acknowledges what differs from its digest",
        rule="the holder compares both digests before it acknowledges",
        file="members/answering.py",
        edits=(("        return envelope or content\n", "        return False\n"),),
        test=_OFFERED,
    ),
    Fault(
        name="a holder compares the content alone",
        rule="the holder compares both digests before it acknowledges",
        file="members/answering.py",
        edits=(("        return envelope or content\n", "        return content\n"),),
        test=_OFFERED,
    ),
    Fault(
        name="a file is sent as the disk has it",
        rule=_UNVERIFIED,
        file="database/content.py",
        edits=(
            (
                "    if found.value != digest:\n"
                '        raise ContentDamaged("the octets differ from the digest")\n'
                "    if held:\n",
                "    if held:\n",
            ),
        ),
        test=_A_FILE,
    ),
    Fault(
        name="a body in the database is sent as it is",
        rule=_UNVERIFIED,
        file="database/content.py",
        edits=(("    if of_content(content.data) != digest:\n", "    if False:\n"),),
        test=_DAMAGE + "test_a_damaged_body_in_the_database_is_fetched_too",
    ),
    Fault(
        name="the last of a file leaves before it is compared",
        rule=_UNVERIFIED,
        file="database/content.py",
        edits=(("            held = block\n", "            yield block\n"),),
        test="database/test_database_content.py::test_the_last_octets_wait_for_the_comparison",
    ),
    Fault(
        name="what members answered about a damage is kept for the next one",
        rule=_FETCHED,
        file="members/mend.py",
        edits=(
            (
                "                self._forget(message_id)\n            await",
                "                pass\n            await",
            ),
        ),
        test=_DAMAGE + "test_what_is_damaged_a_second_time_is_asked_of_everybody_again",
    ),
    Fault(
        name="of two reports with one id a holder keeps the first",
        rule="a copy that counts is one of what its owner has",
        file="core/reception/holding.py",
        edits=((" or _another(known, offer.digests)", ""),),
        test="core/reception/test_holding.py::"
        "test_the_copy_of_a_report_that_two_members_made_becomes_that_of_the_later_owner",
    ),
    Fault(
        name="a file that is gone puts its message off for ever",
        rule=_FETCHED,
        file="database/content.py",
        edits=(("_PASSING = frozenset({", "_PASSING = frozenset({errno.ENOENT, "),),
        test=_DAMAGE + "test_a_damaged_content_is_fetched_and_leaves_as_it_was_accepted[gone]",
    ),
    Fault(
        name="damage is not written down",
        rule=_FETCHED,
        file="delivery/script.py",
        edits=(("    if sent.damaged:\n", "    if False:\n"),),
        test=_A_FILE,
    ),
    Fault(
        name="a copy is promoted without a look at it",
        rule="nothing is promoted that was not compared",
        file="members/reconcile.py",
        edits=(
            (
                "                if await self._examiner.look(message_id) is Finding.SOUND:\n",
                "                if True:\n",
            ),
        ),
        test=_DAMAGE + "test_a_damaged_copy_is_never_promoted_and_waits_for_the_operator",
    ),
    Fault(
        name="a repair offers what it has not compared",
        rule=_UNVERIFIED,
        file="members/repair.py",
        edits=(
            (
                "        return await members.offer(step, verified(content, step.digests.content))\n",
                "        from shadowrelay.database.content import blocks\n"
                "        return await members.offer(step, blocks(content))\n",
            ),
        ),
        test=_DAMAGE + "test_a_repair_ends_no_offer_of_what_is_damaged",
    ),
    Fault(
        name="the sums of rows are not looked at",
        rule=_BELIEVED,
        file="database/sums.py",
        edits=(("    if found != row_sum(*row):\n", "    if False:\n"),),
        test=_A_ROW + "[years older]",
    ),
    Fault(
        name="a row without a sum passes for one from before",
        rule=_BELIEVED,
        file="database/sums.py",
        edits=(("    if found is None and old:\n", "    if found is None:\n"),),
        test=_A_ROW + "[no sum]",
    ),
    Fault(
        name="a recipient that is missing is not missed",
        rule="an envelope is the one of its digest",
        file="database/records.py",
        edits=(
            (
                "    if copy.digests and copy.digests.envelope != "
                "digests.of_envelope(copy.envelope, copy.recipients):\n",
                "    if False:\n",
            ),
        ),
        test=_A_ROW + "[a recipient that is gone]",
    ),
    Fault(
        name="what is no text ends the query",
        rule="one unreadable row damages that message alone",
        file="database/sums.py",
        edits=(('    return octets.decode("utf-8", "replace")\n', "    return octets.decode()\n"),),
        test=_A_ROW + "[a letter of the subject]",
    ),
    Fault(
        name="rows that cannot be believed stay due",
        rule="damage waits",
        file="database/copies.py",
        edits=(('        self._run(SQL["hold_back"], (found.message_id,))\n', ""),),
        test="database/test_database_damage.py::test_rows_that_cannot_be_believed_are_never_due",
    ),
    Fault(
        name="what the tracking log knows of damaged rows is not asked",
        rule="nothing is sent twice because its rows were damaged",
        file="members/mend.py",
        edits=(
            (
                "tuple(sorted((await self._settled(message_id)).items()))",
                "()",
            ),
        ),
        test=_DAMAGE + "test_what_was_sent_before_its_rows_were_damaged_is_not_sent_again",
    ),
    Fault(
        name="a message is set aside before the member that is away was asked",
        rule=_FETCHED,
        file="members/mend.py",
        edits=(("        if everybody <= answered:\n", "        if True:\n"),),
        test=_DAMAGE + "test_nothing_is_set_aside_before_the_member_that_is_away_was_asked",
    ),
    Fault(
        name="a copy is given to whoever asks",
        rule="a good copy is given to the owner that it is held for",
        file="core/members/damage.py",
        edits=(("any(verdict.kind is VerdictKind.YOURS for verdict in verdicts)", "True"),),
        test=_CORE + "test_a_good_copy_is_given_to_the_owner_that_it_is_held_for_and_to_nobody_else[rows]",
    ),
    Fault(
        name="what is given replaces what is good",
        rule="a copy that is given is taken for a damaged one alone",
        file="core/reception/holding.py",
        edits=(("known is None or not known.damaged or", "known is None or"),),
        test=_CORE + "test_a_copy_that_is_given_is_taken_for_a_damaged_one_alone[ours is good]",
    ),
    Fault(
        name="another content is taken for the one that was lost",
        rule="only what never changes is replaced",
        file="core/reception/holding.py",
        edits=(
            (
                "(has.content, has.envelope) != (offered.content, offered.envelope)",
                "has.envelope != offered.envelope",
            ),
        ),
        test=_CORE + "test_a_copy_that_is_given_is_taken_for_a_damaged_one_alone[another content]",
    ),
    Fault(
        name="a damaged holder counts",
        rule="a damaged copy counts as none",
        file="core/members/answers.py",
        edits=(("    if damaged:\n        return _answer", "    if False:\n        return _answer"),),
        test=_CORE
        + "test_a_copy_that_its_holder_calls_damaged_counts_as_none_and_stays_until_there_is_another",
    ),
    Fault(
        name="damaged rows are called unknown",
        rule="damaged is an answer, and never unknown",
        file="core/members/answers.py",
        edits=(
            (
                "    if rows := ledger.damaged(message_id):\n        settled",
                "    if rows := None:\n        settled",
            ),
        ),
        test=_CORE + "test_the_same_is_said_of_rows_that_cannot_be_believed",
    ),
    Fault(
        name="an owner that knows nothing lets its holder drop the copy",
        rule="unknown is not refused",
        file="core/members/questions.py",
        edits=(("        if speaker.version == 1 and same:\n", "        if same:\n"),),
        test="core/members/test_questions.py::"
        "test_unknown_from_the_owner_promotes_for_a_page_may_be_out_of_date",
    ),
    Fault(
        name="a refusal leaves nothing on record",
        rule="every arrival that ends without a 250 is recorded as refused",
        file="core/reception/redundancy.py",
        edits=(("        if last_resort and uncertain(attempts):\n", "        if False:\n"),),
        test="reception/test_intake.py::test_what_was_refused_is_on_record_before_the_451",
    ),
    Fault(
        name="what arrived and was forgotten is not on record",
        rule="every arrival that ends without a 250 is recorded as refused",
        file="core/reception/arrivals.py",
        edits=(("(DropCopy(arrived), refused(arrived.id, policy, now))", "(DropCopy(arrived),)"),),
        test="core/reception/test_arrivals.py::test_what_its_holder_never_had_is_forgotten_once_nobody_else_has_it",
    ),
    Fault(
        name="one of two that were offered a copy speaks for the other",
        rule="what was arriving goes only when each member that was offered a copy says that it has none",
        file="core/reception/arrivals.py",
        edits=(("if arrived.holders and all(", "if arrived.holders and any("),),
        test="core/reception/test_arrivals.py::test_one_of_two_that_were_offered_a_copy_does_not_speak_for_the_other",
    ),
    Fault(
        name="a copy that an older state does not know of is not believed",
        rule="a member that has a copy of what was arriving is believed, whoever was offered one",
        file="core/reception/arrivals.py",
        edits=(("case VerdictKind.YOURS:", "case VerdictKind.YOURS if offered_to:"),),
        test="core/reception/test_arrivals.py"
        "::test_a_copy_that_an_older_state_of_the_database_does_not_know_of_makes_it_a_message",
    ),
    Fault(
        name="a holder that an older state does not know of is to ask again",
        rule="a member that has a copy of what was arriving is believed, whoever was offered one",
        file="core/members/answers.py",
        edits=((" and not offered_to and epoch != arrived.epoch", " and not offered_to"),),
        test="core/reception/test_arrivals.py"
        "::test_a_holder_that_an_older_state_does_not_know_of_asks_and_is_recorded",
    ),
    Fault(
        name="a message is new to its holder",
        rule="another node's time never decides",
        file="members/answering.py",
        edits=(
            (
                "    if offer.age is not None:\n        return now - offer.age\n",
                "    if offer.age is not None:\n        return now\n",
            ),
        ),
        test="members/test_age.py::test_a_message_is_as_old_at_its_holder_as_at_its_owner",
    ),
)
