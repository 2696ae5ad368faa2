"""When a message is let go that others were asked about: of very many, a part at a time."""

from __future__ import annotations

import pytest
from ledger_at_hand import DB, NOW, A, B, Books, books, message

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.inquiry import Inquiry
from shadowrelay.core.messages import Confirmation, Copy, Holder, HolderState
from shadowrelay.core.policy import Policy

POLICY = Policy()
PATIENCE = POLICY.reconcile_timeout.total_seconds()
HELD = (Holder(B, DB[B], None, 1, HolderState.HOLDING),)


class Counting(Books):
    looked_at = 0

    def copy(self, message_id: MessageId) -> Copy | None:
        self.looked_at += 1
        return super().copy(message_id)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """Five messages of A's about which a holder out of reach is to be asked; two looks at a time."""
    monkeypatch.setattr("shadowrelay.core.inquiry.AT_ONCE", 2)
    ids = (MessageId(f"01900000-0000-7000-8000-{number:012x}") for number in range(5))
    asking = [
        message(id=each, holders=HELD, confirmation=Confirmation.ASK, confirm_since=NOW) for each in ids
    ]
    plain = books(A, *asking)
    return Counting(plain.name, plain.lineage, plain.copies, known=plain.known)


def conclude(on: Counting, inquiry: Inquiry, at: float) -> int:
    return inquiry.conclude(on, frozenset(), POLICY, NOW, at, long_away=False)


def confirmations(on: Counting) -> list[str]:
    return [copy.confirmation.value for copy in on.copies.values()]


def test_however_many_wait_for_a_holder_few_are_looked_at_each_time(on: Counting) -> None:
    inquiry = Inquiry()
    for call in range(1, 9):
        assert conclude(on, inquiry, at=1.0) == 0
        assert on.looked_at == 2 * call


def test_the_patience_with_all_of_them_ends_at_the_same_time(on: Counting) -> None:
    inquiry = Inquiry()
    conclude(on, inquiry, at=1.0)
    assert [conclude(on, inquiry, at=1.0 + PATIENCE) for _ in range(3)] == [2, 2, 1]
    assert confirmations(on) == ["in_doubt"] * 5


def test_one_that_was_answered_for_does_not_wait_for_those_before_it(on: Counting) -> None:
    inquiry = Inquiry()
    inquiry.note(list(on.copies.values())[4], B, confirmed=True)
    assert sum(conclude(on, inquiry, at=1.0) for _ in range(3)) == 1
    assert confirmations(on) == ["ask"] * 4 + ["none"]
