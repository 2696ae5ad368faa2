"""Faults in what is durable, and when: pragmas, commits, contents, directories."""

from __future__ import annotations

from .planting import Fault

_OPENING = "database/test_database_opening.py::"
_COMMIT = "database/test_database_commit.py::"
_DURABLE = "what is answered for survives a power cut"
_SHARING = "database/test_sharing.py::"
_FLUSHED = "database/test_database_content.py::test_more_goes_to_a_file_that_is_flushed_before_it_is_used"

DATABASE = (
    Fault(
        name="synchronous=NORMAL",
        rule=_DURABLE,
        file="database/opening.py",
        edits=(('("synchronous", "full", 2)', '("synchronous", "normal", 1)'),),
        test=_OPENING + "test_durability_rests_on_settings_that_sqlite_took",
    ),
    Fault(
        name="what SQLite made of the journal mode is not looked at",
        rule=_DURABLE,
        file="database/opening.py",
        edits=(("        if found is None or found[0] != expected:\n", "        if found is None:\n"),),
        test=_OPENING + "test_a_journal_mode_that_did_not_take_is_noticed",
    ),
    Fault(
        name="the log of an earlier process is not flushed before new commits",
        rule="a failed fsync is never trusted again, by the next process neither",
        file="database/transport.py",
        edits=(("    opening.empty_the_log(raw)\n", ""),),
        test=_OPENING
        + "test_what_a_process_left_in_the_log_is_in_the_database_file_before_anything_new_is_acknowledged",
    ),
    Fault(
        name="a new database is used before its directory is flushed",
        rule=_DURABLE,
        file="database/transport.py",
        edits=(("    opening.sync_directory(file.parent)\n", ""),),
        test=_OPENING + "test_a_database_is_not_used_before_its_name_is_on_disk",
    ),
    Fault(
        name="callers are answered before the commit",
        rule="persist, then speak",
        file="database/group_commit.py",
        edits=(
            (
                '    ledger.connection.execute("BEGIN IMMEDIATE")\n',
                "    if ledger.connection.in_transaction:\n"
                '        ledger.connection.execute("COMMIT")\n'
                '    ledger.connection.execute("BEGIN IMMEDIATE")\n',
            ),
            ('        ledger.connection.execute("COMMIT")\n        ledger.tally', "        ledger.tally"),
        ),
        test=_OPENING
        + "test_what_a_process_left_in_the_log_is_in_the_database_file_before_anything_new_is_acknowledged",
    ),
    Fault(
        name="after a commit that failed the next one is tried",
        rule="after a failed write nothing is acknowledged any more",
        file="database/transport.py",
        edits=(
            (
                "            self._fail(error, group)\n            return False\n",
                "            for job in group:\n"
                "                job.done.set_exception(DatabaseFailed(str(error)))\n"
                "            return True\n",
            ),
        ),
        test=_COMMIT + "test_after_a_write_that_failed_nothing_is_acknowledged",
    ),
    Fault(
        name="a commit that failed counts",
        rule="persist, then speak",
        file="database/group_commit.py",
        edits=(
            (
                '        ledger.connection.execute("COMMIT")\n',
                "        with contextlib.suppress(sqlite3.Error):\n"
                '            ledger.connection.execute("COMMIT")\n',
            ),
        ),
        test=_COMMIT + "test_after_a_write_that_failed_nothing_is_acknowledged",
    ),
    Fault(
        name="what a failed work wrote is committed with the others",
        rule="a decision is stored whole or not at all",
        file="database/group_commit.py",
        edits=(('("ROLLBACK TO work",)', "()"),),
        test=_COMMIT + "test_one_work_that_fails_undoes_its_own_writes_alone",
    ),
    Fault(
        name="what a failed work wrote while nothing else waited is committed",
        rule="a decision is stored whole or not at all",
        file="database/group_commit.py",
        edits=(('("ROLLBACK", "BEGIN IMMEDIATE")', "()"),),
        test=_COMMIT + "test_a_work_that_fails_while_nothing_else_waits_leaves_nothing",
    ),
    Fault(
        name="a tracking row is left to the next transaction",
        rule="events and writes of a decision are one transaction",
        file="database/ledger.py",
        edits=(
            (
                "        for event in decision.events:\n            self._track(event)\n",
                "        for event in self.__dict__.pop('late', ()):\n"
                "            self._track(event)\n"
                "        self.late = decision.events\n",
            ),
        ),
        test="database/test_database_ledger.py::test_events_and_writes_of_a_decision_are_one_transaction",
    ),
    Fault(
        name="a content is dropped before the commit that drops its message",
        rule="no message without its content",
        file="database/group_commit.py",
        edits=(
            (
                '        ledger.connection.execute("COMMIT")\n',
                "        for path in ledger.freed:\n"
                "            Path(path).unlink(missing_ok=True)\n"
                '        ledger.connection.execute("COMMIT")\n',
            ),
        ),
        test=_COMMIT + "test_a_content_file_stays_when_the_commit_that_drops_it_fails",
    ),
    Fault(
        name="a content file has its row before its fsync",
        rule="no message without its content",
        file="database/content.py",
        edits=(
            (
                "        await asyncio.to_thread(self._sync)\n",
                "        asyncio.get_running_loop().call_soon(self._sync)\n",
            ),
        ),
        test=_FLUSHED,
    ),
    Fault(
        name="the directory of a content file is not flushed",
        rule="no message without its content",
        file="database/content.py",
        edits=(
            (
                "            self._file = None\n            sync_directory(self._directory)\n",
                "            self._file = None\n",
            ),
        ),
        test=_FLUSHED,
    ),
    Fault(
        name="an fsync that failed is tried again",
        rule="a failed fsync is never retried",
        file="database/content.py",
        edits=(
            (
                "            os.fsync(self._file)\n",
                "            try:\n"
                "                os.fsync(self._file)\n"
                "            except OSError:\n"
                "                os.fsync(self._file)\n",
            ),
        ),
        test="reception/test_failing_disk.py::test_a_flush_that_failed_is_not_tried_again",
    ),
    Fault(
        name="a disk that cannot flush passes for a full one",
        rule="after a failed fsync nothing is acknowledged any more",
        file="reception/intake.py",
        edits=(("        if not is_full(error):\n", "        if False:\n"),),
        test="reception/test_failing_disk.py::test_a_content_that_cannot_be_flushed_ends_the_node",
    ),
    Fault(
        name="octets that other messages use are dropped with their message",
        rule="content that a message uses does not expire",
        file="database/sharing.py",
        edits=(("    if heir is not None:\n", "    if heir is not None and not heir:\n"),),
        test=_SHARING + "test_the_octets_stay_until_the_last_message_that_uses_them_is_dropped",
    ),
    Fault(
        name="a good content is given to one of the messages that use it, and the others lose theirs",
        rule="a content stays as long as a message uses it",
        file="database/sharing.py",
        edits=(("    for one in alike:\n        put(run, one, Content(of=message_id))\n", ""),),
        test=_SHARING + "test_a_good_content_replaces_the_damaged_one_for_all_that_expect_it",
    ),
)
