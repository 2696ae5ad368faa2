"""Faults in what is read of files, and what they are found to be."""

from __future__ import annotations

from .planting import in_audit

_LOST = "a message that is lost is found"
_GAPS = "what is missing gives no proof"
READING = (
    *in_audit(
        "core/copies.py",
        (
            "a file that tells the same rows otherwise is a copy",
            _GAPS,
            "            same[one.sha256, one.size, tuple",
            "            same[one.database, one.first, tuple",
            ("hostile.py::test_a_file_that_tells_the_same_rows_otherwise_is_a_fault_and_makes_no_duplicates"),
        ),
        (
            "a file that was not compared is a copy",
            _GAPS,
            "        if one.rows and not _NOT_COMPARED & set(one.faults):",
            "        if one.rows:",
            "weighing.py::test_a_file_whose_hash_is_not_of_all_its_octets_is_no_copy_of_another",
        ),
    ),
    *in_audit(
        "core/text.py",
        (
            "a row may have fields too few",
            _GAPS,
            "    return fields if len(fields) == count else None",
            '    return (fields + [""] * count)[:count]',
            "hostile.py::test_doubled_quotes_in_a_field_are_one_and_a_comma_in_quotes_is_none",
        ),
    ),
    *in_audit(
        "logs/layout.py",
        (
            "the hash is not compared",
            _GAPS,
            "            if footer.sha256 != sha256:",
            "            if not footer.sha256:",
            "hostile.py::test_a_file_that_was_tampered_with_is_named",
        ),
        (
            "the number of rows is not compared",
            _GAPS,
            "            if footer.rows != rows:",
            "            if footer.rows < 0:",
            "hostile.py::test_a_file_that_was_tampered_with_is_named",
        ),
        (
            "octets after the footer are no fault",
            _GAPS,
            "            if self.trailing:",
            "            if self.trailing and not self.trailing:",
            "hostile.py::test_a_file_that_was_tampered_with_is_named",
        ),
        (
            "a file needs no footer",
            _GAPS,
            "            yield Fault.NO_FOOTER\n",
            "            return\n",
            "hostile.py::test_a_file_that_was_tampered_with_is_named",
        ),
        (
            "our name over Exchange's header is no fault",
            _GAPS,
            "            if footer is not None or NAME.fullmatch(name):",
            "            if footer is None and footer:",
            "hostile.py::test_an_empty_log_of_ours_that_pretends_to_be_exchanges_is_named",
        ),
    ),
    *in_audit(
        "logs/file.py",
        (
            "the range is not compared",
            _GAPS,
            "        if (footer.first, footer.last) != (self.first, self.last) or not named:",
            "        if not named:",
            "hostile.py::test_a_file_that_was_tampered_with_is_named",
        ),
        (
            "the name is not compared",
            _GAPS,
            "        if (footer.first, footer.last) != (self.first, self.last) or not named:",
            "        if (footer.first, footer.last) != (self.first, self.last):",
            "hostile.py::test_a_file_under_a_name_that_is_not_its_own_is_named",
        ),
        (
            "numbers need not rise",
            _GAPS,
            "            if (rises <= 0).any():",
            "            if (rises < -10**9).any():",
            "hostile.py::test_a_row_that_cannot_be_is_reported_and_nothing_is_proven",
        ),
        (
            "numbers may leave rows out",
            _GAPS,
            "            if (rises > 1).any():",
            "            if (rises > 10**9).any():",
            "hostile.py::test_a_row_that_cannot_be_is_reported_and_nothing_is_proven",
        ),
        (
            "numbers may leave rows out between blocks",
            _GAPS,
            (
                "            rises = np.diff(found.sequence, prepend=self.last) if self.rows else "
                "np.diff(found.sequence)"
            ),
            "            rises = np.diff(found.sequence)",
            "hostile.py::test_a_row_that_is_missing_at_the_edge_of_a_block_is_missed",
        ),
        (
            "any last row ends a log",
            _GAPS,
            "        self.last_closes = closes and self.learnt.goes_on != self.last",
            "        self.last_closes = True",
            "ends.py::test_a_file_may_end_before_the_reception_of_what_is_copied[False-3]",
        ),
        (
            "any snapshot ends a log",
            _GAPS,
            "        self.last_closes = closes and self.learnt.goes_on != self.last",
            "        self.last_closes = closes",
            "ends.py::test_a_log_that_ends_with_a_snapshot_of_a_node_that_runs_does_not_end_there[start]",
        ),
        (
            "any row begins a life",
            _GAPS,
            "            self.first_is_snapshot = bool(found.kind[0] == load)",
            "            self.first_is_snapshot = True",
            "removals.py::test_a_row_that_is_missing_in_files_sealed_again_is_seen",
        ),
        (
            "rows that cannot be read are no fault",
            _GAPS,
            "            faults[Fault.UNREADABLE_ROWS] = None",
            "            pass",
            "hostile.py::test_a_row_that_is_no_utf_8_is_unreadable",
        ),
        (
            "a log of ours under another header is Exchange's",
            _GAPS,
            "            self.learnt.faults[Fault.WRONG_HEADER] = None\n            if self.others",
            "            if self.others",
            "hostile.py::test_a_log_of_ours_that_pretends_to_be_exchanges_is_no_weaker_proof",
        ),
        (
            "a file that cannot be read is no fault",
            _GAPS,
            "            self.learnt.faults[Fault.UNREADABLE_FILE] = None\n",
            "            pass\n",
            "hostile.py::test_a_file_that_cannot_be_read_is_named",
        ),
    ),
    *in_audit(
        "engine/merge.py",
        (
            "states of a log that does not count are merged",
            "no false alarm",
            "    keep = new >= 0",
            "    keep = new >= -1",
            "blocks.py::test_every_state_is_in_its_bucket_with_its_values",
        ),
    ),
    *in_audit(
        "engine/blocks.py",
        (
            "the least moment of a block is none",
            _GAPS,
            "    base = int(filled.min()) - 1",
            "    base = int(filled.min())",
            "blocks.py::test_every_state_is_in_its_bucket_with_its_values",
        ),
    ),
    *in_audit(
        "engine/pool.py",
        (
            "what a job that failed left under way answers the next one",
            "each part counts once",
            "            self.close()  # others",
            "            pass  # others",
            "pool.py::test_a_part_that_fails_ends_the_job_with_its_error_and_where_it_was",
        ),
        (
            "Ctrl-C reaches the processes of a pool",
            "Ctrl-C is no verdict",
            "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})",
            "signal.pthread_sigmask(signal.SIG_BLOCK, set())",
            "pool.py::test_ctrl_c_does_not_reach_the_processes",
        ),
    ),
    *in_audit(
        "cli/engines.py",
        (
            "what Spark does is taken for what this machine keeps",
            "what cannot be done is said",
            "    if keeping and asked != HERE:",
            "    if keeping and asked == AUTO:",
            "command.py::test_what_no_engine_can_do_together_is_refused",
        ),
    ),
    *in_audit(
        "logs/lines.py",
        (
            "what follows the footer is part of the file",
            _GAPS,
            "                covered = int(lines.starts[line])",
            "                covered = size",
            "hostile.py::test_a_subject_may_hold_anything_and_the_row_still_counts[formula]",
        ),
        (
            "a line within a subject names the columns",
            _GAPS,
            "if self.layout.flavour is Flavour.RELAY or not lines.within(line):",
            "if True:",
            "headers.py::test_every_row_is_read_by_the_columns_above_it_wherever_blocks_end",
        ),
        (
            "the last header of a block is that of all its rows",
            _GAPS,
            "            if self.layout.renames(text):",
            "            if False:",
            "headers.py::test_every_row_is_read_by_the_columns_above_it_wherever_blocks_end",
        ),
        (
            "a byte order mark before a second header makes it a row",
            _GAPS,
            "        if marked:",
            "        if False:",
            "headers.py::test_a_message_whose_rows_stand_under_two_headers_is_judged_by_both[True-2013]",
        ),
    ),
    *in_audit(
        "logs/grid.py",
        (
            "rows that are no text are rows",
            _GAPS,
            "    if not is_text(block.data):",
            "    if False:",
            "hostile.py::test_a_row_that_is_no_utf_8_is_unreadable",
        ),
    ),
    *in_audit(
        "logs/loops.py",
        (
            "a row need not end with CRLF",
            _GAPS,
            "= last >= at and octets[last] == _CR and octets[last + 1] == _LF, False, 0",
            "= last >= at, False, 0",
            "cells.py::test_a_row_has_the_cells_that_a_careful_reader_finds[as it stands-0.02-0]",
        ),
    ),
    *in_audit(
        "logs/extract.py",
        (
            "named recipients are not read",
            _LOST,
            "        recipients = numbers or tuple(range(1, len(addresses) + 1))",
            "        recipients = tuple(range(1, len(addresses) + 1))",
            "hostile.py::test_a_subject_may_hold_anything_and_the_row_still_counts[formula]",
        ),
        (
            "a single row is read by the first columns of its file",
            _LOST,
            "    fields = source.fields_at(offset)",
            "    fields = source.fields",
            "headers.py::test_a_message_whose_rows_stand_under_two_headers_is_judged_by_both[False-2013]",
        ),
    ),
    *in_audit(
        "logs/manifest.py",
        (
            "open logs are not looked for",
            _GAPS,
            '                told = NAME.fullmatch(closed["closed"]) if closed else None',
            "                told = None",
            "ends.py::test_a_newer_database_of_which_there_is_only_an_open_log_ends_the_older_one",
        ),
    ),
)
