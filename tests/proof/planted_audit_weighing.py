"""Faults in what files are worth: chains of sequences, gaps, losses that are declared."""

from __future__ import annotations

from .planting import in_audit

_ACCUSES = "a log with a gap accuses nobody"
_LOST = "a message that is lost is found"
_CLEAN = "no false alarm"
_GAPS = "what is missing gives no proof"
WEIGHING = (
    *in_audit(
        "core/weighing.py",
        (
            "what is wrong with a file is not held against it",
            _GAPS,
            '            self._gap(detail, file.path, "what the rows in question told is not known")',
            "            pass",
            "weighing.py::test_what_is_missing_is_told",
        ),
        (
            "a file of which nothing is known is Exchange's",
            _CLEAN,
            "one.flavour == Flavour.EXCHANGE and (one.rows or not one.faults)",
            "one.flavour == Flavour.EXCHANGE",
            "command.py::test_a_file_that_is_no_log_is_taken_for_nobodys",
        ),
        (
            "rows between two files are not missed",
            _GAPS,
            "                if file.first > expected and not (file is",
            "                if file.first > expected + 10**9 and not (file is",
            "weighing.py::test_what_is_missing_is_told",
        ),
        (
            "a log may begin anywhere",
            _GAPS,
            "        return self.since is not None and file.begins <= self.since",
            "        return True",
            "weighing.py::test_what_is_missing_is_told",
        ),
        (
            "a log that begins late is whole",
            _ACCUSES,
            "            from_start=lives[0][0].first == 1,",
            "            from_start=True,",
            "ends.py::test_what_was_received_in_files_that_are_deleted_since_is_no_violation[clean]",
        ),
        (
            "rows told twice are no fault",
            _GAPS,
            "                elif file.first < expected and segments and segments[-1].boot == file.boot:",
            "                elif file.first < 0:",
            "weighing.py::test_what_is_missing_is_told",
        ),
        (
            "a life may begin without a snapshot",
            _GAPS,
            "            if not life[0].first_is_snapshot and not",
            "            if life[0].first < 0 and not",
            "weighing.py::test_what_is_missing_is_told",
        ),
        (
            "what another node saw is not looked for",
            _GAPS,
            "        if self.witnessed.get(database, 0) > last and not lost",
            "        if self.witnessed.get(database, 0) > 10**9 and not lost",
            "weighing.py::test_what_is_missing_is_told",
        ),
        (
            "one row less than another node saw will do",
            _GAPS,
            "        if self.witnessed.get(database, 0) > last and not lost",
            "        if self.witnessed.get(database, 0) > last + 1 and not lost",
            "weighing.py::test_what_is_missing_is_told",
        ),
        (
            "rows that another node saw accuse those who do not have them",
            _ACCUSES,
            "            whole = False  # nobody is accused by what is not in it\n",
            "",
            (
                "weighing.py::test_rows_that_others_saw_are_in_the_log_that_is_open_if_it_begins_wher"
                "e_the_others_end"
            ),
        ),
        (
            "a log may end anywhere",
            _GAPS,
            "        elif not closed and not lost and not running:",
            "        elif not last:",
            "weighing.py::test_what_is_missing_is_told",
        ),
        (
            "--allow-open excuses every database",
            _GAPS,
            "        running = self.allow_open and newest and (",
            "        running = self.allow_open and (",
            "weighing.py::test_only_the_newest_database_of_a_node_may_be_open",
        ),
        (
            "--allow-open excuses a database that an open log followed",
            _GAPS,
            "self.allow_open and newest and (continued or not written)",
            "self.allow_open and newest",
            "ends.py::test_a_newer_database_of_which_there_is_only_an_open_log_ends_the_older_one",
        ),
        (
            "a log that goes on counts as ended",
            _ACCUSES,
            "            closed=closed and not continued,",
            "            closed=closed,",
            "weighing.py::test_a_log_that_goes_on_has_not_ended",
        ),
        (
            "open logs that nothing leads to are not looked at",
            _GAPS,
            "        for log in strays(self.opened, by_database, self.lost):",
            "        for log in strays((), by_database, self.lost):",
            (
                "weighing.py::test_rows_that_others_saw_are_in_the_log_that_is_open_if_it_begins_wher"
                "e_the_others_end"
            ),
        ),
        (
            "a log with a gap counts as whole",
            _ACCUSES,
            "                    whole = False\n                    if declared and back",
            "                    if declared and back",
            "weighing.py::test_a_database_whose_log_has_a_gap_accuses_nobody",
        ),
        (
            "a file at fault counts as whole",
            _ACCUSES,
            "        whole = not any(file.faults for file in files)",
            "        whole = True",
            "ends.py::test_a_row_that_is_missing_before_the_reception_accuses_nobody",
        ),
        (
            "numbers that are given out again are no sign of an older state",
            _GAPS,
            "        back = bool(set_back) or database in self.set_back",
            "        back = database in self.set_back",
            "weighing.py::test_a_database_that_was_set_back_has_a_gap_and_accuses_nobody",
        ),
        (
            "holders who saw a database set back are not believed",
            _GAPS,
            "        back = bool(set_back) or database in self.set_back",
            "        back = bool(set_back)",
            "weighing.py::test_what_is_missing_is_told",
        ),
        (
            "a database that was set back accuses others",
            _ACCUSES,
            "            rolled_back=bool(set_back) or (declared and back),",
            "            rolled_back=False,",
            "weighing.py::test_a_database_that_was_set_back_has_a_gap_and_accuses_nobody",
        ),
        (
            "a loss is believed because it is declared",
            _GAPS,
            "        if not promoted and not followed and not database.rolled_back:",
            "        if not node:",
            "weighing.py::test_a_loss_that_no_row_of_others_agrees_with_is_not_believed",
        ),
        (
            "an older database confirms the loss of a newer one",
            _GAPS,
            "        followed = self.newest.get(node, name) != name",
            (
                "        followed = any(one.node == node and one.id != name for one in "
                "self.databases.values())"
            ),
            "ends.py::test_an_older_database_does_not_confirm_the_loss_of_the_newest_one",
        ),
        (
            "what a lost disk leaves unproven is not said",
            _GAPS,
            "        self.unprovable.append(",
            "        str(",
            ("weighing.py::test_a_loss_that_others_agree_with_is_believed_and_what_stays_unprovable_is_said"),
        ),
        (
            "a declared loss excuses the present end as well",
            _GAPS,
            "        lost = declared and not (back and (closed or newest))",
            "        lost = declared",
            "weighing.py::test_what_was_given_up_is_excused_and_the_present_end_is_nobodys_loss",
        ),
        (
            "a declared loss excuses gaps since",
            _GAPS,
            "                    if declared and back and (life is not lives[-1] or file is life[0]):",
            "                    if declared:",
            (
                "weighing.py::test_rows_that_are_missing_since_an_older_state_was_put_back_are_excuse"
                "d_by_nothing"
            ),
        ),
        (
            "a database without a log is not missed",
            _GAPS,
            "            if lost:\n                continue",
            "            if True:\n                continue",
            "weighing.py::test_what_is_missing_is_told",
        ),
        (
            "a node without logs is not missed",
            _GAPS,
            "        for server in sorted(named - set(nodes) - excused):",
            "        for server in sorted(named & set(nodes) & excused):",
            "weighing.py::test_what_is_missing_is_told",
        ),
        (
            "a snapshot counts though rows of it are missing",
            _GAPS,
            "            if rows == count:",
            "            if rows <= abs(count):",
            "weighing.py::test_what_is_missing_is_told",
        ),
        (
            "the first snapshot counts, not the last",
            _LOST,
            "                best = (end - among, end)  #",
            "                best = best or (end - among, end)  #",
            "weighing.py::test_the_snapshot_that_counts_is_of_the_life_that_went_on",
        ),
        (
            "rows of a snapshot that was taken in parts are looked for at its end alone",
            _CLEAN,
            "                best = (end - among, end)  #",
            "                best = (end - count, end)  #",
            "weighing.py::"
            "test_the_rows_of_a_snapshot_that_was_taken_in_parts_are_among_more_rows_than_it_has",
        ),
        (
            "the lost disk of a node is that of its first worker",
            _LOST,
            "if name in (server, node_of(server)) and",
            "if name == server and",
            "workers.py::test_the_loss_of_the_disk_of_a_node_is_that_of_all_its_workers",
        ),
        (
            "a worker that goes on is lost with its node",
            _CLEAN,
            "        return cut and (database in self.promoted or",
            "        return True or (cut or",
            "workers.py::test_a_worker_that_goes_on_is_not_declared_lost_with_its_node",
        ),
        (
            "a snapshot that a kill cut short is missed for ever",
            _CLEAN,
            "                unfinished.clear()\n",
            "",
            "weighing.py::test_a_snapshot_that_a_kill_cut_short_is_not_missed_once_a_later_one_is_complete",
        ),
        (
            "a snapshot that is cut by deleted files is missed",
            _CLEAN,
            "            elif end - among >= first.first or not self._may_begin_late(first):",
            "            else:",
            "weighing.py::test_a_snapshot_that_began_in_a_file_deleted_by_age_is_not_missed",
        ),
    ),
)
