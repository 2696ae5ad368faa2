"""Who can be reached, who is blamed for silence, and when silence promotes nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from ledger_at_hand import A, B, C

from shadowrelay.core.boundary import Boundary
from shadowrelay.core.heartbeat import Alarm
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.policy import Policy
from shadowrelay.core.shadow_servers import MemberPlace

POLICY = Policy()
SPAN = POLICY.shadow_resubmit_time_span.total_seconds()


def place(name: ServerName) -> MemberPlace:
    return MemberPlace(name, "site", f"host-{name}")


def boundary_of(*others: ServerName) -> Boundary:
    return Boundary(place(A), tuple(place(name) for name in others), POLICY)


def silent(boundary: Boundary, name: ServerName) -> tuple[Alarm, ...]:
    """What is called for at the end of the time span."""
    boundary.failed(name, 1000.0, "down")
    return boundary.failed(name, 1000.0 + SPAN, "down")


def test_a_node_that_reaches_another_member_promotes_by_time() -> None:
    assert Alarm.PROMOTE in silent(boundary_of(B, C), B)


def test_contact_in_either_direction_counts_for_three_heartbeats() -> None:
    boundary = boundary_of(B, C)
    heartbeats = 3 * POLICY.shadow_heartbeat_frequency.total_seconds()
    assert boundary.sighted(1000.0) == frozenset()
    boundary.answered(B, 1000.0)
    boundary.called(C, 1001.0)
    assert boundary.sighted(1000.0 + heartbeats) == {B, C}
    boundary.failed(B, 1002.0, "down")
    assert boundary.sighted(1001.0 + heartbeats) == {C}
    assert boundary.sighted(1002.0 + heartbeats) == frozenset()


def test_a_node_alone_for_the_isolated_time_span_may_promote() -> None:
    policy = replace(POLICY, isolated_resubmit_time_span=timedelta(seconds=2 * SPAN))
    boundary = Boundary(place(A), (place(B), place(C)), policy)
    assert Alarm.PROMOTE_ALONE not in silent(boundary, B)
    assert Alarm.PROMOTE_ALONE in boundary.failed(B, 1000.0 + 2 * SPAN, "down")
    assert Alarm.PROMOTE_ALONE not in silent(boundary_of(B, C), B)  # never, by default


def test_in_a_boundary_of_two_time_alone_decides() -> None:
    assert Alarm.PROMOTE in silent(boundary_of(B), B)


def test_a_retired_member_does_not_count_as_one_that_could_be_reached() -> None:
    boundary = boundary_of(B, C)
    boundary.retire(C)
    assert Alarm.PROMOTE in silent(boundary, B)
    assert list(boundary.candidates(0.0)) == []
    boundary.called(C, 1.0)
    boundary.answered(C, 1.0)
    assert C not in boundary.reachable()


def test_a_member_that_introduced_itself_is_waited_for_until_it_was_asked() -> None:
    """What was taken over from it is asked about at this contact, and not concluded before the answer."""
    boundary = boundary_of(B, C)
    boundary.failed(B, 1000.0, "down")
    assert B not in boundary.reachable()
    boundary.greeted(B)
    assert B in boundary.reachable()
    assert boundary.watches[B].silent  # it is no contact yet
    boundary.failed(B, 1001.0, "no answer")
    assert B not in boundary.reachable()
    assert boundary.watches[B].failures == 2


def test_contact_counts_from_when_it_was_asked_for() -> None:
    """A frozen process reads, when it wakes, an answer that was given long ago."""
    boundary = boundary_of(B, C)
    boundary.answered(B, 1000.0)
    assert boundary.cut_off(1000.0 + SPAN - 1) == ()
    assert boundary.cut_off(1000.0 + SPAN) == (B,)
    assert boundary.cut_off(1001.0 + SPAN) == (B,)  # until it is written down
    boundary.noted(B, 1001.0 + SPAN)
    assert boundary.cut_off(1002.0 + SPAN) == ()
    boundary.answered(B, 1003.0 + SPAN)
    assert boundary.cut_off(1004.0 + SPAN) == ()


def test_a_silence_that_ended_before_anybody_noted_it_has_still_to_be_noted() -> None:
    """The first word after it says nothing of what was promoted in it."""
    boundary = boundary_of(B, C)
    boundary.answered(B, 1000.0)
    boundary.answered(C, 1000.0)
    boundary.failed(B, 1002.0, "down")
    boundary.answered(B, 1000.0 + SPAN)
    boundary.answered(C, 999.0 + SPAN)
    assert boundary.cut_off(1001.0 + SPAN) == (B,)
    boundary.noted(B, 1001.0 + SPAN)
    assert boundary.cut_off(1002.0 + SPAN) == ()


def test_at_hand_is_who_answered_within_the_time_span_and_has_not_failed_since() -> None:
    boundary = boundary_of(B, C)
    assert boundary.at_hand(1000.0) == set()
    boundary.answered(B, 1000.0)
    boundary.answered(C, 1000.0)
    assert boundary.at_hand(1001.0) == {B, C}
    boundary.failed(B, 1002.0, "down")
    assert boundary.at_hand(1003.0) == {C}
    assert boundary.at_hand(1000.0 + SPAN) == set()
    boundary.noted(C, 1000.0 + SPAN)
    assert boundary.at_hand(1000.0 + SPAN) == set()


def test_a_member_that_calls_can_be_reached_but_is_no_newer_contact() -> None:
    boundary = boundary_of(B, C)
    boundary.answered(B, 1000.0)
    boundary.failed(B, 1001.0, "down")
    boundary.called(B, 1002.0)
    assert B in boundary.reachable()
    assert boundary.cut_off(1000.0 + SPAN) == (B,)


def test_a_member_that_failed_to_hold_a_copy_is_not_asked_for_a_while() -> None:
    boundary = boundary_of(B, C)
    boundary.skip(B, 1000.0)
    interval = POLICY.member_skip_interval.total_seconds()
    assert set(boundary.candidates(1000.0)) == {C}
    assert set(boundary.candidates(1000.0 + interval)) == {B, C}


def test_a_candidate_that_fails_meanwhile_drops_out_of_what_remains() -> None:
    boundary = boundary_of(B, C)
    candidates = boundary.candidates(1000.0)
    first = next(candidates)
    boundary.skip(first, 1000.0)
    assert first not in set(candidates)
