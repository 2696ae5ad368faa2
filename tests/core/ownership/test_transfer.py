"""Promotion, and which of two owners yields."""

from __future__ import annotations

from dataclasses import replace

from decision_inputs import POLICY, SPEAKER, holder, take_over
from ledger_at_hand import DB, NOW, A, B, C, LedgerAtHand, M, ledger_of, message

from shadowrelay.core.decisions import Verdict, VerdictKind
from shadowrelay.core.members import questions
from shadowrelay.core.messages import Confirmation, Reason, Role, Status
from shadowrelay.core.ownership import heartbeat
from shadowrelay.core.ownership.transfer import outranks


def test_an_owner_yields_at_equal_epoch_to_the_rival_itself_and_asks_after_hearsay() -> None:
    taken = Verdict(M, 2, VerdictKind.TAKEN, B)
    hearsay = ledger_of(A, message(epoch=2))
    hearsay.apply(questions.learn(hearsay, taken, SPEAKER[C], DB[B], POLICY, NOW))
    assert hearsay.copies[M].owned
    assert hearsay.copies[M].confirmation is Confirmation.ASK
    told_by_b = ledger_of(A, message(epoch=2))
    told_by_b.apply(questions.learn(told_by_b, taken, SPEAKER[B], DB[B], POLICY, NOW))
    assert told_by_b.copies[M].held


def test_a_holder_follows_its_owner_to_the_one_it_yielded_to(on_b: LedgerAtHand) -> None:
    taken = Verdict(M, 1, VerdictKind.TAKEN, C)
    on_b.apply(questions.learn(on_b, taken, SPEAKER[C], DB[C], POLICY, NOW))
    assert on_b.copies[M].owner == A
    on_b.apply(questions.learn(on_b, taken, SPEAKER[A], DB[C], POLICY, NOW))
    assert on_b.copies[M].owner == C


def test_a_message_that_two_hold_for_each_other_is_promoted(on_b: LedgerAtHand) -> None:
    on_b.apply(questions.learn(on_b, Verdict(M, 1, VerdictKind.YOURS), SPEAKER[A], None, POLICY, NOW))
    assert on_b.copies[M].pending is Reason.OWNER_FORGOT


def test_promotion_raises_the_epoch_and_tells_the_former_owner(on_b: LedgerAtHand) -> None:
    take_over(on_b)
    copy = on_b.copies[M]
    assert (copy.epoch, copy.owner, copy.confirmation) == (2, B, Confirmation.ASK)
    assert [(e.addressee, e.verdict.kind) for e in on_b.told] == [(DB[A], VerdictKind.TAKEN)]
    assert [event.event_id for event in on_b.events] == ["RESUBMIT"]


def test_taking_over_twice_changes_nothing(on_b: LedgerAtHand) -> None:
    assert heartbeat.take_over(on_b, A, Reason.HEARTBEAT_LOST, NOW) == (1, None)
    assert heartbeat.take_over(on_b, A, Reason.HEARTBEAT_LOST, NOW) == (0, None)


def test_the_higher_epoch_owns_then_the_lower_rank_then_name_order() -> None:
    assert outranks(2, 5, B, (1, 0, A))
    assert outranks(1, 0, B, (1, 1, A))
    assert outranks(1, 1, A, (1, 1, B))
    assert not outranks(1, 1, B, (1, 1, A))


def test_a_returning_owner_becomes_a_holder_of_the_new_one() -> None:
    on = ledger_of(A, message(holders=(holder(B), holder(C, rank=2))))
    on.apply(questions.learn(on, Verdict(M, 2, VerdictKind.TAKEN, B), SPEAKER[B], DB[B], POLICY, NOW))
    copy = on.copies[M]
    assert (copy.role, copy.owner, copy.epoch, copy.check_at) == (Role.SHADOW, B, 2, NOW)
    assert [(e.addressee, e.verdict.kind) for e in on.told] == [(DB[C], VerdictKind.TAKEN)]


def test_taken_of_an_older_epoch_is_ignored() -> None:
    on = ledger_of(A, message(epoch=3))
    on.apply(questions.learn(on, Verdict(M, 2, VerdictKind.TAKEN, B), SPEAKER[B], DB[B], POLICY, NOW))
    assert on.copies[M].owned


def test_what_was_settled_here_travels_to_the_new_owner() -> None:
    copy = message()
    half = copy.with_recipients([replace(copy.recipients[0], status=Status.RELAYED)])
    on = ledger_of(A, half)
    on.apply(questions.learn(on, Verdict(M, 2, VerdictKind.TAKEN, B), SPEAKER[B], DB[B], POLICY, NOW))
    assert [(e.addressee, e.verdict.kind, e.verdict.recipients) for e in on.told] == [
        (DB[B], VerdictKind.DELIVERED, (1,))
    ]
