"""Which members are asked for a copy: preference, numbers of attempts, turns, and what a failure says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from ledger_at_hand import A

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.policy import Policy, ShadowMessagePreference
from shadowrelay.core.reception.redundancy import Concern, Leg, OfferAttempt
from shadowrelay.core.reception.shadow_servers import (
    MemberPlace,
    Turn,
    healthy_turn,
    next_turn,
    placed,
    preferred,
)

OWN = MemberPlace(A, "here", "host-a")
NEAR = tuple(MemberPlace(ServerName(f"near{n}"), "here", f"rack{n}") for n in (1, 2, 3))
FAR = tuple(MemberPlace(ServerName(f"far{n}"), "there", f"rack{n}") for n in (4, 5, 6, 7, 8))
POLICY = Policy()
REMOTE_ONLY = Policy(shadow_message_preference_setting=ShadowMessagePreference.REMOTE_ONLY)
LOCAL_ONLY = Policy(shadow_message_preference_setting=ShadowMessagePreference.LOCAL_ONLY)
PREFERENCES = ["prefer_remote", "local_only", "remote_only"]
RETRY = POLICY.shadow_retry_interval

Ending = Callable[[ServerName, int], OfferAttempt]


def ends(leg: Leg, concern: Concern = Concern.MEMBER) -> Ending:
    return lambda name, rank: OfferAttempt(name, leg, rank, "", concern=concern)


FAILS = ends(Leg.REFUSED)
REFUSES = ends(Leg.REFUSED, Concern.COPY)
BREAKS = ends(Leg.LOST, Concern.SESSION)


def turns(
    policy: Policy,
    members: Sequence[MemberPlace],
    ending: Ending = FAILS,
    *,
    turn: int = 0,
    skipped: Sequence[str] = (),
) -> list[Turn]:
    """Whom a message is offered to if every attempt ends like that."""
    order = preferred(placed(OWN, members), policy, turn=turn)
    attempts: list[OfferAttempt] = []
    found = []
    while turn_ := next_turn(order, attempts, {ServerName(name) for name in skipped}, policy):
        assert len(found) < 20
        found.append(turn_)
        attempts.append(ending(turn_.to, len(found)))
    return found


def asked(
    policy: Policy, members: Sequence[MemberPlace] = (*NEAR, *FAR), ending: Ending = FAILS, **how: object
) -> list[str]:
    return [turn.to for turn in turns(policy, members, ending, **how)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (POLICY, ["far4", "far5", "far6", "far7", "near1", "near2"]),
        (LOCAL_ONLY, ["near1", "near2"]),
        (REMOTE_ONLY, ["far4", "far5", "far6", "far7"]),
    ],
    ids=PREFERENCES,
)
def test_the_preference_decides_the_sites_and_their_order(policy: Policy, expected: list[str]) -> None:
    assert asked(policy) == expected


def test_few_members_are_tried_as_often_as_there_are_attempts() -> None:
    assert asked(REMOTE_ONLY, FAR[:2]) == ["far4", "far5", "far4", "far5"]
    assert asked(POLICY, FAR[:1]) == ["far4"] * 4
    assert asked(POLICY, (*FAR[:1], *NEAR[:1])) == ["far4", "near1", "far4", "near1", "far4", "far4"]


def test_the_first_one_changes_from_message_to_message() -> None:
    firsts = [asked(POLICY, turn=turn)[0] for turn in range(5)]
    assert firsts == [place.name for place in FAR]


@pytest.mark.parametrize("policy", [POLICY, LOCAL_ONLY, REMOTE_ONLY], ids=PREFERENCES)
def test_in_a_boundary_of_one_site_the_preference_is_ignored_and_the_local_count_applies(
    policy: Policy,
) -> None:
    assert asked(policy, NEAR) == ["near1", "near2"]
    assert asked(policy, NEAR[:1]) == ["near1"] * 2


def test_a_second_site_is_one_though_no_copy_may_be_placed_there() -> None:
    """What counts is how the boundary is laid out, not who can hold this copy."""
    on_our_host = MemberPlace(ServerName("far9"), "there", OWN.host)
    assert asked(REMOTE_ONLY, (*NEAR, on_our_host)) == []


def test_a_member_that_failed_lately_is_asked_when_no_other_one_is_left() -> None:
    assert asked(REMOTE_ONLY, skipped=("far4", "far5", "far6")) == ["far7", "far8", "far4", "far5"]
    assert asked(POLICY, (*FAR[:1], *NEAR[:1]), skipped=("far4",))[:2] == ["near1", "far4"]


def test_the_only_candidate_is_never_skipped() -> None:
    assert asked(POLICY, FAR[:1], skipped=("far4",)) == ["far4"] * 4


def test_members_that_failed_are_not_asked_again_at_once() -> None:
    assert [turn.pause for turn in turns(POLICY, FAR[:1])] == [0 * RETRY, RETRY, RETRY, RETRY]
    assert [turn.pause for turn in turns(REMOTE_ONLY, FAR[:2])] == [0 * RETRY, 0 * RETRY, RETRY, 0 * RETRY]
    assert not any(
        turn.pause for turn in turns(POLICY, (*NEAR, *FAR))
    )  # for another there is no need to wait


def test_who_refused_this_copy_is_not_asked_for_it_again() -> None:
    assert asked(POLICY, (*FAR[:1], *NEAR[:1]), REFUSES) == ["far4", "near1"]


def test_a_session_that_broke_is_replaced_at_once_and_does_not_count() -> None:
    once = Policy(max_retries_for_local_site_shadow=1)
    broken, whole = turns(once, NEAR[:1], BREAKS)
    assert broken.to == whole.to == "near1"
    assert not whole.pause


def test_a_member_whose_sessions_all_break_is_asked_one_time_more_than_others() -> None:
    assert asked(POLICY, NEAR[:2], BREAKS) == ["near1", "near1", "near2", "near2"]
    assert asked(POLICY, NEAR[:1], BREAKS) == ["near1"] * 3


def test_a_repair_asks_each_healthy_member_once() -> None:
    order = preferred(placed(OWN, (*FAR[:2], *NEAR[:1])), POLICY, turn=0)
    failed = [FAILS(FAR[0].name, 1)]
    assert healthy_turn(order, failed, {FAR[1].name}) == Turn(NEAR[0].name)
    assert healthy_turn(order, [*failed, FAILS(NEAR[0].name, 2)], {FAR[1].name}) is None
    assert healthy_turn(order, [BREAKS(FAR[0].name, 1)], {FAR[0].name}) == Turn(FAR[0].name)


def test_members_that_have_the_content_come_first_unless_they_failed_or_were_asked() -> None:
    order = preferred(placed(OWN, (*NEAR, *FAR)), POLICY, turn=0)
    having = {NEAR[1].name, FAR[2].name}
    assert healthy_turn(order, (), (), having) == Turn(FAR[2].name)
    assert healthy_turn(order, (), {FAR[2].name}, having) == Turn(NEAR[1].name)
    asked_both = [FAILS(FAR[2].name, 1), FAILS(NEAR[1].name, 2)]
    assert healthy_turn(order, asked_both, (), having) == Turn(FAR[0].name)
