"""Faults in how workers are started again, emptied and ended."""

from __future__ import annotations

from .planting import Fault

_EMPTY = "a worker that leaves ends once it owns nothing and holds nothing"
_PURE = "service/test_supervision.py::"
_LINE = "service/test_lifeline.py::"
_CORE = "core/ownership/test_leaving.py::"

SUPERVISING = (
    Fault(
        name="a worker that leaves is ended before it is empty",
        rule=_EMPTY,
        file="service/supervision.py",
        edits=((" and (one.empty or not one.leaves):", ":"),),
        test=f"{_PURE}test_more_workers_start_at_once_and_those_that_go_are_emptied_before_they_end",
    ),
    Fault(
        name="a worker that dies while it leaves has left",
        rule=_EMPTY,
        file="service/supervision.py",
        edits=(("    if one.told and one.leaves and one.empty:\n", "    if one.leaves:\n"),),
        test=f"{_PURE}test_a_worker_that_dies_while_it_leaves_starts_again_to_be_emptied",
    ),
    Fault(
        name="a worker that fails is started again every second",
        rule="a worker that ends is started again ever more rarely",
        file="service/supervision.py",
        edits=((" * 2.0 ** min(failures - 1, 16)", ""),),
        test=f"{_PURE}test_a_worker_that_fails_again_and_again_is_started_ever_more_rarely_at_least_once_a_minute",
    ),
    Fault(
        name="a worker that hangs is asked for ever",
        rule="a worker that does not answer is killed, and starts again",
        file="service/supervision.py",
        edits=(("Do.KILL if one.silent >= SILENT else Do.ASK", "Do.ASK"),),
        test=f"{_LINE}test_a_worker_that_does_not_answer_is_killed_and_starts_again_and_the_others_stay",
    ),
    Fault(
        name="a worker does not answer its supervisor",
        rule="a worker that does not answer is killed, and starts again",
        file="service/worker.py",
        edits=(("                self.tell(ANSWER)\n", "                pass\n"),),
        test=f"{_LINE}test_a_worker_answers_its_supervisor",
    ),
    Fault(
        name="a supervisor that was frozen counts the time as its workers' silence",
        rule="a worker that does not answer is killed, and starts again",
        file="service/supervision.py",
        edits=(("ask_at=now + ASK, silent", "ask_at=one.ask_at + ASK, silent"),),
        test=f"{_PURE}test_a_worker_is_not_killed_because_its_supervisor_was_frozen",
    ),
    Fault(
        name="a copy counts though its holder leaves",
        rule="a holder that leaves keeps its copy until another one counts",
        file="core/ownership/leaving.py",
        edits=(
            ("    lost = in_state(copy, name, HolderState.HOLDING, HolderState.LOST)\n", "    lost = copy\n"),
        ),
        test=f"{_CORE}test_what_the_member_alone_holds_gets_another_copy_before_the_member_may_forget_its_own",
    ),
    Fault(
        name="a holder that leaves is not told that another copy counts",
        rule=_EMPTY,
        file="core/ownership/leaving.py",
        edits=(("    if counts:\n", "    if False:\n"),),
        test=f"{_CORE}test_a_member_whose_copy_is_one_of_several_may_forget_it_at_once",
    ),
    Fault(
        name="a sibling that leaves keeps the copy that never counted",
        rule=_EMPTY,
        file="core/ownership/leaving.py",
        edits=(
            ("in_state(copy, name, HolderState.BESIDE, HolderState.SUPERSEDED), tuple(told)", "copy, ()"),
        ),
        test=f"{_CORE}test_a_sibling_that_leaves_may_forget_at_once_what_never_counted",
    ),
    Fault(
        name="siblings forget a worker that has yet to leave",
        rule=_EMPTY,
        file="service/supervisor.py",
        edits=(
            ("        return max(self.settings.workers, *there)\n", "        return self.settings.workers\n"),
        ),
        test=f"{_LINE}test_siblings_count_a_worker_that_goes_until_it_has_left",
    ),
    Fault(
        name="a worker that does not end holds up the stop",
        rule="a stop ends",
        file="service/supervisor.py",
        edits=(("            _signal(one.process, signal.SIGKILL)\n", ""),),
        test=f"{_LINE}test_a_worker_that_does_not_end_in_time_is_killed",
    ),
    Fault(
        name="what is due is looked at once for several acts",
        rule="a supervisor does what is due now",
        file="service/supervisor.py",
        edits=(
            (
                "            while not stop.is_set() and "
                "(found := supervision.due(self._known, monotonic())):\n"
                "                await self._do(*found[0])\n",
                "            for do, number in supervision.due(self._known, monotonic()):\n"
                "                await self._do(do, number)\n",
            ),
        ),
        test=f"{_LINE}test_fewer_workers_wanted_while_they_start_are_no_error_and_none_is_forgotten",
    ),
    Fault(
        name="a process that has just ended ends the stop",
        rule="all workers are told to end",
        file="service/supervisor.py",
        edits=(
            (
                "    with suppress(ProcessLookupError):  # it has just ended by itself\n",
                "    with suppress():\n",
            ),
        ),
        test=f"{_LINE}test_a_worker_that_has_just_ended_keeps_no_other_from_being_told_to_end",
    ),
    Fault(
        name="a reload that a member asked for is one worker's",
        rule="all of a node take the settings that one takes",
        file="service/supervisor.py",
        edits=(("                self._again.set()\n", "                pass\n"),),
        test=f"{_LINE}test_a_reload_that_a_member_asked_a_worker_for_is_the_whole_nodes",
    ),
    Fault(
        name="a member that leaves is handed mail because it answers",
        rule="nothing is handed over to a member that leaves",
        file="members/boundary.py",
        edits=(("(self._skipped, self._leaving)", "(self._skipped,)"),),
        test="members/test_boundary.py::"
        "test_a_member_that_leaves_is_asked_only_when_no_other_is_left_however_well_it_answers",
    ),
)
