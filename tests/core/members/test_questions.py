"""What is learnt from what a member says of a message."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from decision_inputs import POLICY, SPEAKER, holder, take_over
from ledger_at_hand import DB, NOW, A, B, C, LedgerAtHand, M, ledger_of, message

from shadowrelay.core.decisions import Verdict, VerdictKind
from shadowrelay.core.identifiers import Incarnation, Mark
from shadowrelay.core.members import answers, questions
from shadowrelay.core.members.conversation import Line, Query, Question, ask, told
from shadowrelay.core.members.questions import Speaker
from shadowrelay.core.messages import Confirmation, Reason, Role, Stage
from shadowrelay.members.inquiry import Inquiry


def test_delivered_settles_at_any_epoch_and_in_any_role(on_b: LedgerAtHand) -> None:
    take_over(on_b)
    on_b.apply(questions.learn(on_b, Verdict(M, 1, VerdictKind.DELIVERED), SPEAKER[A], None, POLICY, NOW))
    assert on_b.copies[M].stage is Stage.SAFETY_NET


def test_the_row_of_what_was_told_says_by_which_database_and_how_far_its_log_had_got(
    on_b: LedgerAtHand,
) -> None:
    on_b.apply(questions.learn(on_b, Verdict(M, 1, VerdictKind.DELIVERED), SPEAKER[A], None, POLICY, NOW))
    (row,) = (one.columns() for one in on_b.events)
    assert (row["event-id"], row["reference"]) == ("HADISCARD", str(SPEAKER[A].mark))
    assert f"S:TellerDb={DB[A]}" in row["custom-data"]


def test_who_learns_of_a_delivery_passes_it_on_to_the_owner_it_knows() -> None:
    on = ledger_of(C, message(Role.SHADOW, owner=B, owner_database=DB[B], epoch=2))
    on.apply(questions.learn(on, Verdict(M, 1, VerdictKind.DELIVERED), SPEAKER[A], None, POLICY, NOW))
    assert [event.addressee for event in on.told] == [DB[B]]


def test_superseded_of_an_earlier_rank_or_epoch_lets_nothing_go() -> None:
    on = ledger_of(B, message(Role.SHADOW, rank=3, epoch=2))
    for epoch, rank in ((2, 1), (1, 3)):
        on.apply(
            questions.learn(
                on, Verdict(M, epoch, VerdictKind.SUPERSEDED, str(rank)), SPEAKER[A], None, POLICY, NOW
            )
        )
    assert on.copies[M].held
    on.apply(questions.learn(on, Verdict(M, 2, VerdictKind.SUPERSEDED, "3"), SPEAKER[A], None, POLICY, NOW))
    assert M not in on.copies


def test_an_event_about_an_unknown_id_creates_nothing() -> None:
    on = ledger_of(B)
    on.apply(questions.learn(on, Verdict(M, 1, VerdictKind.DELIVERED), SPEAKER[A], None, POLICY, NOW))
    assert not on.copies
    assert not on.told


def unknown(on: LedgerAtHand, speaker: Speaker, *, forgotten: bool = False) -> None:
    verdict = Verdict(M, 1, VerdictKind.UNKNOWN)
    on.apply(questions.learn(on, verdict, speaker, None, POLICY, NOW, forgotten=forgotten))


def test_what_its_owner_refused_is_discarded(on_b: LedgerAtHand) -> None:
    """In whatever incarnation that says it: it is on record."""
    later = replace(SPEAKER[A], mark=Mark(Incarnation("d" * 16), 20))
    on_b.apply(questions.learn(on_b, Verdict(M, 1, VerdictKind.REJECTED), later, None, POLICY, NOW))
    assert M not in on_b.copies
    assert on_b.events[-1].reason == "Rejected"


def test_unknown_from_the_owner_promotes_for_a_page_may_be_out_of_date(on_b: LedgerAtHand) -> None:
    unknown(on_b, SPEAKER[A])
    assert on_b.copies[M].pending is Reason.OWNER_FORGOT


def test_unknown_from_an_owner_of_version_1_in_the_offering_incarnation_releases(on_b: LedgerAtHand) -> None:
    unknown(on_b, replace(SPEAKER[A], version=1))
    assert M not in on_b.copies


@pytest.mark.parametrize("forgotten", [True, False])
def test_after_a_long_absence_a_copy_that_its_owner_does_not_know_is_promoted_and_set_aside(
    *, forgotten: bool
) -> None:
    """It may have been settled, and forgotten, long ago. As a message of ours it gets a holder again."""
    before = NOW - timedelta(seconds=1)
    on = ledger_of(B, message(Role.SHADOW, confirmation=Confirmation.ASK, confirm_since=before))
    inquiry = Inquiry(before, lambda: True, sound={M})
    inquiry.note(on.copies[M], A)
    unknown(on, SPEAKER[A], forgotten=forgotten)
    assert on.copies[M].pending is Reason.OWNER_FORGOT
    inquiry.forget(M)
    inquiry.conclude(on, frozenset({A, C}), POLICY, NOW, 1.0)
    assert on.copies[M].pending, "C is asked first"
    inquiry.note(on.copies[M], C)
    inquiry.conclude(on, frozenset({A, C}), POLICY, NOW, 1.0)
    copy = on.copies[M]
    assert (copy.role, copy.epoch, copy.exposed) == (Role.PRIMARY, 2, True)
    assert copy.stage is (Stage.SET_ASIDE if forgotten else Stage.QUEUED)


@pytest.mark.parametrize("long", [True, False, None])
def test_that_its_owner_does_not_know_a_copy_counts_once_it_is_known_how_long_the_absence_was(
    long: bool | None,
) -> None:
    on = ledger_of(B, message(Role.SHADOW, confirmation=Confirmation.ASK, confirm_since=NOW))
    inquiry = Inquiry(NOW, lambda: long)
    query = Query(200, questions=(Question(M, 1),))
    told(on, SPEAKER[A], query, (Line(None, Verdict(M, 1, VerdictKind.UNKNOWN)),), inquiry, POLICY, NOW)
    asked_again = [question.message_id for question in inquiry.unasked(on, A, 9)]
    if long is None:
        assert (on.copies[M].pending, asked_again) == (None, [M])
    else:
        assert (on.copies[M].pending, asked_again) == (Reason.OWNER_FORGOT, [])
        assert inquiry.forgotten(on.copies[M].confirm_since) is long


def test_unknown_from_the_owner_in_a_later_incarnation_promotes(on_b: LedgerAtHand) -> None:
    unknown(on_b, replace(SPEAKER[A], mark=Mark(Incarnation("d" * 16), 20)))
    assert on_b.copies[M].pending is Reason.OWNER_FORGOT


def test_unknown_from_anybody_else_means_nothing(on_b: LedgerAtHand) -> None:
    unknown(on_b, SPEAKER[C])
    assert on_b.copies[M].held


@pytest.mark.parametrize("stage", [Stage.QUEUED, Stage.SET_ASIDE])
def test_unknown_from_a_holder_means_exposed(stage: Stage) -> None:
    on = ledger_of(A, message(holders=(holder(B),), stage=stage))
    assert questions.shared_with(on.copies[M], B)
    unknown(on, SPEAKER[B])
    assert on.copies[M].exposed


def test_holders_ask_about_copies_of_which_the_owner_said_nothing() -> None:
    on = ledger_of(B, message(Role.SHADOW, check_at=NOW))
    assert ask(on, A, Inquiry(), NOW).questions == (Question(M, 1, None),)
    assert ask(on, A, Inquiry(), NOW - timedelta(seconds=1)).questions == ()
    assert ask(on, C, Inquiry(), NOW).questions == ()


def test_a_question_that_was_not_answered_is_put_off() -> None:
    on = ledger_of(B, message(Role.SHADOW, check_at=NOW))
    query = ask(on, A, Inquiry(), NOW)
    told(on, SPEAKER[A], query, (), Inquiry(), POLICY, NOW)
    assert on.copies[M].check_at == NOW + POLICY.orphan_check_interval


def test_a_holder_says_who_owns_what_it_holds_for_another_of_the_same_epoch() -> None:
    on = ledger_of(C, message(Role.SHADOW, owner=B, owner_database=DB[B], epoch=2))
    (verdict,) = on.apply(answers.answer(on, SPEAKER[A], M, 2, None, NOW))
    assert (verdict.kind, verdict.argument) == (VerdictKind.TAKEN, B)


def test_superseded_counts_from_the_owner_alone(on_b: LedgerAtHand) -> None:
    on_b.apply(
        questions.learn(on_b, Verdict(M, 1, VerdictKind.SUPERSEDED, "9"), SPEAKER[C], None, POLICY, NOW)
    )
    assert on_b.copies[M].held
