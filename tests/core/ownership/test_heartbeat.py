"""Greetings, contact and silence: what a member's lineage and its absence lead to."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from decision_inputs import POLICY, holder, take_over
from ledger_at_hand import DB, NOW, RUN, A, B, C, LedgerAtHand, M, ledger_of, lineage, message

from shadowrelay.core.decisions import Decision, DiscardEvent, Member, Part, Verdict, VerdictKind
from shadowrelay.core.events.discard_notices import listeners
from shadowrelay.core.identifiers import Beginning, Continuity, DatabaseId, Lineage, MessageId, RequestId
from shadowrelay.core.jobs import JobProgress
from shadowrelay.core.messages import Confirmation, HolderState, Reason, Role
from shadowrelay.core.ownership import heartbeat
from shadowrelay.core.ownership.heartbeat import Alarm, Watch


def test_a_late_greeting_of_the_running_incarnation_breaks_nothing(on_b: LedgerAtHand) -> None:
    found = heartbeat.meet(on_b, A, lineage(A, 3), None, NOW, after_silence=False)
    assert found is Continuity.UNBROKEN
    assert on_b.known[A].lineage == lineage(A, 10)
    assert on_b.copies[M].held


def test_a_late_greeting_of_a_process_that_was_killed_breaks_nothing(on_b: LedgerAtHand) -> None:
    """Though the member told of its new incarnation only, since it knew that we know that one."""
    whole = Lineage(DB[A], (Beginning(RUN[A], 0), Beginning(RUN[C], 10)), 10)
    for said in (whole, whole.since(RUN[C])):
        heartbeat.meet(on_b, A, said, None, NOW, after_silence=False)
    found = heartbeat.meet(on_b, A, lineage(A, 10), None, NOW, after_silence=False)
    assert found is Continuity.UNBROKEN
    assert on_b.known[A].lineage == whole
    assert on_b.copies[M].pending is None


def test_what_a_member_said_of_jobs_ends_with_its_database(on_b: LedgerAtHand) -> None:
    job = RequestId("01900000-0000-7000-9000-000000000001")
    of_another = JobProgress(job=job, node=C, pending=2, step=4)
    on_b.apply(Decision(None, (JobProgress(job=job, node=A, pending=3, step=5), of_another)))
    replaced = Lineage(DB[C], (Beginning(RUN[C], 4),), 4)
    assert heartbeat.meet(on_b, A, replaced, None, NOW, after_silence=False) is Continuity.BROKEN
    assert tuple(on_b.job_progress(job)) == (of_another,)


@pytest.mark.parametrize("asked_at", [None, lineage(A, 10)], ids=["unasked", "an answer"])
@pytest.mark.parametrize("database", [DB[C], DB[A]], ids=["replaced", "put back"])
def test_a_late_greeting_of_a_database_that_another_took_the_place_of_breaks_nothing(
    on_b: LedgerAtHand, database: DatabaseId, asked_at: Lineage | None
) -> None:
    """It would be taken for the one that runs, and what the other holds and says would count for nothing."""
    new = Lineage(database, (Beginning(RUN[C], 4),), 4)
    assert heartbeat.meet(on_b, A, new, None, NOW, after_silence=False) is Continuity.BROKEN
    known = on_b.known[A]
    late = heartbeat.meet(on_b, A, lineage(A, 12), None, NOW, after_silence=False, asked_at=asked_at)
    assert late is Continuity.UNBROKEN
    assert on_b.known[A] == known
    # The same break seen once more, by an answer to what was asked before it.
    heartbeat.meet(on_b, A, new, None, NOW, after_silence=False, asked_at=lineage(A, 10))
    assert on_b.known[A] == known


@pytest.mark.parametrize("database", [DB[C], DB[A]], ids=["replaced", "put back"])
def test_who_answers_when_we_know_of_both_is_the_one_that_lives(
    on_b: LedgerAtHand, database: DatabaseId
) -> None:
    """A greeting of a killed process, read after that of its successor, looks as if it were the newer one."""
    new, late = Lineage(database, (Beginning(RUN[C], 4),), 4), lineage(A, 12)
    on_b.known[A] = replace(on_b.known[A], lineage=new)
    assert heartbeat.meet(on_b, A, late, None, NOW, after_silence=False) is Continuity.BROKEN
    heartbeat.meet(on_b, A, new, None, NOW, after_silence=False)
    assert on_b.known[A].lineage == late
    heartbeat.meet(on_b, A, new, None, NOW, after_silence=False, asked_at=late)
    assert on_b.known[A].lineage == new
    assert on_b.known[A].replaced == late.incarnation


def test_an_answer_is_read_with_what_was_heard_of_the_time_before_it_since_it_was_asked_for() -> None:
    """The first process recorded nothing, and the second tells of itself only: we know the rest by now."""
    on = ledger_of(B, message(Role.SHADOW))
    on.known[A] = replace(on.known[A], lineage=(before := lineage(A, 0)))
    whole = Lineage(DB[A], (Beginning(RUN[A], 0), Beginning(RUN[C], 0)), 0)
    heartbeat.meet(on, A, whole, None, NOW, after_silence=False)
    found = heartbeat.meet(on, A, whole.since(RUN[C]), None, NOW, after_silence=False, asked_at=before)
    assert found is Continuity.UNBROKEN
    assert on.known[A].lineage == whole
    assert on.copies[M].pending is None


def test_an_answer_that_is_behind_what_was_known_when_asked_is_a_broken_lineage(on_b: LedgerAtHand) -> None:
    found = heartbeat.meet(on_b, A, lineage(A, 3), None, NOW, after_silence=False, asked_at=lineage(A, 10))
    assert found is Continuity.BROKEN
    assert on_b.copies[M].pending is Reason.DATABASE_ROLLED_BACK


def test_a_replaced_database_loses_its_copies_and_what_is_held_for_it_is_to_be_promoted() -> None:
    on = ledger_of(
        B,
        message(Role.SHADOW),
        replace(message(owner=B, owner_database=DB[B]), id=MessageId("n"), holders=(holder(A),)),
    )
    on.apply(Decision(None, (DiscardEvent(DB[A], Verdict(M, 1, VerdictKind.DELIVERED), NOW),)))
    new = replace(lineage(A, 0), database_id=DB[C])
    heartbeat.meet(on, A, new, None, NOW, after_silence=False)
    assert on.told == []
    assert on.copies[M].pending is Reason.DATABASE_REPLACED
    assert on.copies[M].confirmation is Confirmation.ASK
    assert on.copies[MessageId("n")].exposed


def test_a_holder_that_was_rolled_back_may_or_may_not_hold_a_copy() -> None:
    on = ledger_of(A, message(holders=(holder(B),)))
    rolled = Lineage(DB[B], (Beginning(RUN[B], 0), Beginning(RUN[C], 4)), 4)
    heartbeat.meet(on, B, rolled, None, NOW, after_silence=False)
    assert on.copies[M].holders[0].state is HolderState.UNCERTAIN
    assert listeners(on.copies[M]) == (DB[B],)


def test_holders_ask_about_their_copies_when_the_owner_opened_its_database_again() -> None:
    on = ledger_of(B, message(Role.SHADOW, check_at=NOW + timedelta(60)))
    again = Lineage(DB[A], (Beginning(RUN[A], 0), Beginning(RUN[C], 10)), 10)
    heartbeat.meet(on, A, again, None, NOW, after_silence=True)
    assert on.copies[M].check_at == NOW


def test_a_message_in_doubt_waits_again_once_its_holder_is_met(on_a: LedgerAtHand) -> None:
    lost = holder(B, HolderState.LOST)
    on_a.copies[M] = message(holders=(lost,), confirmation=Confirmation.IN_DOUBT)
    on_a.known[B] = Member(B, lineage(B))
    heartbeat.meet(on_a, B, lineage(B, 11), None, NOW, after_silence=True)
    assert on_a.copies[M].confirmation is Confirmation.ASK
    assert on_a.copies[M].holders[0].state is HolderState.HOLDING


def test_a_new_contact_after_silence_asks_again_about_what_was_taken_over(on_b: LedgerAtHand) -> None:
    take_over(on_b)
    on_b.copies[M] = replace(on_b.copies[M], confirmation=Confirmation.NONE)
    heartbeat.meet(on_b, A, lineage(A, 11), None, NOW, after_silence=True)
    assert on_b.copies[M].confirmation is Confirmation.ASK


def test_silence_is_counted_from_our_own_first_failure() -> None:
    span = POLICY.shadow_resubmit_time_span.total_seconds()
    watch, alarms = Watch(A).failed(1000.0, "down", POLICY)
    assert alarms == ()
    assert Alarm.PROMOTE not in watch.failed(1000.0 + span - 1, "down", POLICY)[1]
    assert Alarm.PROMOTE in watch.failed(1000.0 + span, "down", POLICY)[1]
    assert watch.answered(1001.0).reachable


def test_a_holder_is_lost_after_a_few_heartbeats() -> None:
    watch, alarms = Watch(B), ()
    for beat in range(POLICY.holder_loss_heartbeats):
        watch, alarms = watch.failed(float(beat), "down", POLICY)
    assert alarms == (Alarm.HOLDER_LOST,)


def test_a_lost_holder_counts_again_when_it_is_back() -> None:
    on = ledger_of(A, message(holders=(holder(B),)))
    heartbeat.lose_holder(on, B)
    assert on.copies[M].exposed
    heartbeat.meet(on, B, lineage(B, 11), None, NOW, after_silence=True)
    assert not on.copies[M].exposed


def test_an_owner_that_was_cut_off_asks_before_it_delivers() -> None:
    on = ledger_of(A, message(holders=(holder(B),)))
    heartbeat.cut_off(on, B, frozenset(), NOW)
    assert on.copies[M].confirmation is Confirmation.ASK


def test_what_a_member_at_hand_holds_too_goes_out_in_doubt_and_does_not_wait() -> None:
    lost = holder(B, state=HolderState.LOST)
    on = ledger_of(A, message(holders=(lost, holder(C))))
    heartbeat.cut_off(on, B, frozenset({B, C}), NOW)
    assert on.copies[M].confirmation is Confirmation.IN_DOUBT
    on = ledger_of(A, message(holders=(lost, holder(C))))
    heartbeat.cut_off(on, B, frozenset({B}), NOW)
    assert on.copies[M].confirmation is Confirmation.ASK


def test_a_long_queue_is_marked_part_by_part() -> None:
    ids = [MessageId(f"{M[:-1]}{number}") for number in range(5)]
    on = ledger_of(A, *(message(id=one, holders=(holder(B),)) for one in ids))
    part: Part | None = Part(most=2)
    marked = []
    while part is not None:
        part = heartbeat.cut_off(on, B, frozenset(), NOW, part)
        marked.append(sum(copy.confirmation is Confirmation.ASK for copy in on.copies.values()))
    assert marked == [2, 4, 5]
