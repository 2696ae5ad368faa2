"""What is remembered of a talk, and what a member that has a copy answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ledger_at_hand import DB, NOW, RUN, A, B, C, LedgerAtHand, M, ledger_of, lineage, message

from shadowrelay.core.decisions import Verdict, VerdictKind
from shadowrelay.core.identifiers import Beginning, Incarnation, Lineage, Mark, MessageId
from shadowrelay.core.members.answers import answer
from shadowrelay.core.members.conversation import Line, Query, Question, asked, told
from shadowrelay.core.members.questions import Speaker
from shadowrelay.core.messages import Confirmation, Holder, HolderState, Role, Stage, Status
from shadowrelay.core.policy import Policy
from shadowrelay.members.inquiry import Inquiry

POLICY = Policy()
B_SPEAKS = Speaker(B, DB[B], Mark(RUN[B], 42))


def answers(
    on: LedgerAtHand, asker: Speaker, epoch: int, rank: int | None = None
) -> list[tuple[VerdictKind, str]]:
    verdicts = on.apply(answer(on, asker, M, epoch, rank, NOW))
    return [(verdict.kind, verdict.argument) for verdict in verdicts]


def test_the_highest_mark_is_remembered_of_a_question_and_of_an_answer() -> None:
    on = ledger_of(A)
    asked(on, B_SPEAKS, Query(200, at=B_SPEAKS.mark), (), (), POLICY, NOW)
    assert on.known[B].lineage == lineage(B, 42)
    told(on, replace(B_SPEAKS, mark=Mark(RUN[B], 43)), Query(200), (), Inquiry(), POLICY, NOW)
    assert on.known[B].lineage == lineage(B, 43)
    asked(on, B_SPEAKS, Query(200, at=Mark(RUN[B], 7)), (), (), POLICY, NOW)
    assert on.known[B].lineage == lineage(B, 43)


def in_its_next_life(of: LedgerAtHand, *, ran: int) -> LedgerAtHand:
    """B opened its database again, in which its former incarnation had come so far."""
    later = Lineage(DB[B], (Beginning(RUN[B], 0), Beginning(Incarnation("b2" * 8), ran)), ran)
    of.known[B] = replace(of.known[B], lineage=later)
    return of


@pytest.mark.parametrize("ran", [30, 50], ids=["put back", "as it was"])
def test_a_question_of_a_process_that_has_a_successor_counts_for_nothing(ran: int) -> None:
    """Read late, it would have us believe in a copy that its database may not have any more."""
    uncertain = Holder(B, DB[B], Mark(RUN[B], 40), 1, HolderState.UNCERTAIN)
    on = in_its_next_life(ledger_of(A, message(holders=(uncertain,))), ran=ran)
    before = on.state.snapshot()
    holds = Query(200, at=B_SPEAKS.mark, questions=(Question(M, 1),))
    assert asked(on, B_SPEAKS, holds, (), (), POLICY, NOW).lines == ()
    assert on.state == before
    successor = replace(B_SPEAKS, mark=Mark(Incarnation("b2" * 8), ran))
    asked(on, successor, replace(holds, at=successor.mark), (), (), POLICY, NOW)
    assert not on.copies[M].exposed


def test_an_answer_of_a_process_that_has_a_successor_counts_for_nothing() -> None:
    on = in_its_next_life(ledger_of(A, message(Role.SHADOW)), ran=30)
    before = dict(on.copies)
    released = Line(7, Verdict(M, 1, VerdictKind.DELIVERED, recipients=(1,)))
    assert not told(on, B_SPEAKS, Query(200), (released,), Inquiry(), POLICY, NOW)
    assert on.copies == before
    assert on.known[B].applied is None


def superseded(*others: Holder) -> LedgerAtHand:
    former = Holder(B, DB[B], Mark(RUN[B], 5), 1, HolderState.SUPERSEDED)
    return ledger_of(A, message(holders=(former, *others), ranks_given=2))


def test_a_superseded_holder_that_asks_is_told_so_again_with_its_rank() -> None:
    on = superseded(Holder(C, DB[C], Mark(RUN[C], 5), 2, HolderState.HOLDING))
    assert answers(on, B_SPEAKS, 1) == [(VerdictKind.SUPERSEDED, "1")]


def test_a_superseded_holder_that_is_needed_again_gets_a_new_rank() -> None:
    """The word that is still on its way to it speaks of the old one."""
    on = superseded(Holder(C, DB[C], Mark(RUN[C], 5), 2, HolderState.LOST))
    assert answers(on, B_SPEAKS, 1) == [(VerdictKind.RECORDED, "3")]
    assert not on.copies[M].exposed


@pytest.mark.parametrize("role", Role)
def test_a_settled_copy_whose_report_is_not_safe_is_pending_and_not_unknown(role: Role) -> None:
    copy = message(role, stage=Stage.SAFETY_NET)
    waits = copy.with_recipients(
        replace(r, status=Status.FAILED, report=MessageId("dsn")) for r in copy.recipients
    )
    assert answers(ledger_of(C, waits), B_SPEAKS, 1) == [(VerdictKind.PENDING, "")]


def test_an_owner_that_is_asked_by_the_holder_of_a_later_owner_asks_in_its_turn() -> None:
    on = ledger_of(A, message())
    assert answers(on, B_SPEAKS, 2) == []
    assert on.copies[M].confirmation is Confirmation.ASK


def test_a_holder_that_is_asked_about_a_later_ownership_finds_out_about_it_first() -> None:
    on = ledger_of(C, message(Role.SHADOW))
    assert answers(on, B_SPEAKS, 1) == [(VerdictKind.TAKEN, A)]
    assert on.copies[M].check_at is None
    assert answers(on, B_SPEAKS, 2) == [(VerdictKind.PENDING, "")]
    assert on.copies[M].check_at == NOW
