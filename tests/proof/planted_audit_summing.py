"""Faults in what rows are counted as, and which sums clear a message."""

from __future__ import annotations

from .planting import in_audit

_LOST = "a message that is lost is found"
_CLEAN = "no false alarm"
_SUMS = "the sums clear only what is proven"
_GAPS = "what is missing gives no proof"
SUMMING = (
    *in_audit(
        "core/fingerprint.py",
        (
            "all recipients have one fingerprint",
            _SUMS,
            "    one, other = mixed(lanes, recipient & LANE, recipient >> 31, salt & LANE, salt >> 31, 0)",
            "    one, other = 0, 1",
            "sums.py::test_what_came_in_and_did_not_go_out_is_the_balance_of_a_message",
        ),
    ),
    *in_audit(
        "core/events.py",
        (
            "a bounce settles nobody",
            _CLEAN,
            "FINALS = SENT | {Kind.FAIL, Kind.REMOVE, Kind.EXPAND}",
            "FINALS = SENT | {Kind.REMOVE, Kind.EXPAND}",
            "hostile.py::test_a_subject_may_hold_anything_and_the_row_still_counts[formula]",
        ),
        (
            "what the mailbox server dropped settles nobody",
            _CLEAN,
            "SENT = DELIVERIES | {Kind.DUPLICATEDELIVER}",
            "SENT = DELIVERIES",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[false-promotion-dropped]",
        ),
    ),
    *in_audit(
        "logs/steps.py",
        (
            "rows of another database are this one's",
            _GAPS,
            "        if (sequence < 0).any():\n            learnt.faults[Fault.MIXED] = None",
            "        if (sequence < 0).any():",
            "hostile.py::test_a_row_that_cannot_be_is_reported_and_nothing_is_proven",
        ),
        (
            "a message that was sent in doubt is like any other",
            _SUMS,
            '!= "1" or "InDoubt" in entries or',
            '!= "1" or',
            "ends.py::test_a_message_that_was_sent_in_doubt_once_is_noted",
        ),
        (
            "a copy on its owner's machine is like any other",
            _SUMS,
            "    return is_beside(entries)\n",
            "    return False\n",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[beside]",
        ),
        (
            "digests make each row one of a kind",
            _SUMS,
            "Numbers(Cells(custom.data, rest, cut))",
            "Numbers(Cells(custom.data, rest, custom.end))",
            "sums.py::test_digests_do_not_make_each_row_one_of_a_kind",
        ),
        (
            "named recipients count as the first ones",
            _SUMS,
            "        first = np.cumsum([0, *map(len, named)])",
            "        first = np.zeros(len(named) + 1, dtype=np.int64)",
            (
                "sums.py::test_a_holder_that_lets_go_of_other_recipients_than_it_held_is_seen_in_the_"
                "balance_alone"
            ),
        ),
        (
            "rows of a snapshot are not counted",
            _GAPS,
            "                self.learnt.listed[snapshot] += 1",
            "                self.learnt.listed[snapshot] += 0",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[in-transit]",
        ),
        (
            "holders' marks are not noted",
            _GAPS,
            ("                learnt.witnessed[database] = max(learnt.witnessed.get(database, 0), sequence)"),
            "                pass",
            "ends.py::test_rows_tell_which_other_databases_there_are_and_how_far_their_logs_have_to_reach",
        ),
        (
            "owners' marks are not noted",
            _GAPS,
            '        if database := one.get("ShadowDb") or one.get("OwnerDb") or one.get("TellerDb"):',
            '        if database := one.get("ShadowDb") or one.get("TellerDb"):',
            "ends.py::test_a_copy_that_is_still_held_tells_how_far_its_owners_log_has_to_reach",
        ),
        (
            "marks of who told a holder of a delivery are not noted",
            _GAPS,
            '        if database := one.get("ShadowDb") or one.get("OwnerDb") or one.get("TellerDb"):',
            '        if database := one.get("ShadowDb") or one.get("OwnerDb"):',
            "words.py::test_a_word_tells_how_far_the_log_of_who_told_it_has_to_reach",
        ),
        (
            "of rows that name a database alike, the last one tells how far, whether it says it or not",
            _GAPS,
            "        lasts[which[far]] = rows[far]  # rather one that says how far\n",
            "",
            "ends.py::test_rows_tell_which_other_databases_there_are_and_how_far_their_logs_have_to_reach",
        ),
        (
            "databases that owners name are not noted",
            _GAPS,
            '            learnt.databases[database] = one.get("Shadow", "")\n',
            "            pass\n",
            "ends.py::test_rows_tell_which_other_databases_there_are_and_how_far_their_logs_have_to_reach",
        ),
        (
            "databases that holders name are not noted",
            _GAPS,
            "            learnt.databases[database] = server\n            learnt.shadows",
            "            learnt.shadows",
            "ends.py::test_rows_tell_which_other_databases_there_are_and_how_far_their_logs_have_to_reach",
        ),
        (
            "a set back database is not noted",
            _GAPS,
            "                learnt.set_back[database] = server",
            "                pass",
            "ends.py::test_rows_tell_which_other_databases_there_are_and_how_far_their_logs_have_to_reach",
        ),
        (
            "who holds is not compared with who is said to",
            _SUMS,
            "        copies = np.where(new, -(digest(learnt.node) >> 22), copies)",
            "        copies = np.where(new, -copies, copies)",
            "sums.py::test_one_sum_that_does_not_agree_makes_a_suspect",
        ),
    ),
    *in_audit(
        "logs/fold.py",
        (
            "deliveries are counted, not whose they are",
            _SUMS,
            '        "owed": groups.total(steps.print, origin) - groups.total(steps.print, final),',
            '        "owed": groups.total(steps.print * 0, origin),',
            "sums.py::test_what_came_in_and_did_not_go_out_is_the_balance_of_a_message",
        ),
        (
            "what came into a database need not leave it",
            _SUMS,
            '        "balance": groups.total(steps.salted, enters) - groups.total(steps.salted, leaves),',
            '        "balance": groups.total(steps.salted * 0, enters),',
            "sums.py::test_what_came_in_and_did_not_go_out_is_the_balance_of_a_message",
        ),
        (
            "odd rows are not counted",
            _SUMS,
            '        "odd": groups.count(np.flatnonzero(steps.odd)),',
            '        "odd": groups.count(np.flatnonzero(steps.odd & False)),',
            "ends.py::test_a_message_that_was_sent_in_doubt_once_is_noted",
        ),
        (
            "the last copy counts, not the first",
            _SUMS,
            '        "redirect_at": groups.least(steps.sequence, redirect),',
            '        "redirect_at": groups.least(steps.sequence * 0, redirect),',
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[late-copy]",
        ),
        (
            "who holds is not compared",
            _SUMS,
            '        "holders": groups.total(steps.copies, np.flatnonzero(steps.copies)),',
            '        "holders": groups.total(steps.copies * 0, np.flatnonzero(steps.copies)),',
            "ends.py::test_a_copy_at_another_node_than_was_said_is_no_copy_there",
        ),
        (
            "digests are not summed",
            _SUMS,
            '        "digests_greatest": groups.greatest(steps.digests, digested),',
            '        "digests_greatest": groups.greatest(steps.digests * 0, digested),',
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[altered]",
        ),
        (
            "a message's last row is not read again",
            _LOST,
            '        "file_to": groups.greatest(block.at + block.ends[steps.row]),',
            '        "file_to": groups.greatest(block.at + block.begins[steps.row]),',
            (
                "sums.py::test_a_holder_that_lets_go_of_other_recipients_than_it_held_is_seen_in_the_"
                "balance_alone"
            ),
        ),
        (
            "a message's first row is not read again",
            _LOST,
            '        "file_from": groups.least(block.at + block.begins[steps.row]),',
            '        "file_from": groups.least(block.at + block.ends[steps.row]),',
            "ends.py::test_a_row_that_is_missing_before_the_reception_accuses_nobody",
        ),
    ),
    *in_audit(
        "logs/exchange.py",
        (
            "our rows are not known again",
            _GAPS,
            '    return bool(pc.any(pc.starts_with(table["custom-data"], "S:Seq=")).as_py())',
            "    return False",
            "hostile.py::test_a_log_of_ours_that_pretends_to_be_exchanges_is_no_weaker_proof",
        ),
    ),
)
