"""When a message is released for delivery that others were asked about: of very many, a part at a time."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from ledger_at_hand import DB, NOW, A, B, LedgerAtHand, message

from shadowrelay.core.decisions import OpenQuestion
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.messages import Confirmation, Copy, Holder, HolderState
from shadowrelay.core.policy import Policy
from shadowrelay.members.inquiry import Inquiry

POLICY = Policy()
PATIENCE = POLICY.reconcile_timeout.total_seconds()
HELD = (Holder(B, DB[B], None, 1, HolderState.HOLDING),)


class Counting(LedgerAtHand):
    looked_at = 0
    read = 0

    def open_questions(self, after: MessageId, most: int) -> Sequence[OpenQuestion]:
        found = super().open_questions(after, most)
        self.read += len(found)
        return found

    def copy(self, message_id: MessageId) -> Copy | None:
        self.looked_at += 1
        return super().copy(message_id)


def asking(count: int) -> Counting:
    ids = (MessageId(f"01900000-0000-7000-8000-{number:012x}") for number in range(count))
    about = [message(id=each, holders=HELD, confirmation=Confirmation.ASK, confirm_since=NOW) for each in ids]
    return Counting(A, about)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """Five messages of A's about which a holder out of reach is to be asked; two looks at a time."""
    monkeypatch.setattr("shadowrelay.members.inquiry.AT_ONCE", 2)
    return asking(5)


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """A hundred of them; ten questions are gone through at a time, read by three."""
    monkeypatch.setattr("shadowrelay.members.inquiry.LOOKS", 10)
    monkeypatch.setattr("shadowrelay.members.inquiry.PAGE", 3)
    return asking(100)


def conclude(on: Counting, inquiry: Inquiry, at: float, *reachable: ServerName) -> int:
    return inquiry.conclude(on, frozenset(reachable), POLICY, NOW, at)


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


def ask(on: Counting, inquiry: Inquiry, pending: Sequence[MessageId] = ()) -> list[MessageId]:
    """One command of at most four questions, and its answers. What is ``pending`` has to be asked again."""
    named = [question.message_id for question in inquiry.unasked(on, B, 4)]
    for each in named:
        if each not in pending:
            inquiry.note(on.copies[each], B, confirmed=True)
    return named


def test_of_very_many_each_is_asked_about_once_and_few_are_read_for_it(many: Counting) -> None:
    inquiry = Inquiry()
    commands = [ask(many, inquiry) for _ in range(25)]
    assert [each for named in commands for each in named] == list(many.copies)
    assert {len(named) for named in commands} == {4}  # a shorter one would be the last for a while
    assert many.read <= 25 * (2 * 10 + 2 * 3)
    before = many.read
    assert ask(many, inquiry) == []
    assert many.read - before <= 10 + 3


def test_what_has_to_be_asked_again_keeps_nobody_behind_it_waiting(many: Counting) -> None:
    inquiry, ids = Inquiry(), list(many.copies)
    commands = [ask(many, inquiry, pending=ids[:2]) for _ in range(80)]
    assert {each for named in commands for each in named} == set(ids)
    assert sum(ids[0] in named for named in commands) > 1


@pytest.mark.parametrize("place", [0, 50, 99])
def test_what_is_asked_anew_is_found_wherever_it_stands(many: Counting, place: int) -> None:
    inquiry, ids = Inquiry(), list(many.copies)
    for _ in range(26):
        ask(many, inquiry)
    anew = many.copies[ids[place]] = replace(many.copies[ids[place]], confirm_since=NOW + timedelta(1))
    calls = [ask(many, inquiry) for _ in range(11)]
    assert [named for named in calls if named] == [[anew.id]]


def test_of_few_what_is_asked_anew_is_found_at_once(on: Counting) -> None:
    inquiry, ids = Inquiry(), list(on.copies)
    while ask(on, inquiry):
        pass
    on.copies[ids[1]] = replace(on.copies[ids[1]], confirm_since=NOW + timedelta(1))
    assert ask(on, inquiry) == [ids[1]]


def test_all_of_very_many_are_decided_part_by_part(many: Counting) -> None:
    inquiry = Inquiry()
    while ask(many, inquiry):
        pass
    read = many.read
    assert [conclude(many, inquiry, at=1.0) for _ in range(11)] == [10] * 10 + [0]
    assert many.read - read <= 11 * (10 + 2 * 3)
    assert confirmations(many) == ["none"] * 100


def test_the_patience_with_very_many_ends_at_the_same_time_too(
    many: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shadowrelay.members.inquiry.AT_ONCE", 2)
    inquiry = Inquiry()
    conclude(many, inquiry, at=1.0)
    assert sum(conclude(many, inquiry, at=1.0 + PATIENCE) for _ in range(51)) == 100
    assert confirmations(many) == ["in_doubt"] * 100


def test_one_that_was_answered_for_does_not_wait_for_many_that_were_not(many: Counting) -> None:
    inquiry = Inquiry()
    inquiry.note(list(many.copies.values())[75], B, confirmed=True)
    assert sum(conclude(many, inquiry, 1.0, B) for _ in range(10)) == 1
    assert confirmations(many)[75] == "none"


def test_nothing_is_asked_while_the_database_is_being_opened(on: Counting) -> None:
    inquiry = Inquiry(opening=True)
    assert inquiry.unasked(on, B, 4) == []
    assert not inquiry.has_questions(on, B)
    inquiry.opening = False
    assert len(inquiry.unasked(on, B, 4)) == 4


def test_what_is_remembered_of_a_million_answers_has_room_in_memory() -> None:
    inquiry, count = Inquiry(), 20_000
    copies = [
        message(
            id=MessageId(f"01900000-0000-7000-8000-{number:012x}"),
            confirmation=Confirmation.ASK,
            confirm_since=NOW,
        )
        for number in range(count)
    ]
    tracemalloc.start()
    try:
        for copy in copies:
            inquiry.note(copy, B)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown / count < 250  # octets; a set for each took 400
