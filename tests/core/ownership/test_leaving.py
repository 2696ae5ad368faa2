"""A holder leaves for good: no message is without a copy meanwhile, and the member may go in the end."""

from __future__ import annotations

from decision_inputs import holder
from ledger_at_hand import DB, NOW, A, B, C, LedgerAtHand, M, ledger_of, message

from shadowrelay.core.decisions import Part
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.messages import HolderState
from shadowrelay.core.ownership import heartbeat
from shadowrelay.core.ownership.leaving import holder_leaves


def states(on: LedgerAtHand, message_id: MessageId = M) -> dict[ServerName, HolderState]:
    return {one.name: one.state for one in on.copies[message_id].holders}


def test_what_the_member_alone_holds_gets_another_copy_before_the_member_may_forget_its_own() -> None:
    on = ledger_of(A, message(holders=(holder(B),)))
    assert holder_leaves(on, B, NOW) is None
    assert states(on) == {B: HolderState.LOST}
    assert on.copies[M].exposed
    assert on.told == []


def test_a_member_whose_copy_is_one_of_several_may_forget_it_at_once() -> None:
    on = ledger_of(A, message(holders=(holder(B), holder(C, rank=2))))
    holder_leaves(on, B, NOW)
    assert states(on) == {B: HolderState.SUPERSEDED, C: HolderState.HOLDING}
    assert not on.copies[M].exposed
    assert [event.addressee for event in on.told] == [DB[B]]


def test_what_was_lost_before_is_told_too_once_another_copy_counts() -> None:
    """Nothing is exposed then, so the repair never looks at the message."""
    on = ledger_of(A, message(holders=(holder(B), holder(C, rank=2))))
    heartbeat.lose_holder(on, B)
    holder_leaves(on, B, NOW)
    assert states(on)[B] is HolderState.SUPERSEDED


def test_a_copy_on_our_own_machine_does_not_count_for_one_that_leaves() -> None:
    on = ledger_of(A, message(holders=(holder(B), holder(C, HolderState.BESIDE, rank=2))))
    holder_leaves(on, B, NOW)
    assert states(on) == {B: HolderState.LOST, C: HolderState.BESIDE}
    assert on.told == []


def test_a_sibling_that_leaves_may_forget_at_once_what_never_counted() -> None:
    on = ledger_of(A, message(holders=(holder(B, HolderState.BESIDE),)))
    holder_leaves(on, B, NOW)
    assert states(on) == {B: HolderState.SUPERSEDED}
    assert on.copies[M].exposed
    assert [event.addressee for event in on.told] == [DB[B]]


def test_a_member_that_asks_again_is_told_nothing_twice() -> None:
    on = ledger_of(A, message(holders=(holder(B), holder(C, rank=2))))
    holder_leaves(on, B, NOW)
    before = on.copies[M]
    holder_leaves(on, B, NOW)
    assert on.copies[M] == before
    assert len(on.told) == 1


def test_a_long_queue_is_gone_through_part_by_part() -> None:
    ids = [MessageId(f"{M[:-1]}{number}") for number in range(5)]
    on = ledger_of(A, *(message(id=one, holders=(holder(B),)) for one in ids))
    part: Part | None = Part(most=2)
    parts = 0
    while part is not None:
        part = holder_leaves(on, B, NOW, part)
        parts += 1
    assert parts == 3
    assert all(states(on, one) == {B: HolderState.LOST} for one in ids)
