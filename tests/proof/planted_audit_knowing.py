"""Faults in what is known besides the rows about a message, and in the verdict that follows."""

from __future__ import annotations

from .planting import in_audit

_ACCUSES = "a log with a gap accuses nobody"
_LOST = "a message that is lost is found"
_GAPS = "what is missing gives no proof"
KNOWING = (
    *in_audit(
        "core/lives.py",
        (
            "lives are ordered by their numbers alone",
            _GAPS,
            (
                "    return sorted(lives.values(), key=lambda life: life[0].begins) if "
                "forks(ordered) else ordered"
            ),
            "    return ordered",
            "weighing.py::test_a_database_that_was_set_back_twice_ends_with_the_life_that_began_last",
        ),
        (
            "any open log that begins early enough goes on",
            _GAPS,
            "opened.first == lives_of(files)[-1][-1].last + 1",
            "opened.first <= lives_of(files)[-1][-1].last + 1",
            "ends.py::test_a_newer_database_of_which_there_is_only_an_open_log_ends_the_older_one",
        ),
        (
            "the incarnation of an open log is not looked at",
            _GAPS,
            "any((opened.boot, opened.first) == (one.boot, one.first) for one in files)",
            "any(opened.first == one.first for one in files)",
            "ends.py::test_a_newer_database_of_which_there_is_only_an_open_log_ends_the_older_one",
        ),
        (
            "after a loss any open log will do",
            _GAPS,
            "            name in lost and any(file.last >= one.first for file in files) for",
            "            name in lost for",
            "weighing.py::test_of_a_database_that_was_set_back_the_log_may_go_on_with_an_older_row",
        ),
    ),
    *in_audit(
        "core/evidence.py",
        (
            "a node is complete as soon as it has a log",
            _ACCUSES,
            (
                "        return node in self.nodes and all(one.ends for one in "
                "self.databases.values() if one.node == node)"
            ),
            "        return node in self.nodes",
            (
                "weighing.py::test_rows_that_others_saw_are_in_the_log_that_is_open_if_it_begins_wher"
                "e_the_others_end"
            ),
        ),
        (
            "a log that is open counts as ended",
            _ACCUSES,
            "        return sound and self.closed and bool(self.segments)",
            "        return sound and bool(self.segments)",
            "weighing.py::test_a_log_of_a_node_that_runs_may_end_anywhere",
        ),
        (
            "every log counts as unbroken",
            _ACCUSES,
            "        return self.whole and self.from_start",
            "        return True",
            (
                "weighing.py::test_rows_that_others_saw_are_in_the_log_that_is_open_if_it_begins_wher"
                "e_the_others_end"
            ),
        ),
        (
            "a lost disk leaves a complete log",
            _ACCUSES,
            "        sound = self.unbroken and not self.lost and not self.rolled_back",
            "        sound = self.unbroken",
            "weighing.py::test_what_was_given_up_is_excused_and_the_present_end_is_nobodys_loss",
        ),
    ),
    *in_audit(
        "core/involved.py",
        (
            "logs that are missing are not thought of",
            _ACCUSES,
            (
                "        missing = any(not one.lost and not (one.whole and self._from_start(one)) "
                "for one in databases)"
            ),
            "        missing = False",
            "ends.py::test_what_was_received_in_files_that_are_deleted_since_is_no_violation[clean]",
        ),
        (
            "a log that begins late hides nothing",
            _ACCUSES,
            "        return database.from_start or (trace is not None and trace.begun)",
            "        return True",
            "ends.py::test_what_was_received_in_files_that_are_deleted_since_is_no_violation[clean]",
        ),
        (
            "a log that begins late hides everything",
            _LOST,
            "        return database.from_start or (trace is not None and trace.begun)",
            "        return database.from_start",
            "ends.py::test_what_was_received_in_files_that_are_deleted_since_is_no_violation[lost]",
        ),
        (
            "a server without logs cannot know",
            _ACCUSES,
            "        self.unknown = missing or any(not self._of(name) for name in servers)",
            "        self.unknown = missing",
            (
                "verdicts.py::test_a_message_is_lost_only_if_the_log_of_who_had_it_last_can_tell[None"
                "-fate-not-known]"
            ),
        ),
        (
            "servers that rows name are not thought of",
            _ACCUSES,
            (
                "        databases += [evidence.databases[one] for name in servers for one in "
                "self._of(name)]\n"
            ),
            "",
            "verdicts.py::test_a_message_is_lost_only_if_the_log_of_who_had_it_last_can_tell",
        ),
        (
            "open logs are not thought of",
            _ACCUSES,
            (
                "        self.open = any(not one.closed and not one.lost and one.segments for one in "
                "databases)"
            ),
            "        self.open = False",
            "verdicts.py::test_a_message_is_lost_only_if_the_log_of_who_had_it_last_can_tell",
        ),
        (
            "lost disks are not thought of",
            _ACCUSES,
            "        self.lost = any(one.lost or one.rolled_back for one in databases)",
            "        self.lost = False",
            (
                "verdicts.py::test_what_a_holder_was_told_counts_if_its_row_may_be_gone_with_the_owne"
                "rs_disk[True-settled-by-holders-word]"
            ),
        ),
        (
            "a lost disk that was given the message is not thought of",
            _ACCUSES,
            (
                "        if any(one.id not in self._traces for event in self._given for one in "
                "self._lost_of(event)):\n            return recipients\n"
            ),
            "",
            "verdicts.py::test_a_message_is_lost_only_if_the_log_of_who_had_it_last_can_tell",
        ),
    ),
    *in_audit(
        "core/verdict.py",
        (
            "gaps are no matter",
            _GAPS,
            "        if self.evidence.gaps or self.count(Severity.UNPROVEN):",
            "        if self.count(Severity.UNPROVEN):",
            "ends.py::test_a_row_that_is_missing_before_the_reception_accuses_nobody",
        ),
        (
            "what is unproven is no matter",
            _GAPS,
            "        if self.evidence.gaps or self.count(Severity.UNPROVEN):",
            "        if self.evidence.gaps:",
            "verdicts.py::test_what_is_open_at_the_end_of_a_log_is_allowed_when_nodes_run[False-3]",
        ),
        (
            "what is open is always excused",
            _GAPS,
            "        if what is Class.OPEN and self.allow_open:",
            "        if what is Class.OPEN:",
            "verdicts.py::test_what_is_open_at_the_end_of_a_log_is_allowed_when_nodes_run[False-3]",
        ),
        (
            "gaps excuse violations",
            _LOST,
            "        if self.count(Severity.VIOLATION):",
            "        if self.count(Severity.VIOLATION) and not self.evidence.gaps:",
            "verdicts.py::test_a_violation_that_is_seen_counts_although_evidence_is_missing",
        ),
    ),
    *in_audit(
        "core/findings.py",
        (
            "a loss is a note",
            _LOST,
            "    Class.LOST: (_V, ",
            "    Class.LOST: (_N, ",
            "verdicts.py::test_a_violation_that_is_seen_counts_although_evidence_is_missing",
        ),
        (
            "findings of one class hide each other",
            _LOST,
            "        found[one.what] = one if known is None else _both(known, one)",
            "        found.setdefault(one.what, one)",
            "verdicts.py::test_findings_of_one_class_on_several_nodes_are_one_with_all_rows",
        ),
    ),
)
