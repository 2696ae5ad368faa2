"""What a member is told that asks about a message."""

from __future__ import annotations

from dataclasses import replace

from decision_inputs import POLICY, SPEAKER, take_over
from ledger_at_hand import NOW, A, B, LedgerAtHand, M, ledger_of, message

from shadowrelay.core.decisions import Outcome, VerdictKind
from shadowrelay.core.members import answers
from shadowrelay.core.members.conversation import Query, Question, asked
from shadowrelay.core.messages import Role, Stage, Status


def test_an_owner_that_is_asked_by_a_holder_records_it() -> None:
    on = ledger_of(A, message())
    verdicts = on.apply(answers.answer(on, SPEAKER[B], M, 1, None, NOW))
    assert [v.kind for v in verdicts] == [VerdictKind.RECORDED]
    assert not on.copies[M].exposed


def test_a_holder_answers_yours_to_its_owner_and_taken_to_a_former_one(on_b: LedgerAtHand) -> None:
    assert [v.kind for v in on_b.apply(answers.answer(on_b, SPEAKER[A], M, 1, 0, NOW))] == [VerdictKind.YOURS]
    take_over(on_b)
    (verdict,) = on_b.apply(answers.answer(on_b, SPEAKER[A], M, 1, 0, NOW))
    assert (verdict.kind, verdict.argument, verdict.epoch) == (VerdictKind.TAKEN, B, 2)


def test_safety_net_and_outcomes_answer_too() -> None:
    on = ledger_of(B, message(Role.SHADOW, stage=Stage.SAFETY_NET))
    settled = on.copies[M].with_recipients(replace(r, status=Status.RELAYED) for r in on.copies[M].recipients)
    on.copies[M] = settled
    assert [v.kind for v in on.apply(answers.answer(on, SPEAKER[A], M, 1, 0, NOW))] == [VerdictKind.DELIVERED]
    gone = ledger_of(B)
    gone.outcomes[M] = Outcome(M, 1, (1, 2), NOW)
    assert [v.kind for v in gone.apply(answers.answer(gone, SPEAKER[A], M, 1, 0, NOW))] == [
        VerdictKind.DELIVERED
    ]


def test_an_id_in_flight_is_left_out_of_the_answer() -> None:
    on = ledger_of(A)
    query = Query(200, questions=(Question(M, 1),))
    assert asked(on, SPEAKER[B], query, {M}, (), POLICY, NOW).lines == ()
    said = asked(on, SPEAKER[B], query, (), (), POLICY, NOW)
    assert [line.verdict.kind for line in said.lines] == [VerdictKind.UNKNOWN]
