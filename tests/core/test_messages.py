"""What a copy says of itself, and copies of it with a change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from decision_inputs import holder
from ledger_at_hand import DB, B, C, message

from shadowrelay.core.messages import Copy, HolderState, Role, Stage, Status


@pytest.mark.parametrize("state", HolderState)
def test_only_a_holder_that_holds_is_a_second_copy(state: HolderState) -> None:
    copy = message(holders=(holder(B, state),))
    assert copy.exposed is (state is not HolderState.HOLDING)
    assert copy.kept_by({B}) is (state is HolderState.HOLDING)
    assert not copy.kept_by({C})


@pytest.mark.parametrize(
    "copy", [message(Role.SHADOW), *(message(stage=stage) for stage in Stage if stage is not Stage.QUEUED)]
)
def test_what_is_not_ours_to_deliver_is_not_owned_and_exposed_only_if_an_operator_may_send_it(
    copy: Copy,
) -> None:
    assert not copy.owned
    assert copy.exposed is (copy.stage is Stage.SET_ASIDE)
    assert not replace(copy, holders=(holder(B),)).kept_by({B})


def test_a_holder_takes_the_place_of_what_the_same_database_was_before() -> None:
    copy = message(holders=(holder(B, rank=3), holder(C, rank=1)), ranks_given=3)
    again = copy.with_holder(holder(B, HolderState.LOST, rank=2))
    assert {(one.name, one.state, one.rank) for one in again.holders} == {
        (B, HolderState.LOST, 2),
        (C, HolderState.HOLDING, 1),
    }
    assert again.holder(DB[B]) == holder(B, HolderState.LOST, rank=2)


def test_a_rank_is_never_given_twice() -> None:
    copy = message(ranks_given=3)
    assert copy.with_holder(holder(B, rank=2)).ranks_given == 3
    assert copy.with_holder(holder(B, rank=4)).ranks_given == 4


def test_recipients_that_changed_keep_their_place_and_strangers_are_not_added() -> None:
    copy = message()
    first, second = copy.recipients
    settled = replace(first, status=Status.DELIVERED)
    after = copy.with_recipients([settled, replace(first, number=9)])
    assert after.recipients == (settled, second)
    assert after.unsettled == (second,)
