"""The script of an introduction: what is said, and what is believed."""

from __future__ import annotations

import pytest
from decision_inputs import holder
from ledger_at_hand import DB, NOW, RUN, A, B, C, LedgerAtHand, M, ledger_of, lineage, message, steps

from shadowrelay.core.greeting import greet
from shadowrelay.core.identifiers import Beginning, Incarnation, Lineage
from shadowrelay.core.members.conversation import Greeting
from shadowrelay.core.messages import HolderState
from shadowrelay.core.steps import Greet, Unanswered

LATER = Greeting(B, lineage(B, 20), RUN[A])


def greeted(on: LedgerAtHand, *answers: Greeting | Unanswered) -> tuple[Greet, Greeting | Unanswered]:
    """What A says to B, and the result when B answers so. More answers: all but the last come meanwhile."""
    said: list[Greet] = []

    def answer(step: Greet) -> Greeting | Unanswered:
        said.append(step)
        for heard in answers[:-1]:
            greeted(on, heard)
        return answers[-1]

    *_, result = steps(greet(B, lambda: NOW, lambda: False), on, answer)
    return said[0], result


def test_both_sides_say_who_they_are_and_what_they_know_of_the_other(on_a: LedgerAtHand) -> None:
    said, result = greeted(on_a, LATER)
    assert (said.to, said.greeting) == (B, Greeting(A, lineage(A), RUN[B]))
    assert result is LATER
    assert on_a.known[B].lineage == lineage(B, 20)
    assert on_a.known[B].knows_ours == RUN[A]


@pytest.mark.parametrize("answer", [Unanswered("connect", "refused"), Greeting(C, lineage(C, 20), RUN[A])])
def test_nothing_is_learnt_without_an_answer_or_from_somebody_else(answer: Greeting | Unanswered) -> None:
    on = ledger_of(A)
    before = dict(on.known)
    _, result = greeted(on, answer)
    assert isinstance(result, Unanswered)
    assert on.known == before
    if isinstance(answer, Greeting):
        assert result == Unanswered("xshadow", f"it answers as {C}")


def test_an_answer_that_was_overtaken_by_a_later_one_is_no_rollback(on_a: LedgerAtHand) -> None:
    """It is compared with what was known when the question was sent."""
    again = Lineage(DB[B], (Beginning(RUN[B], 0), Beginning(Incarnation("d" * 16), 20)), 25)
    greeted(on_a, Greeting(B, again, RUN[A]), LATER)
    assert on_a.known[B].lineage == again


def test_an_answer_that_is_behind_what_was_known_is_a_rollback() -> None:
    on = ledger_of(A, message(holders=(holder(B),)))
    greeted(on, Greeting(B, lineage(B, 3), RUN[A]))
    assert on.copies[M].holders[0].state is HolderState.UNCERTAIN
