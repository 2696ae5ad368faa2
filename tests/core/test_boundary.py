"""Who can be reached, who is blamed for silence, and when silence promotes nothing."""

from __future__ import annotations

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


def test_a_node_that_reaches_none_of_several_members_promotes_nothing_by_time() -> None:
    boundary = boundary_of(B, C)
    boundary.failed(C, 1000.0, "down")
    assert Alarm.PROMOTE not in silent(boundary, B)
    assert boundary.isolated
    assert Alarm.HOLDER_LOST in boundary.failed(B, 1001.0 + SPAN, "down")


def test_a_cut_off_node_promotes_as_soon_as_it_reaches_one_member_again() -> None:
    boundary = boundary_of(B, C)
    boundary.failed(C, 1000.0, "down")
    silent(boundary, B)
    boundary.answered(C, 1001.0 + SPAN)
    assert Alarm.PROMOTE in boundary.failed(B, 1002.0 + SPAN, "down")


def test_in_a_boundary_of_two_time_alone_decides() -> None:
    assert Alarm.PROMOTE in silent(boundary_of(B), B)


def test_a_retired_member_does_not_count_as_one_that_could_be_reached() -> None:
    boundary = boundary_of(B, C)
    boundary.retire(C)
    assert Alarm.PROMOTE in silent(boundary, B)
    assert list(boundary.candidates(0.0)) == []
    boundary.called(C)
    boundary.answered(C, 1.0)
    assert C not in boundary.reachable()


def test_contact_counts_from_when_it_was_asked_for() -> None:
    """A frozen process reads, when it wakes, an answer that was given long ago."""
    boundary = boundary_of(B, C)
    boundary.answered(B, 1000.0)
    assert boundary.cut_off(1000.0 + SPAN - 1) == ()
    assert boundary.cut_off(1000.0 + SPAN) == (B,)
    assert boundary.cut_off(1001.0 + SPAN) == ()  # once


def test_a_member_that_calls_can_be_reached_but_is_no_newer_contact() -> None:
    boundary = boundary_of(B, C)
    boundary.answered(B, 1000.0)
    boundary.failed(B, 1001.0, "down")
    boundary.called(B)
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
