"""Faults in the verdict on Spark: states that are lost or counted twice, suspects that nobody judges."""

from __future__ import annotations

from dataclasses import replace

from .planting import Fault, in_audit

_SAME = "both engines say the same"
_TOLD = "what cannot be read is told"
_NOTHING = "who is interrupted leaves nothing"


def _in(file: str, *faults: tuple[str, str, str, str, str]) -> list[Fault]:
    found = in_audit(file, *faults)
    return [replace(one, test=one.test.replace("test_audit_spark", "test_spark")) for one in found]


SPARK = (
    *_in(
        "spark/states.py",
        (
            "a task makes blocks of the same states again",
            _SAME,
            "                waiting = []\n",
            "",
            "spark_states.py::test_every_log_has_its_facts_and_every_state_is_in_a_block_of_its_bucket",
        ),
        (
            "the states that a task has at its end are in no block",
            _SAME,
            "        yield from self._blocks(waiting)\n\n",
            "\n",
            "spark_states.py::test_every_log_has_its_facts_and_every_state_is_in_a_block_of_its_bucket",
        ),
        (
            "a log has another number in each task",
            _SAME,
            "_Part([(numbers[log.uri], log) for log in some])",
            "_Part(list(enumerate(some)))",
            "spark_states.py::test_the_number_of_a_log_is_its_place_in_the_list_whatever_the_order",
        ),
    ),
    *_in(
        "spark/verdict.py",
        (
            "only the first suspects of a bucket are judged",
            _SAME,
            "    while some := list(islice(suspects, many)):",
            "    if some := list(islice(suspects, many)):",
            "spark_states.py::test_tasks_merge_each_bucket_and_judge_all_its_suspects_some_at_a_time",
        ),
    ),
    *_in(
        "spark/places.py",
        (
            "octets that cannot be read again have no name",
            _TOLD,
            "raise OSError(problem.errno or errno.EIO, told, uri) from problem",
            "raise",
            "spark_states.py::test_logs_in_a_bucket_have_the_states_that_they_have_in_a_directory",
        ),
    ),
    *_in(
        "interruption.py",
        (
            "Ctrl-C ends the start of Spark in its middle",
            _NOTHING,
            "        if asked and callable(before):\n            before(number, frame)\n",
            "        if callable(before):\n            before(number, frame)\n",
            "interruption.py::test_an_interruption_that_is_put_off_comes_at_the_end_and_a_second_one_at_once",
        ),
    ),
)
