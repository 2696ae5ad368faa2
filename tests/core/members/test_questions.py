"""What is learnt from what a member says of a message."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from decision_inputs import POLICY, SPEAKER, holder, take_over
from ledger_at_hand import DB, NOW, A, B, C, LedgerAtHand, M, ledger_of, message

from shadowrelay.core.decisions import Verdict, VerdictKind
from shadowrelay.core.identifiers import Incarnation, Mark, MessageId, ServerName
from shadowrelay.core.members import answers, questions
from shadowrelay.core.members.conversation import CHECKS, MAX_QUESTIONS, Line, Query, Question, ask, told
from shadowrelay.core.members.questions import Speaker
from shadowrelay.core.messages import Confirmation, Copy, Reason, Role, Stage
from shadowrelay.core.ownership.transfer import intend
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


def unknown(on: LedgerAtHand, speaker: Speaker) -> None:
    on.apply(questions.learn(on, Verdict(M, 1, VerdictKind.UNKNOWN), speaker, None, POLICY, NOW))


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


SINCE = NOW - timedelta(days=1)


def away(
    *, long: bool | None, pending: Reason | None = None, confirm_since: datetime = SINCE
) -> tuple[LedgerAtHand, Inquiry]:
    """B's copy, since B returned. ``pending``: its promotion was pending before."""
    asking = message(Role.SHADOW, confirmation=Confirmation.ASK, confirm_since=confirm_since, pending=pending)
    return ledger_of(B, asking), Inquiry(SINCE, lambda: long, sound={M})


def concluded(on: LedgerAtHand, inquiry: Inquiry, *reachable: ServerName) -> Copy:
    inquiry.conclude(on, frozenset(reachable), POLICY, NOW, 1.0)
    return on.copies[M]


def say(on: LedgerAtHand, inquiry: Inquiry, name: ServerName, kind: VerdictKind, argument: str = "") -> None:
    """That member's answer to all that it is asked."""
    query = ask(on, name, inquiry, NOW)
    lines = [
        Line(None, Verdict(one.message_id, 1, kind, argument)) for one in query.questions + query.claimed
    ]
    assert lines, "it was not asked"
    told(on, SPEAKER[name], query, lines, inquiry, POLICY, NOW)


SILENT, LOST, RETIRED = Reason.HEARTBEAT_LOST, Reason.DATABASE_REPLACED, Reason.OWNER_RETIRED


@pytest.mark.parametrize("long", [True, False])
@pytest.mark.parametrize("reason", [SILENT, LOST, Reason.DATABASE_ROLLED_BACK, RETIRED])
def test_after_a_long_absence_a_copy_is_set_aside_whyever_it_is_promoted_before_its_owner_spoke(
    reason: Reason, *, long: bool
) -> None:
    """It may have been settled, and forgotten, long ago. As a message of ours it gets a holder again."""
    on, inquiry = away(long=long)
    say(on, inquiry, C, VerdictKind.UNKNOWN)
    on.apply(intend(on.copies[M], reason, NOW))
    assert concluded(on, inquiry, C).pending, "C is asked anew: now for a promotion"
    say(on, inquiry, C, VerdictKind.UNKNOWN)
    copy = concluded(on, inquiry, C)
    assert (copy.role, copy.epoch, copy.exposed) == (Role.PRIMARY, 2, True)
    assert copy.stage is (Stage.SET_ASIDE if long else Stage.QUEUED)


@pytest.mark.parametrize(("long", "stage"), [(True, Stage.SET_ASIDE), (False, Stage.QUEUED), (None, None)])
def test_a_promotion_that_was_pending_before_a_long_absence_sets_the_copy_aside(
    *, long: bool | None, stage: Stage | None
) -> None:
    """Its owner is still silent: nobody waits until an operator retires it."""
    on, inquiry = away(long=long, pending=SILENT)
    say(on, inquiry, C, VerdictKind.UNKNOWN)
    copy = concluded(on, inquiry, C)
    assert (copy.pending, copy.stage) == ((None, stage) if stage else (SILENT, Stage.QUEUED))


def test_an_owner_that_is_back_has_to_answer_what_a_long_absence_asks() -> None:
    on, inquiry = away(long=True, pending=SILENT)
    copy = concluded(on, inquiry, A)
    assert (copy.pending, copy.confirmation) == (None, Confirmation.ASK)
    on.apply(intend(copy, SILENT, NOW))
    say(on, inquiry, C, VerdictKind.UNKNOWN)
    assert concluded(on, inquiry, C).stage is Stage.SET_ASIDE


def test_once_its_owner_has_answered_a_copy_was_not_away() -> None:
    on, inquiry = away(long=True)
    say(on, inquiry, A, VerdictKind.RECORDED, "1")
    assert concluded(on, inquiry, A).confirmation is Confirmation.NONE
    on.apply(intend(on.copies[M], SILENT, NOW))
    say(on, inquiry, C, VerdictKind.UNKNOWN)
    assert concluded(on, inquiry, C).stage is Stage.QUEUED


def test_another_holder_of_the_silent_owner_confirms_a_copy_too() -> None:
    on, inquiry = away(long=True, pending=SILENT)
    say(on, inquiry, C, VerdictKind.PENDING, "2")
    copy = concluded(on, inquiry, C)
    assert (copy.role, copy.stage) == (Role.PRIMARY, Stage.QUEUED)


def test_what_its_owner_handed_over_is_known_to_it_whatever_the_absence() -> None:
    on, inquiry = away(long=True, pending=Reason.HANDED_OVER)
    say(on, inquiry, C, VerdictKind.UNKNOWN)
    assert concluded(on, inquiry, C).stage is Stage.QUEUED


@pytest.mark.parametrize("forgotten", [True, False])
def test_after_a_long_absence_a_copy_that_its_owner_does_not_know_is_promoted_and_set_aside(
    *, forgotten: bool
) -> None:
    on, inquiry = away(long=forgotten)
    say(on, inquiry, A, VerdictKind.UNKNOWN)
    assert on.copies[M].pending is Reason.OWNER_FORGOT
    assert concluded(on, inquiry, A, C).pending, "C is asked first"
    say(on, inquiry, C, VerdictKind.UNKNOWN)
    copy = concluded(on, inquiry, A, C)
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


def named(number: int) -> MessageId:
    return MessageId(f"01900000-0000-7000-8000-{number:012x}")


def rounds(on: LedgerAtHand, inquiry: Inquiry, count: int) -> list[set[MessageId]]:
    """What A is asked in so many commands, each of which it answers with *unknown*."""
    asked = []
    for _ in range(count):
        query = ask(on, A, inquiry, NOW)
        ids = [one.message_id for one in (*query.questions, *query.claimed)]
        assert len(ids) == len(set(ids)) <= MAX_QUESTIONS
        lines = [Line(None, Verdict(each, 1, VerdictKind.UNKNOWN)) for each in ids]
        told(on, SPEAKER[A], query, lines, inquiry, POLICY, NOW)
        asked.append(set(ids))
    return asked


def test_questions_whose_answers_do_not_count_yet_keep_none_behind_them_waiting() -> None:
    """Before it is known how long the absence was, an owner's *unknown* leaves the question open."""
    asking = message(Role.SHADOW, confirmation=Confirmation.ASK, confirm_since=NOW)
    checked = replace(asking, confirmation=Confirmation.NONE, confirm_since=None, check_at=NOW)
    ids = [named(number) for number in range(5 * MAX_QUESTIONS + 7)]
    late = [named(number) for number in range(10**6, 10**6 + 50)]
    copies = [replace(asking, id=each) for each in ids] + [replace(checked, id=each) for each in late]
    on = ledger_of(B, *copies)
    inquiry = Inquiry(NOW, lambda: None)
    in_time = len(ids) // (MAX_QUESTIONS - CHECKS) + 1
    asked = rounds(on, inquiry, 4 * in_time)
    for turn in range(0, 4 * in_time, in_time):
        assert set(ids) <= set().union(*asked[turn : turn + in_time])
    assert set(late) <= set().union(*asked[:in_time])


def test_a_claim_on_one_owner_keeps_no_claim_on_another_waiting() -> None:
    """They do not go into one command; A answers neither with a rank, and has to be asked again."""
    pending = message(Role.SHADOW, confirmation=Confirmation.ASK, confirm_since=NOW, pending=SILENT)
    owners = [B, ServerName("d")]
    copies = [replace(pending, id=named(number), owner=owners[number % 2]) for number in range(10)]
    on, inquiry = ledger_of(C, *copies), Inquiry()
    for turn in range(6):
        query = ask(on, A, inquiry, NOW)
        lines = [Line(None, Verdict(one.message_id, 1, VerdictKind.PENDING)) for one in query.claimed]
        told(on, SPEAKER[A], query, lines, inquiry, POLICY, NOW)
        assert {one.message_id for one in query.claimed} == {copy.id for copy in copies[turn % 2 :: 2]}


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
