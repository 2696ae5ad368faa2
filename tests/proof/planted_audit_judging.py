"""Faults in the judgement on one message."""

from __future__ import annotations

from .planting import in_audit

_ACCUSES = "a log with a gap accuses nobody"
_LOST = "a message that is lost is found"
_DOUBLE = "a second delivery is found"
_CLEAN = "no false alarm"
_COPIES = "redundant before acknowledged"
_GAPS = "what is missing gives no proof"
_ALTERED = "what was sent is what was accepted"
_WORD = "words.py::test_a_word_is_a_proof_only_if_the_log_of_who_told_it_may_lack_the_row"
JUDGING = (
    *in_audit(
        "core/judge.py",
        (
            "a row that two files tell happened twice",
            _CLEAN,
            "        for index in self.told_once:\n            self.by_kind",
            "        for index in range(len(events)):\n            self.by_kind",
            (
                "hostile.py::test_a_file_that_tells_the_same_rows_otherwise_is_a_fault_and_makes_no_d"
                "uplicates[changed-MSGTRK-a-copy.LOG]"
            ),
        ),
        (
            "rows are played in the order in which they were read",
            _CLEAN,
            "            rows.sort(key=lambda row: (life.get(row[1].boot, 0), row[1].sequence))\n",
            "",
            "faults.py::test_faults_in_any_mix_are_found_exactly[0]",
        ),
        (
            "lives are played in the order of their numbers",
            _CLEAN,
            "(life.get(row[1].boot, 0), row[1].sequence)",
            "row[1].sequence",
            "verdicts.py::test_a_database_that_was_set_back_goes_on_with_the_life_that_began_last",
        ),
        (
            "a message without reception is nobody's",
            _LOST,
            "        if origins or (self.untold and not self._never_accepted()):\n            return",
            "        if self.events:\n            return",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[orphan]",
        ),
        (
            "a message without reception is a violation whatever is missing",
            _ACCUSES,
            "        if origins or (self.untold and not self._never_accepted()):\n            return",
            "        if origins:\n            return\n        self.untold = False",
            "ends.py::test_what_was_received_in_files_that_are_deleted_since_is_no_violation[clean]",
        ),
        (
            "what went with two disks was never accepted",
            _LOST,
            "told.union(self.involved.lost_with_its_owner(), *aside)",
            "told.union(*aside)",
            "verdicts.py::test_a_copy_that_went_with_its_disk_may_have_been_the_last_of_a_message_that_was_"
            "accepted[lost0-what0]",
        ),
        (
            "a copy of what was never received is nothing",
            _LOST,
            "            if not trace.owned and sound and",
            "            if trace.database is None and sound and",
            "ends.py::test_a_copy_of_what_was_never_received_is_a_violation_when_the_log_goes_on",
        ),
        (
            "a log may not end before the reception",
            _CLEAN,
            " and self.events[index].sequence < database.last:",
            ":",
            "ends.py::test_a_file_may_end_before_the_reception_of_what_is_copied[True-0]",
        ),
        (
            "a log with a gap has to show the reception",
            _ACCUSES,
            "            if not trace.owned and sound and",
            "            if not trace.owned and",
            "removals.py::test_a_row_that_is_missing_is_seen_and_held_against_no_node",
        ),
        (
            "what was put off counts as settled",
            _LOST,
            (
                "        settled = {number for index in self._rows(*FINALS) for number in "
                "self.events[index].recipients}\n        told"
            ),
            (
                "        settled = {number for index in self._rows(*FINALS, Kind.DEFER) for number "
                "in self.events[index].recipients}\n        told"
            ),
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[in-transit]",
        ),
        (
            "a delivery settles all recipients",
            _LOST,
            (
                "        settled = {number for index in self._rows(*FINALS) for number in "
                "self.events[index].recipients}\n        told"
            ),
            "        settled = set(owed) if self._rows(*FINALS) else set[int]()\n        told",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[partially-lost]",
        ),
        (
            "any discard counts as told of a delivery",
            _LOST,
            "            if self.events[index].reason in SETTLED_ELSEWHERE:",
            "            if self.events[index].reason:",
            (
                "ends.py::test_what_may_have_been_delivered_in_the_lost_end_of_a_log_is_neither_lost_"
                "nor_proven[orphaned]"
            ),
        ),
        (
            "a holder told of what no log has is nothing",
            _GAPS,
            "            elif nowhere := told - owed - settled:",
            "            elif nowhere := told & owed & settled:",
            "ends.py::test_a_delivery_that_a_holder_was_told_of_and_no_log_received_is_not_proven",
        ),
        (
            "a holder's word stands against whole logs",
            _LOST,
            "        if not self.untold:\n            words",
            "        if self.untold is None:\n            words",
            "verdicts.py::test_a_delivery_that_a_holder_was_told_of_and_no_whole_log_shows_is_a_violation",
        ),
        (
            "a holder's word is not believed",
            _CLEAN,
            "        if told := told & missing:",
            "        if told := told & missing & settled:",
            f"{_WORD}[its row was lost with the disk]",
        ),
        (
            "a loss is certain though logs are missing",
            _ACCUSES,
            "        if gone and self.involved.unknown:",
            "        if gone and self.involved.unknown is None:",
            "verdicts.py::test_a_message_is_lost_only_if_the_log_of_who_had_it_last_can_tell",
        ),
        (
            "a loss is certain though logs are open",
            _ACCUSES,
            "        elif gone and self.involved.open:",
            "        elif gone and self.involved.open is None:",
            "verdicts.py::test_a_message_is_lost_only_if_the_log_of_who_had_it_last_can_tell",
        ),
        (
            "a loss is certain though a disk may have taken the delivery",
            _ACCUSES,
            "        elif gone and gone == (unseen := self.involved.lost_ends(gone)):",
            "        elif gone and gone == (unseen := set[int]()):",
            (
                "ends.py::test_what_may_have_been_delivered_in_the_lost_end_of_a_log_is_neither_lost_"
                "nor_proven[alone]"
            ),
        ),
        (
            "a loss after another disk was lost is uncertain",
            _LOST,
            "(unseen := self.involved.lost_ends(gone))",
            "(unseen := gone if self.involved.lost else set[int]())",
            "ends.py::test_a_loss_after_a_disk_was_lost_is_a_loss",
        ),
        (
            "what a node once had it still has",
            _LOST,
            "        gone = missing - held - tail\n",
            "        gone = missing - held - tail - {n for t in self.traces.values() for n in t.known}\n",
            (
                "ends.py::test_what_may_have_been_delivered_in_the_lost_end_of_a_log_is_neither_lost_"
                "nor_proven[alone]"
            ),
        ),
        (
            "what is held is open",
            _CLEAN,
            "        if missing - held:\n",
            "        if missing:\n",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[in-transit]",
        ),
        (
            "two deliveries are one",
            _DOUBLE,
            "        double = {number: rows for number, rows in taken.items() if len(rows) > 1}",
            "        double = {number: rows for number, rows in taken.items() if len(rows) > 2}",
            "verdicts.py::test_a_node_that_delivers_what_it_does_not_own_is_named[mx2]",
        ),
        (
            "every second delivery has a cause",
            _DOUBLE,
            '        return "", ()\n',
            '        return "some", ()\n',
            "verdicts.py::test_a_node_that_delivers_what_it_does_not_own_is_named[mx2]",
        ),
        (
            "a takeover allows what one database sent twice",
            _DOUBLE,
            "        if taken_over and (len(databases) > 1 or any(",
            "        if taken_over and (databases or any(",
            "verdicts.py::test_a_takeover_allows_no_second_delivery_by_the_same_database",
        ),
        (
            "a doubt about one attempt is none about the message",
            _CLEAN,
            "            index for index in self._rows(*SENT, Kind.DEFER) if",
            "            index for index in self._rows(*SENT) if",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[in-doubt]",
        ),
        (
            "a copy that vanished is not missed",
            _LOST,
            "            if trace.ending is Ending.VANISHED and sound:",
            "            if trace.ending is Ending.VANISHED and not sound:",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[lost]",
        ),
        (
            "a copy that vanished in a log with a gap accuses",
            _ACCUSES,
            "            if trace.ending is Ending.VANISHED and sound:",
            "            if trace.ending is Ending.VANISHED:",
            "removals.py::test_a_row_that_is_missing_is_seen_and_held_against_no_node",
        ),
        (
            "who delivers need not own",
            _LOST,
            "            if sound and trace.ownerless:",
            "            if not sound and trace.ownerless:",
            "verdicts.py::test_a_node_that_delivers_what_it_does_not_own_is_named[mx2]",
        ),
        (
            "rows may contradict each other",
            _GAPS,
            "                for what, index in trace.contradictions:",
            "                for what, index in ():",
            "verdicts.py::test_rows_of_one_node_that_cannot_follow_each_other_are_told",
        ),
        (
            "rows of a log with a gap contradict each other",
            _ACCUSES,
            "            if sound:\n                for what",
            "            if trace:\n                for what",
            "verdicts.py::test_a_database_that_was_set_back_goes_on_with_the_life_that_began_last",
        ),
        (
            "a log that was set back contradicts itself",
            _ACCUSES,
            "            sound = trace.database.whole and not trace.database.rolled_back",
            "            sound = trace.database.whole",
            "verdicts.py::test_a_database_that_was_set_back_goes_on_with_the_life_that_began_last",
        ),
        (
            "what is damaged everywhere is in transit",
            _LOST,
            "        good = [one for one in ends if not one.damage]\n",
            "        good = ends\n",
            "good_copies.py::test_a_message_whose_every_copy_is_damaged_has_a_kind_of_its_own",
        ),
        (
            "who sets a damaged message aside is not believed",
            _LOST,
            "        if any(one.set_aside for one in damaged):",
            "        if not damaged and spoilt:",
            "good_copies.py::test_who_sets_it_aside_has_asked_all_others_whose_logs_may_be_missing",
        ),
        (
            "what was refused was promised",
            _CLEAN,
            "        if missing and not self._never_accepted():",
            "        if missing:",
            "good_copies.py::test_nor_one_that_is_lost_or_damaged_after_that",
        ),
        (
            "rows that were restored begin a message of unknown origin",
            _CLEAN,
            "        taken = self._rows(Kind.RESUBMIT, Kind.HARESTORE)",
            "        taken = self._rows(Kind.RESUBMIT)",
            "good_copies.py::test_a_message_whose_rows_were_restored_is_its_nodes_again",
        ),
    ),
    *in_audit(
        "core/redundancy.py",
        (
            "a message that was found after a start has broken the promise",
            _CLEAN,
            '_NOT_REDUNDANT = frozenset({"Failed", "Unknown"})',
            '_NOT_REDUNDANT = frozenset({"Failed"})',
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[found-after-a-start]",
        ),
        (
            "a copy that nobody has is believed",
            _COPIES,
            "            if not came and self.evidence.complete(holder):",
            "            if not came and not holder:",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[false-copy]",
        ),
        (
            "a copy that is not in a log with a gap is a lie",
            _ACCUSES,
            "            if not came and self.evidence.complete(holder):",
            "            if not came:",
            "ends.py::test_a_copy_that_came_before_the_holders_log_begins_is_not_missed",
        ),
        (
            "a copy made after the acknowledgement will do",
            _COPIES,
            "        before = [at for at in copies if self.events[at].sequence < received.sequence]",
            "        before = copies",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[late-copy]",
        ),
        (
            "a copy made by another database will do",
            _COPIES,
            (
                "        copies = [at for at in self._rows(Kind.HAREDIRECT) if "
                "self.events[at].database == received.database]"
            ),
            "        copies = self._rows(Kind.HAREDIRECT)",
            "verdicts.py::test_a_copy_that_another_node_made_is_none_of_the_owner",
        ),
        (
            "a missing copy row accuses though rows are missing",
            _ACCUSES,
            "        elif not self.traces[received.database].database.unbroken:",
            "        elif not received.database:",
            "ends.py::test_a_row_that_is_missing_before_the_reception_accuses_nobody",
        ),
        (
            "one copy without a word of it is allowed",
            _COPIES,
            '            yield Finding(Class.ONE_COPY, "no HAREDIRECT',
            '            yield Finding(Class.EXPOSED, "no HAREDIRECT',
            "verdicts.py::test_a_copy_that_another_node_made_is_none_of_the_owner",
        ),
        (
            "a copy on its owner's own machine counts",
            _COPIES,
            "        if any(not self.events[at].beside for at in before):",
            "        if before:",
            "good_copies.py::test_a_copy_on_its_owners_machine_is_none",
        ),
        (
            "a copy beside the new owner ends the exposure",
            _COPIES,
            "            and not self.events[at].beside\n",
            "",
            "good_copies.py::test_after_a_promotion_a_copy_beside_the_new_owner_does_not_end_the_exposure",
        ),
        (
            "what holders say of machines is not heard",
            _COPIES,
            "            if all(self.events[index].beside for index in rows):",
            "            if not rows:",
            "good_copies.py::test_what_holders_say_of_machines_counts_where_the_owners_rows_are_lost",
        ),
        (
            "a damaged copy counts for as long as it is there",
            _COPIES,
            "            for begin, end in trace.damages:\n",
            "            for begin, end in ():\n",
            "good_copies.py::test_a_message_with_one_damaged_copy_is_exposed_and_in_transit",
        ),
    ),
    *in_audit(
        "core/words.py",
        (
            "a holder's word is believed whatever the log of who told it says",
            _LOST,
            "        denied = _denied(named, trace)",
            "        denied = set[int]()",
            f"{_WORD}[its log had it unsettled at that row]",
        ),
        (
            "a holder's word is believed though nobody knows who told it",
            _GAPS,
            "            found.alone |= named",
            "            found.borne_out |= named",
            f"{_WORD}[an older version does not say from where]",
        ),
        (
            "a log that ended before denies a word",
            _ACCUSES,
            " or database.last < told:",
            ":",
            f"{_WORD}[its row was lost with the disk]",
        ),
        (
            "a log with a hole denies a word",
            _ACCUSES,
            "database is None or not database.whole or",
            "database is None or",
            "words.py::test_a_log_denies_a_word_only_if_it_is_whole_up_to_then[with a hole]",
        ),
        (
            "a word that is passed on bears itself out",
            _LOST,
            "named - denied - heard[teller]",
            "named - denied",
            "words.py::test_a_word_that_was_passed_on_is_as_good_as_the_first_one[wrongly]",
        ),
        (
            "a node whose rows are damaged denies what it was told",
            _ACCUSES,
            "    return set() if trace.damage is Damage.ROWS else named & trace.left",
            "    return named & trace.left",
            "words.py::test_who_could_not_believe_its_rows_writes_none_of_what_it_was_told",
        ),
    ),
    *in_audit(
        "core/altered.py",
        (
            "what was sent is not compared with what was accepted",
            _ALTERED,
            "if text not in right)",
            "if text not in said.values())",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[altered]",
        ),
        (
            "the envelope is not compared",
            _ALTERED,
            '("Content", "Envelope")',
            '("Content",)',
            "good_copies.py::test_what_is_held_or_sent_with_another_digest_is_altered",
        ),
        (
            "a report has one maker",
            _CLEAN,
            "(origins if several else ())",
            "()",
            "good_copies.py::test_a_report_of_two_makers_has_the_content_of_either",
        ),
        (
            "a maker whose disk was lost had none",
            _CLEAN,
            "        if several and untold:\n",
            "        if several and not events:\n",
            "good_copies.py::test_the_row_of_another_maker_may_have_gone_with_its_disk",
        ),
        (
            "digests of two algorithms are not compared",
            _ALTERED,
            "text in said.items() if text not in right",
            "text in said.items() if text not in right and text[:4] == said[first][:4]",
            "good_copies.py::test_a_message_has_digests_of_one_algorithm",
        ),
    ),
)
