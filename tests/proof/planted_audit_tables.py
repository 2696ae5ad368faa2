"""Faults in the tables: what is published, what is removed, and what a message or a sum is made of."""

from __future__ import annotations

from dataclasses import replace

from .planting import Fault, in_audit

_ONE = "one run publishes a version, and a reader sees whole ones"
_STAYS = "what somebody may read stays"
_ONCE = "a row counts once"
_BEFORE = "what cannot be done is known before Spark is started"


def _in(file: str, *faults: tuple[str, str, str, str, str], below: str = "spark/tables") -> list[Fault]:
    found = in_audit(f"{below}/{file}", *faults)
    return [replace(one, test=one.test.replace("test_audit_", "test_tables_")) for one in found]


TABLES = (
    *_in(
        "beforehand.py",
        (
            "a directory that is not mounted has nothing new",
            _BEFORE,
            "            raise none_in(one)\n",
            "            continue\n",
            "store.py::test_what_cannot_be_ingested_is_found_before_spark_is_started",
        ),
        (
            "tables are kept among the logs",
            _BEFORE,
            "        if system.equals(tables.system) and ",
            "        if False and ",
            "store.py::test_what_cannot_be_ingested_is_found_before_spark_is_started",
        ),
        (
            "what was written to try a place stays",
            _BEFORE,
            "            tables.system.delete_file(probe)\n",
            "",
            "store.py::test_a_place_beside_the_logs_is_written_to_and_nothing_is_left_of_that",
        ),
        below="cli",
    ),
    *_in(
        "publishing.py",
        (
            "the last one to publish wins",
            _ONE,
            "    except FileExistsError:\n        return False",
            "    except FileExistsError:\n        os.replace(draft, directory / name)\n        draft.touch()",
            "store.py::test_of_runs_that_begin_at_once_one_publishes_and_the_others_are_told",
        ),
        (
            "other claims are not looked at",
            _ONE,
            "            if not others:",
            "            if True:",
            "store.py::test_of_runs_that_begin_at_once_one_publishes_and_the_others_are_told",
        ),
        (
            "a number that was removed is published again",
            _ONE,
            "    if place.versions()[-1:] >= [manifest.version]:",
            "    if False:",
            "store.py::test_a_run_that_slept_while_its_number_was_removed_publishes_nothing",
        ),
        (
            "a replaced file is removed within the hour",
            _STAYS,
            "(going if old and now - datetime.fromisoformat(one.at) >= KEPT_TIME else staying)",
            "(going if old else staying)",
            "store.py::test_a_replaced_file_is_removed_some_manifests_later_and_not_within_the_hour",
        ),
        (
            "files that were replaced are taken for those of dead runs",
            _STAYS,
            "    named |= {one.path for one in manifest.replaced}\n",
            "",
            "store.py::test_what_a_dead_run_left_is_removed_when_nobody_can_publish_it_any_more",
        ),
    ),
    *_in(
        "logs.py",
        (
            "a log that grew is known",
            _ONCE,
            "        return planning.beyond(logs, self.offset)",
            "        return [log for log in logs if log.uri not in self.rows]",
            "store.py::test_a_log_is_new_until_it_was_read_with_its_size",
        ),
        (
            "only the next log is compared",
            _ONCE,
            "                if last > reach:\n",
            "                if True:\n",
            "store.py::test_logs_that_have_rows_of_one_another_are_found_by_their_sequences",
        ),
    ),
    *_in(
        "silver.py",
        (
            "a row that two files have counts twice",
            _ONCE,
            "FROM copied WHERE copy = 1",
            "FROM copied",
            "spark.py::test_messages_are_what_plain_python_makes_of_the_same_events",
        ),
    ),
    *_in(
        "ingest.py",
        (
            "older events of a log that grew stay",
            _ONCE,
            "        again = read & self.known.rows.keys()\n",
            "        again: set[str] = set()\n",
            "spark.py::test_logs_that_come_late_and_one_that_grew_give_the_tables_of_all",
        ),
        (
            "messages of other logs are made once more",
            _ONCE,
            "if {one.path for one in files} - new_events:",
            "if {one.path for one in files} - set(self.written):",
            "spark.py::test_a_stream_and_files_that_are_read_again_give_the_tables_of_all",
        ),
        (
            "a message is made of its new events alone",
            "a message is made of all its events",
            "        files = [one for one in current if one.day in concerned]",
            "        files = [one for one in current if one.path in new_events]",
            "spark.py::test_logs_that_come_late_and_one_that_grew_give_the_tables_of_all",
        ),
    ),
)
