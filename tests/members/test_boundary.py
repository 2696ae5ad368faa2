"""Who can be reached, who is blamed for silence, and when silence promotes nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from ledger_at_hand import A, B, C

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.ownership.heartbeat import Alarm
from shadowrelay.core.policy import Policy, ShadowMessagePreference
from shadowrelay.core.reception.redundancy import Concern, Leg, OfferAttempt
from shadowrelay.core.reception.shadow_servers import MemberPlace, Turn
from shadowrelay.members.boundary import SECOND_CHANCE, Boundary

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


def test_a_member_that_leaves_is_asked_only_when_no_other_is_left_however_well_it_answers() -> None:
    """Two members that leave would hand the same mail to each other for ever."""
    boundary = boundary_of(B, C)
    boundary.leaves(B, 1000.0)
    boundary.answered(B, 1001.0)
    assert boundary.skipped(1002.0) == {B}
    assert {boundary.candidates(1002.0).after(()) for _ in range(4)} == {Turn(C)}
    assert boundary.skipped(1016.0) == frozenset()


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
    assert firsts(boundary, 0.0) == {B}
    boundary.retire(B)
    assert firsts(boundary, 0.0) == set()
    boundary = boundary_of(B, C)
    boundary.retire(C)
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


def offered(boundary: Boundary, name: ServerName, leg: Leg, concern: Concern, at: float) -> None:
    boundary.attempted(OfferAttempt(name, leg, 1, "", concern=concern), at)


def firsts(boundary: Boundary, at: float) -> set[ServerName]:
    """Whom the next messages are offered to first."""
    return {turn.to for _ in range(4) if (turn := boundary.candidates(at).first)}


def test_a_member_that_failed_to_hold_a_copy_is_not_asked_for_a_while() -> None:
    boundary = boundary_of(B, C)
    offered(boundary, B, Leg.REFUSED, Concern.MEMBER, 1000.0)
    interval = POLICY.member_skip_interval.total_seconds()
    assert firsts(boundary, 1000.0) == {C}
    assert firsts(boundary, 1000.0 + interval) == {B, C}


@pytest.mark.parametrize("concern", [Concern.COPY, Concern.SESSION])
def test_a_copy_that_is_refused_or_a_session_that_broke_says_nothing_of_the_member(concern: Concern) -> None:
    boundary = boundary_of(B, C)
    offered(boundary, B, Leg.REFUSED, concern, 1000.0)
    assert firsts(boundary, 1000.0) == {B, C}


def test_a_member_that_takes_a_copy_is_asked_again_like_any_other() -> None:
    boundary = boundary_of(B, C)
    offered(boundary, B, Leg.LOST, Concern.MEMBER, 1000.0)
    offered(boundary, B, Leg.ACKNOWLEDGED, Concern.MEMBER, 1001.0)
    assert firsts(boundary, 1001.0) == {B, C}


def test_a_candidate_that_fails_meanwhile_comes_last_in_what_remains() -> None:
    boundary = boundary_of(B, C, ServerName("d"))
    candidates = boundary.candidates(1000.0)
    assert candidates.first
    first = candidates.first.to
    failed, other = sorted({B, C, ServerName("d")} - {first})
    offered(boundary, failed, Leg.REFUSED, Concern.MEMBER, 1000.0)
    refused = [OfferAttempt(first, Leg.REFUSED, 1, "", concern=Concern.COPY)]
    assert candidates.after(refused) == Turn(other)
    assert candidates.healthy(refused) == Turn(other)
    refused.append(OfferAttempt(other, Leg.REFUSED, 2, "", concern=Concern.COPY))
    assert candidates.healthy(refused) is None


def test_a_message_has_the_attempts_of_the_settings_under_which_it_began() -> None:
    boundary = boundary_of(B, C)
    candidates = boundary.candidates(1000.0, replace(POLICY, max_retries_for_local_site_shadow=1))
    assert candidates.first
    refused = [OfferAttempt(candidates.first.to, Leg.REFUSED, 1, "", concern=Concern.COPY)]
    assert candidates.after(refused) is None
    assert boundary.candidates(1000.0).after(refused), "by the settings of now there is another attempt"


def test_a_message_goes_to_the_sites_of_the_settings_under_which_it_began() -> None:
    boundary = boundary_of(B, C)
    boundary.admit(replace(boundary.places[0], site="elsewhere"))
    remote = replace(POLICY, shadow_message_preference_setting=ShadowMessagePreference.REMOTE_ONLY)
    local = replace(POLICY, shadow_message_preference_setting=ShadowMessagePreference.LOCAL_ONLY)
    assert {boundary.candidates(1000.0, remote).first for _ in range(3)} == {Turn(B)}
    boundary.policy = remote
    assert {boundary.candidates(1000.0, local).first for _ in range(3)} == {Turn(C)}


def test_an_owner_is_cut_off_after_the_span_that_it_relies_on_and_promotes_after_its_own() -> None:
    longer = replace(POLICY, shadow_resubmit_time_span=timedelta(seconds=2 * SPAN))
    boundary = Boundary(place(A), (place(B),), longer, POLICY)
    boundary.answered(B, 1000.0)
    assert Alarm.PROMOTE not in boundary.failed(B, 1000.0, "down")
    assert boundary.cut_off(1000.0 + SPAN - 1) == ()
    assert boundary.cut_off(1000.0 + SPAN) == (B,)
    assert Alarm.PROMOTE not in boundary.failed(B, 1000.0 + SPAN, "down")
    assert Alarm.PROMOTE in boundary.failed(B, 1000.0 + 2 * SPAN, "down")


def test_the_first_one_stays_the_first_though_it_fails_meanwhile() -> None:
    """A session with it may be open, and part of the message on its way."""
    boundary = boundary_of(B, C)
    candidates = boundary.candidates(1000.0)
    first = candidates.after([])
    assert first
    offered(boundary, first.to, Leg.REFUSED, Concern.MEMBER, 1000.0)
    assert candidates.after([]) == first


def test_only_a_member_that_failed_lately_gets_little_time() -> None:
    boundary = boundary_of(B)
    assert boundary.patience(B, 1000.0) is None
    offered(boundary, B, Leg.REFUSED, Concern.MEMBER, 1000.0)
    assert boundary.patience(B, 1000.0) == SECOND_CHANCE
    boundary.answered(B, 1001.0)
    assert boundary.patience(B, 1001.0) is None
    boundary.failed(B, 1002.0, "down")
    assert boundary.patience(B, 1002.0) == SECOND_CHANCE


def test_the_workers_of_a_machine_have_one_voice_about_the_time_and_those_of_ours_have_none() -> None:
    def worker(number: int, host: int) -> MemberPlace:
        return MemberPlace(ServerName(f"w{number}.mx{host}"), "site", f"host-{host}")

    boundary = Boundary(worker(1, 1), (worker(2, 1), worker(2, 2), worker(1, 2), worker(1, 3)), POLICY)
    voices = {place.name: boundary.voice_of(place.name) for place in boundary.places}
    assert voices == {"w2.mx1": None, "w2.mx2": "w1.mx2", "w1.mx2": "w1.mx2", "w1.mx3": "w1.mx3"}
    assert boundary.voice_of(ServerName("gone")) is None
