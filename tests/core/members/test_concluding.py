"""When a message that members are asked about is released."""

from __future__ import annotations

from decision_inputs import POLICY, holder
from ledger_at_hand import NOW, A, B, C, LedgerAtHand, M, ledger_of, message

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.messages import Confirmation, Holder, HolderState
from shadowrelay.members.inquiry import Inquiry


def conclude(on: LedgerAtHand, inquiry: Inquiry, reachable: frozenset[ServerName], at: float) -> Confirmation:
    inquiry.conclude(on, reachable, POLICY, NOW, at)
    return on.copies[M].confirmation


def waiting(*holders: Holder) -> LedgerAtHand:
    return ledger_of(A, message(holders=holders, confirmation=Confirmation.ASK, confirm_since=NOW))


def test_a_message_waits_until_every_reachable_member_answered() -> None:
    on, inquiry = waiting(holder(B)), Inquiry()
    inquiry.note(on.copies[M], B)
    assert conclude(on, inquiry, frozenset({B, C}), 1.0) is Confirmation.ASK
    inquiry.note(on.copies[M], C)
    assert conclude(on, inquiry, frozenset({B, C}), 2.0) is Confirmation.NONE


def test_a_holder_out_of_reach_is_waited_for_and_then_the_message_goes_in_doubt() -> None:
    on, inquiry = waiting(holder(B)), Inquiry()
    inquiry.note(on.copies[M], C)
    assert conclude(on, inquiry, frozenset({C}), 1.0) is Confirmation.ASK
    patience = POLICY.reconcile_timeout.total_seconds()
    assert conclude(on, inquiry, frozenset({C}), 1.0 + patience) is Confirmation.IN_DOUBT


def test_a_holder_out_of_reach_is_not_waited_for_while_another_one_answers_that_it_has_a_copy() -> None:
    on, inquiry = waiting(holder(B, state=HolderState.LOST), holder(C)), Inquiry()
    assert conclude(on, inquiry, frozenset({C}), 1.0) is Confirmation.ASK
    inquiry.note(on.copies[M], C)
    assert conclude(on, inquiry, frozenset({C}), 2.0) is Confirmation.IN_DOUBT
