"""The verdict: what counts as lost, unexpected, duplicated and recovered."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from .bed.cutting import Role as Cut
from .bed.cutting import before_the_cut
from .bed.strace import Fault
from .bed.verdict import Cause, Told, judge, struck
from .bed.walking import Boundary, Outcome, Thread
from .bed.walking import Role as Owned
from .power_cuts import Report
from .system_calls import Report as Walked
from .system_calls import boundaries, reachable


def row(second: int, event: str = "SENDEXTERNAL") -> dict[str, str]:
    at = f"2026-01-01T00:00:{second:02}.000Z"
    doubt = "S:InDoubt=true" if event == "DEFER" else ""
    return {
        "message-id": "<a@client.lab.test>",
        "event-id": event,
        "date-time": at,
        "custom-data": doubt,
    }


def promoted(second: int) -> dict[str, str]:
    return row(second, "RESUBMIT")


def test_what_was_accepted_and_did_not_arrive_is_lost() -> None:
    found = judge({"a": Told.ACCEPTED, "b": Told.ACCEPTED}, {"b": 1})
    assert (found.lost, found.kept) == (("a",), False)


def test_what_was_refused_or_never_sent_must_not_arrive() -> None:
    told = {"a": Told.REFUSED, "b": Told.NOTHING_SENT, "c": Told.REFUSED}
    found = judge(told, {"a": 1, "b": 1, "stranger": 1})
    assert (found.unexpected, found.kept) == (("a", "b", "stranger"), False)


def test_without_a_reply_either_is_right() -> None:
    found = judge({"a": Told.NO_REPLY, "b": Told.NO_REPLY}, {"a": 1})
    assert (found.recovered, found.lost, found.unexpected, found.kept) == (1, (), (), True)


@pytest.mark.parametrize(
    ("arrived", "rows", "cause"),
    [
        (2, [row(1)], Cause.UNRECORDED),
        (2, [row(1), promoted(2), row(3)], Cause.PROMOTED),
        (2, [promoted(1), row(2), row(3)], Cause.PROMOTED),  # by an owner that was frozen
        (2, [promoted(2), row(3)], Cause.PROMOTED),
        (3, [row(1), promoted(2), row(3)], Cause.PROMOTED),  # and one whose record was lost
        (2, [row(1), row(2)], Cause.UNEXPLAINED),
        (2, [row(1), row(2), promoted(3)], Cause.UNEXPLAINED),
        (3, [row(1), promoted(2), row(3), row(4)], Cause.UNEXPLAINED),
        (3, [row(1), row(2)], Cause.UNEXPLAINED),
    ],
)
def test_each_delivery_past_the_first_needs_a_lost_record_or_a_promotion_of_its_own(
    arrived: int, rows: list[dict[str, str]], cause: Cause
) -> None:
    found = judge({"a": Told.ACCEPTED}, {"a": arrived}, rows, {"a": 1})
    assert found.duplicates == {cause: ("a",)}
    assert found.kept is (cause is not Cause.UNEXPLAINED)


@pytest.mark.parametrize(
    ("rows", "ends", "cause"),
    [
        ([row(1)], [103.0], Cause.UNRECORDED),
        ([row(1)], [], Cause.UNEXPLAINED),
        ([row(1)], [90.0, 120.0], Cause.UNEXPLAINED),  # the second delivery needs no explanation
        ([row(1), row(1, "DEFER")], [], Cause.UNRECORDED),  # the reply was lost
        ([row(1), row(2)], [103.0], Cause.UNEXPLAINED),  # both are on record
    ],
)
def test_a_record_is_missing_only_where_a_node_ended_or_the_reply_was_lost(
    rows: list[dict[str, str]], ends: list[float], cause: Cause
) -> None:
    found = judge({"a": Told.ACCEPTED}, {"a": 2}, rows, struck({"a": (120.0, 100.0)}, ends))
    assert found.duplicates == {cause: ("a",)}


def test_an_acknowledgement_from_a_machine_without_power_does_not_count() -> None:
    dark = [(10.0, 10.1)]
    assert before_the_cut(Told.ACCEPTED, 9.99, dark) is Told.ACCEPTED
    assert before_the_cut(Told.ACCEPTED, 10.05, dark) is Told.NO_REPLY
    assert before_the_cut(Told.ACCEPTED, 11.0, dark) is Told.ACCEPTED
    assert before_the_cut(Told.REFUSED, 10.05, dark) is Told.REFUSED


@pytest.mark.parametrize(("cuts", "kept"), [(0, False), (1, True), (2, True), (3, False)])
def test_power_cuts_under_which_hardly_anything_was_accepted_show_nothing(cuts: int, *, kept: bool) -> None:
    told = {"a": Told.ACCEPTED, "b": Told.ACCEPTED, "c": Told.REFUSED}
    report = Report(Cut.OWNER, "ext4", cuts, 0, 1.0, judge(told, {"a": 1, "b": 1}))
    assert report.kept is kept
    assert bool(report.tree()["problems"]) is not kept


def test_a_whole_walk_has_every_fault_at_every_call_of_every_thread() -> None:
    measured = {100: {Thread.LOOP: 2, Thread.DATABASE: 3}}
    walked = boundaries(measured, (Fault.KILL, Fault.EIO), 1.0, random.Random(1))
    wanted = {
        (Boundary(100, thread, n), fault)
        for fault in (Fault.KILL, Fault.EIO)
        for thread, calls in measured[100].items()
        for n in range(1, calls + 1)
    }
    assert wanted <= set(walked)
    assert len(walked) == len(set(walked))


def test_a_sample_is_a_part_of_the_calls_and_the_same_for_the_same_seed() -> None:
    measured = {100: {Thread.DATABASE: 100}}

    def sample(seed: int) -> list[tuple[Boundary, Fault]]:
        return boundaries(measured, tuple(Fault), 0.1, random.Random(seed))

    assert len({boundary for boundary, _ in sample(1)}) == 10
    assert sample(1) == sample(1) != sample(2)


def walked(faults: dict[Fault, tuple[int, int]]) -> Walked:
    """So many were planned, and so many of them reached."""
    report = Walked(Owned.OWNER, {}, Counter({fault: planned for fault, (planned, _) in faults.items()}))
    for fault, (planned, reached) in faults.items():
        for n in range(planned):
            call = "write socket" if n < reached else None
            at = Boundary(100, Thread.LOOP, n)
            report.outcomes.append(Outcome(at, fault, call, "a", Told.ACCEPTED, 0, False))
    report.verdict = judge({"a": Told.ACCEPTED}, {"a": 1})
    return report


@pytest.mark.parametrize(
    ("faults", "kept"),
    [
        ({Fault.KILL: (320, 210), Fault.EIO: (320, 200)}, True),
        ({Fault.KILL: (6, 1), Fault.EIO: (6, 6), Fault.ENOSPC: (5, 0)}, True),  # a sample
        ({Fault.KILL: (17, 3)}, False),
        ({Fault.KILL: (1, 0)}, False),
        ({Fault.KILL: (320, 320), Fault.EIO: (320, 0)}, False),
        ({}, False),
    ],
)
def test_faults_of_which_hardly_any_was_reached_show_nothing(
    faults: dict[Fault, tuple[int, int]], *, kept: bool
) -> None:
    assert walked(faults).kept is kept


def test_past_the_end_of_a_life_the_rest_of_its_thread_is_left_out() -> None:
    planned = boundaries({100: {Thread.LOOP: 10, Thread.FILES: 1}}, (Fault.KILL,), 1.0, random.Random(1))
    done: list[Outcome] = []
    for boundary, fault in reachable(planned, done):
        call = "write socket" if boundary.thread is Thread.LOOP and boundary.n <= 4 else None
        done.append(Outcome(boundary, fault, call, "a", Told.ACCEPTED, 0, False))
    walked = [(one.boundary.thread, one.boundary.n) for one in done]
    assert walked == [(Thread.LOOP, n) for n in range(1, 8)] + [(Thread.FILES, n) for n in range(1, 4)]
