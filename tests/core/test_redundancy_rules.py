"""The rules of shadow redundancy that are one decision each; what they add up to, the simulation shows."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from ledger_at_hand import DB, NOW, RUN, A, B, Books, C, M, books, lineage, message

from shadowrelay.core.decisions import (
    Content,
    Decision,
    DiscardEvent,
    Kind,
    Member,
    Outcome,
    Part,
    Tombstone,
    Verdict,
)
from shadowrelay.core.delivery import safety_net
from shadowrelay.core.delivery.settling import Ending, Hop, Report, Result, settle
from shadowrelay.core.events import side_effects
from shadowrelay.core.events.announcements import addressed, delivered, listeners
from shadowrelay.core.events.reports import ReportKind, report_id
from shadowrelay.core.identifiers import (
    Beginning,
    Continuity,
    DatabaseId,
    Incarnation,
    Lineage,
    Mark,
    MessageId,
    NextHop,
    ServerName,
)
from shadowrelay.core.members import answers, questions
from shadowrelay.core.members.conversation import Query, Question, ask, asked, told
from shadowrelay.core.members.questions import Speaker
from shadowrelay.core.messages import Confirmation, Envelope, Holder, HolderState, Reason, Role, Stage, Status
from shadowrelay.core.ownership import heartbeat, transfer
from shadowrelay.core.ownership.heartbeat import Alarm, Watch
from shadowrelay.core.ownership.transfer import outranks
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception import redundancy
from shadowrelay.core.reception.holding import Held, Offer, hold, revoke, settle_held
from shadowrelay.core.reception.redundancy import Answer, Arrival, Attempt, Leg
from shadowrelay.core.reception.shadow_servers import MemberPlace, preferred
from shadowrelay.members.inquiry import Inquiry

POLICY = Policy(reject_message_on_shadow_failure=True)
HOP = Hop("mail.example.net", inside=False, mailbox=False)
SPEAKER = {name: Speaker(name, DB[name], Mark(RUN[name], 10)) for name in (A, B, C)}


@pytest.fixture
def on_a() -> Books:
    return books(A)


@pytest.fixture
def on_b() -> Books:
    return books(B, message(Role.SHADOW))


def arrival() -> Arrival:
    return Arrival(
        id=M,
        envelope=Envelope(sender="s@example.org", size=1),
        recipients=message().recipients,
        digests=message().digests,
        received_at=NOW,
    )


def attempt(leg: Leg, name: ServerName = B, rank: int = 1, sequence: int = 10) -> Attempt:
    mark = Mark(RUN[name], sequence) if leg is Leg.ACKNOWLEDGED else None
    return Attempt(name, leg, rank, "250", DB[name], mark)


def offer(epoch: int = 1, rank: int = 1, owner: ServerName = A) -> Offer:
    return Offer(
        message_id=M,
        epoch=epoch,
        rank=rank,
        owner=owner,
        owner_database=DB[owner],
        mark=Mark(RUN[owner], 11),
        received_at=NOW,
        envelope=Envelope(sender="s@example.org", size=1),
        recipients=message().recipients,
        digests=message().digests,
    )


def holder(name: ServerName, state: HolderState = HolderState.HOLDING, rank: int = 1) -> Holder:
    return Holder(name, DB[name], Mark(RUN[name], 5), rank, state)


def take_over(on: Books, reason: Reason = Reason.HEARTBEAT_LOST) -> None:
    """Promote, when nobody had anything against it."""
    on.apply(transfer.intend(on.copies[M], reason, NOW))
    on.apply(transfer.promote(on, on.copies[M], NOW))


def accept(on: Books, *attempts: Attempt, policy: Policy = POLICY, last_resort: bool = False) -> Answer:
    content = Content(data=b"x")
    decision = redundancy.accept(on, arrival(), content, attempts, policy, NOW, last_resort=last_resort)
    answer: Answer = on.apply(decision)
    return answer


# Lineage.


def test_another_database_id_is_a_broken_lineage() -> None:
    assert lineage(A).continuity(DB[B], Mark(RUN[A], 1)) is Continuity.BROKEN


def test_an_incarnation_that_did_not_run_that_far_is_a_broken_lineage() -> None:
    later = Lineage(DB[A], (Beginning(RUN[A], 0), Beginning(RUN[B], 7)), 20)
    assert later.continuity(DB[A], Mark(RUN[A], 7)) is Continuity.UNBROKEN
    assert later.continuity(DB[A], Mark(RUN[A], 8)) is Continuity.BROKEN


def test_a_list_that_does_not_reach_back_proves_nothing() -> None:
    pruned = Lineage(DB[A], (Beginning(RUN[B], 7),), 20)
    assert pruned.continuity(DB[A], Mark(RUN[A], 5)) is Continuity.UNKNOWN
    assert pruned.continuity(DB[A], Mark(RUN[A], 9)) is Continuity.BROKEN


def test_a_late_greeting_of_the_running_incarnation_breaks_nothing(on_b: Books) -> None:
    found = heartbeat.meet(on_b, A, lineage(A, 3), None, NOW, after_silence=False)
    assert found is Continuity.UNBROKEN
    assert on_b.known[A].lineage == lineage(A, 10)
    assert on_b.copies[M].held


def test_a_late_greeting_of_a_process_that_was_killed_breaks_nothing(on_b: Books) -> None:
    """Though the member told of its new incarnation only, since it knew that we know that one."""
    whole = Lineage(DB[A], (Beginning(RUN[A], 0), Beginning(RUN[C], 10)), 10)
    for said in (whole, whole.since(RUN[C])):
        heartbeat.meet(on_b, A, said, None, NOW, after_silence=False)
    found = heartbeat.meet(on_b, A, lineage(A, 10), None, NOW, after_silence=False)
    assert found is Continuity.UNBROKEN
    assert on_b.known[A].lineage == whole
    assert on_b.copies[M].pending is None


@pytest.mark.parametrize("asked_at", [None, lineage(A, 10)], ids=["unasked", "an answer"])
@pytest.mark.parametrize("database", [DB[C], DB[A]], ids=["replaced", "put back"])
def test_a_late_greeting_of_a_database_that_another_took_the_place_of_breaks_nothing(
    on_b: Books, database: DatabaseId, asked_at: Lineage | None
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
def test_who_answers_when_we_know_of_both_is_the_one_that_lives(on_b: Books, database: DatabaseId) -> None:
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
    on = books(B, message(Role.SHADOW))
    on.known[A] = replace(on.known[A], lineage=(before := lineage(A, 0)))
    whole = Lineage(DB[A], (Beginning(RUN[A], 0), Beginning(RUN[C], 0)), 0)
    heartbeat.meet(on, A, whole, None, NOW, after_silence=False)
    found = heartbeat.meet(on, A, whole.since(RUN[C]), None, NOW, after_silence=False, asked_at=before)
    assert found is Continuity.UNBROKEN
    assert on.known[A].lineage == whole
    assert on.copies[M].pending is None


def test_an_answer_that_is_behind_what_was_known_when_asked_is_a_broken_lineage(on_b: Books) -> None:
    found = heartbeat.meet(on_b, A, lineage(A, 3), None, NOW, after_silence=False, asked_at=lineage(A, 10))
    assert found is Continuity.BROKEN
    assert on_b.copies[M].pending is Reason.DATABASE_ROLLED_BACK


def test_a_replaced_database_loses_its_copies_and_what_is_held_for_it_is_to_be_promoted() -> None:
    on = books(
        B,
        message(Role.SHADOW),
        replace(message(owner=B, owner_database=DB[B]), id=MessageId("n"), holders=(holder(A),)),
    )
    on.apply(Decision(None, (DiscardEvent(DB[A], Verdict(M, 1, Kind.DELIVERED), NOW),)))
    new = replace(lineage(A, 0), database_id=DB[C])
    heartbeat.meet(on, A, new, None, NOW, after_silence=False)
    assert on.told == []
    assert on.copies[M].pending is Reason.DATABASE_REPLACED
    assert on.copies[M].confirmation is Confirmation.ASK
    assert on.copies[MessageId("n")].exposed


def test_a_holder_that_was_rolled_back_may_or_may_not_hold_a_copy() -> None:
    on = books(A, message(holders=(holder(B),)))
    rolled = Lineage(DB[B], (Beginning(RUN[B], 0), Beginning(RUN[C], 4)), 4)
    heartbeat.meet(on, B, rolled, None, NOW, after_silence=False)
    assert on.copies[M].holders[0].state is HolderState.UNCERTAIN
    assert listeners(on.copies[M]) == (DB[B],)


def test_holders_ask_about_their_copies_when_the_owner_opened_its_database_again() -> None:
    on = books(B, message(Role.SHADOW, check_at=NOW + timedelta(60)))
    again = Lineage(DB[A], (Beginning(RUN[A], 0), Beginning(RUN[C], 10)), 10)
    heartbeat.meet(on, A, again, None, NOW, after_silence=True)
    assert on.copies[M].check_at == NOW


# Creation.


def test_a_message_is_accepted_once_a_shadow_acknowledged_it(on_a: Books) -> None:
    assert accept(on_a, attempt(Leg.ACKNOWLEDGED)) is Answer.ACCEPTED
    assert [event.event_id for event in on_a.events] == ["HAREDIRECT", "RECEIVE"]
    assert not on_a.copies[M].exposed


def test_no_message_is_accepted_or_held_from_the_future(on_a: Books) -> None:
    """The clock is set back while a message comes in; or the owner's clock is ahead of the holder's."""
    ahead = NOW + timedelta(hours=3)
    early = replace(arrival(), received_at=ahead)
    known = [attempt(Leg.ACKNOWLEDGED)]
    on_a.apply(redundancy.accept(on_a, early, Content(data=b"x"), known, POLICY, NOW, last_resort=False))
    assert on_a.copies[M].received_at == NOW
    on_b = books(B)
    on_b.apply(hold(on_b, replace(offer(), received_at=ahead), Content(data=b"x"), POLICY, NOW))
    assert on_b.copies[M].received_at == NOW


def test_without_a_shadow_policy_decides_at_the_last_resort(on_a: Books) -> None:
    assert accept(on_a, attempt(Leg.REFUSED), last_resort=True) is Answer.NOT_REDUNDANT
    assert not on_a.copies
    lax = Policy(reject_message_on_shadow_failure=False)
    assert accept(on_a, attempt(Leg.REFUSED), policy=lax) is Answer.NOT_REDUNDANT
    assert accept(on_a, attempt(Leg.REFUSED), policy=lax, last_resort=True) is Answer.ACCEPTED
    assert [event.event_id for event in on_a.events] == ["HAREDIRECTFAIL", "RECEIVE"]
    assert on_a.copies[M].exposed


def test_an_acknowledgement_whose_holder_has_a_new_database_does_not_count(on_a: Books) -> None:
    on_a.known[B] = Member(B, replace(lineage(B), database_id=DB[C]))
    assert accept(on_a, attempt(Leg.ACKNOWLEDGED), last_resort=True) is Answer.NOT_REDUNDANT


def test_an_acknowledgement_of_a_retired_member_does_not_count(on_a: Books) -> None:
    on_a.known[B] = replace(on_a.known[B], retired=True)
    assert accept(on_a, attempt(Leg.ACKNOWLEDGED), last_resort=True) is Answer.NOT_REDUNDANT


def test_the_mark_of_an_acknowledgement_is_remembered(on_a: Books) -> None:
    accept(on_a, attempt(Leg.ACKNOWLEDGED, sequence=42))
    assert on_a.known[B].lineage == lineage(B, 42)


def test_two_offers_to_one_database_leave_one_holder_with_the_last_rank(on_a: Books) -> None:
    accept(on_a, attempt(Leg.LOST), attempt(Leg.ACKNOWLEDGED, rank=2))
    assert [(h.rank, h.state) for h in on_a.copies[M].holders] == [(2, HolderState.HOLDING)]


def test_a_candidate_whose_answer_was_lost_is_a_possible_holder(on_a: Books) -> None:
    accept(on_a, attempt(Leg.LOST, C), attempt(Leg.ACKNOWLEDGED, rank=2))
    assert {h.name: h.state for h in on_a.copies[M].holders} == {
        C: HolderState.UNCERTAIN,
        B: HolderState.HOLDING,
    }


def test_one_revoke_per_member_with_its_highest_rank() -> None:
    lost = [attempt(Leg.LOST, B, 1), attempt(Leg.REFUSED, C, 2), attempt(Leg.LOST, B, 3)]
    assert [(a.name, a.rank) for a in redundancy.uncertain(lost)] == [(B, 3)]


def test_a_shadow_is_never_on_the_primarys_own_host() -> None:
    here = MemberPlace(A, "east", "rack1")
    places = (MemberPlace(B, "west", "rack1"), MemberPlace(C, "east", "rack2"))
    assert [sites.members for sites in preferred(here, places, POLICY, turn=0)] == [(), (C,)]


# Holding.


def test_an_offer_is_held_and_may_be_repeated() -> None:
    on = books(B)
    assert on.apply(hold(on, offer(), Content(data=b"x"), POLICY, NOW)) is Held.QUEUED
    assert on.apply(hold(on, offer(), Content(data=b"x"), POLICY, NOW)) is Held.QUEUED
    assert on.copies[M].held
    assert on.known[A].lineage == lineage(A, 11)


def test_a_tombstone_refuses_equal_and_lower_ranks_only() -> None:
    on = books(B)
    on.graves[M] = Tombstone(M, A, 1, 2, NOW)
    assert on.apply(hold(on, offer(rank=2), Content(data=b"x"), POLICY, NOW)) is Held.REVOKED
    assert on.apply(hold(on, offer(rank=3), Content(data=b"x"), POLICY, NOW)) is Held.QUEUED


def test_an_offer_of_something_settled_or_owned_here_is_refused() -> None:
    on = books(B)
    on.outcomes[M] = Outcome(M, 1, (1, 2), NOW)
    assert on.apply(hold(on, offer(), Content(data=b"x"), POLICY, NOW)) is Held.NOT_YOURS
    owned = books(B, message(owner=B, owner_database=DB[B], epoch=2))
    assert owned.apply(hold(owned, offer(), Content(data=b"x"), POLICY, NOW)) is Held.NOT_YOURS


def test_two_owners_of_one_message_both_ask_when_one_offers_it_to_the_other() -> None:
    on = books(B, message(owner=B, owner_database=DB[B]))
    on.apply(hold(on, offer(), Content(data=b"x"), POLICY, NOW))
    assert on.copies[M].confirmation is Confirmation.ASK


def test_revoke_drops_the_copy_and_refuses_it_for_ever(on_b: Books) -> None:
    assert on_b.apply(revoke(on_b, A, M, 1, 1, POLICY, NOW)).kind is Kind.REJECTED
    assert M not in on_b.copies
    assert on_b.apply(hold(on_b, offer(), Content(data=b"x"), POLICY, NOW)) is Held.REVOKED


def test_revoke_leaves_a_tombstone_for_an_unknown_id() -> None:
    on = books(B)
    assert on.apply(revoke(on, A, M, 1, 1, POLICY, NOW)).kind is Kind.REJECTED
    assert on.graves[M].rank == 1


def test_only_its_owner_revokes_a_copy_and_blocks_its_offers(on_b: Books) -> None:
    verdict = on_b.apply(revoke(on_b, C, M, 1, 1, POLICY, NOW))
    assert (verdict.kind, verdict.argument, on_b.graves) == (Kind.TAKEN, A, {})
    assert on_b.copies[M].held
    empty = books(B)
    empty.apply(revoke(empty, C, M, 1, 9, POLICY, NOW))
    assert empty.apply(hold(empty, offer(), Content(data=b"x"), POLICY, NOW)) is Held.QUEUED


def test_a_promoted_or_delivered_copy_cannot_be_revoked(on_b: Books) -> None:
    take_over(on_b)
    assert on_b.apply(revoke(on_b, A, M, 1, 1, POLICY, NOW)).kind is Kind.TAKEN
    settled = books(B, message(Role.SHADOW, stage=Stage.SAFETY_NET))
    assert settled.apply(revoke(settled, A, M, 1, 1, POLICY, NOW)).kind is Kind.DELIVERED


# Events.


def test_a_half_delivered_message_is_half_discarded(on_b: Books) -> None:
    on_b.apply(
        questions.learn(on_b, Verdict(M, 1, Kind.DELIVERED, recipients=(2,)), SPEAKER[A], None, POLICY, NOW)
    )
    assert [r.settled for r in on_b.copies[M].recipients] == [False, True]
    assert on_b.copies[M].held


def test_the_last_recipient_moves_the_copy_to_safety_net(on_b: Books) -> None:
    on_b.apply(questions.learn(on_b, Verdict(M, 1, Kind.DELIVERED), SPEAKER[A], None, POLICY, NOW))
    assert on_b.copies[M].stage is Stage.SAFETY_NET


def test_delivered_settles_at_any_epoch_and_in_any_role(on_b: Books) -> None:
    take_over(on_b)
    on_b.apply(questions.learn(on_b, Verdict(M, 1, Kind.DELIVERED), SPEAKER[A], None, POLICY, NOW))
    assert on_b.copies[M].stage is Stage.SAFETY_NET


def test_who_learns_of_a_delivery_passes_it_on_to_the_owner_it_knows() -> None:
    on = books(C, message(Role.SHADOW, owner=B, owner_database=DB[B], epoch=2))
    on.apply(questions.learn(on, Verdict(M, 1, Kind.DELIVERED), SPEAKER[A], None, POLICY, NOW))
    assert [event.addressee for event in on.told] == [DB[B]]


def test_superseded_of_an_earlier_rank_or_epoch_lets_nothing_go() -> None:
    on = books(B, message(Role.SHADOW, rank=3, epoch=2))
    for epoch, rank in ((2, 1), (1, 3)):
        on.apply(
            questions.learn(on, Verdict(M, epoch, Kind.SUPERSEDED, str(rank)), SPEAKER[A], None, POLICY, NOW)
        )
    assert on.copies[M].held
    on.apply(questions.learn(on, Verdict(M, 2, Kind.SUPERSEDED, "3"), SPEAKER[A], None, POLICY, NOW))
    assert M not in on.copies


def test_an_event_about_an_unknown_id_creates_nothing() -> None:
    on = books(B)
    on.apply(questions.learn(on, Verdict(M, 1, Kind.DELIVERED), SPEAKER[A], None, POLICY, NOW))
    assert not on.copies
    assert not on.told


def test_nobody_is_told_of_a_recipient_whose_report_is_not_safe() -> None:
    copy = message()
    waiting = copy.with_recipients(
        replace(r, status=Status.FAILED, report=MessageId("dsn")) for r in copy.recipients
    )
    assert delivered(waiting, waiting.recipients) == ()


def test_events_go_to_every_possible_holder_and_not_to_ourselves() -> None:
    copy = message(
        holders=(holder(B, HolderState.LOST), holder(C, HolderState.UNCERTAIN, 2)), stage=Stage.SAFETY_NET
    )
    assert listeners(copy) == (DB[B], DB[C])
    assert len(addressed([DB[B], DB[B]], (Verdict(M, 1, Kind.DELIVERED),), NOW)) == 1


# Questions.


def unknown(on: Books, speaker: Speaker, long_away: datetime | None = None) -> None:
    verdict = Verdict(M, 1, Kind.UNKNOWN)
    on.apply(questions.learn(on, verdict, speaker, None, POLICY, NOW, long_away=long_away))


def test_what_its_owner_refused_is_let_go(on_b: Books) -> None:
    """In whatever incarnation that says it: it is on record."""
    later = replace(SPEAKER[A], mark=Mark(Incarnation("d" * 16), 20))
    on_b.apply(questions.learn(on_b, Verdict(M, 1, Kind.REJECTED), later, None, POLICY, NOW))
    assert M not in on_b.copies
    assert on_b.events[-1].reason == "Rejected"


def test_unknown_from_the_owner_promotes_for_a_page_may_be_out_of_date(on_b: Books) -> None:
    unknown(on_b, SPEAKER[A])
    assert on_b.copies[M].pending is Reason.OWNER_FORGOT


def test_unknown_from_an_owner_of_version_1_in_the_offering_incarnation_releases(on_b: Books) -> None:
    unknown(on_b, replace(SPEAKER[A], version=1))
    assert M not in on_b.copies


def test_after_a_long_absence_a_copy_that_its_owner_does_not_know_is_set_aside() -> None:
    """It may have been settled, and forgotten, long ago."""
    asking = message(Role.SHADOW, confirmation=Confirmation.ASK, confirm_since=NOW)
    on = books(B, asking)
    unknown(on, SPEAKER[A], long_away=NOW)
    assert on.copies[M].stage is Stage.SET_ASIDE
    on = books(B, asking)
    unknown(on, SPEAKER[A], long_away=NOW - timedelta(seconds=1))
    assert on.copies[M].pending is Reason.OWNER_FORGOT


def test_unknown_from_the_owner_in_a_later_incarnation_promotes(on_b: Books) -> None:
    unknown(on_b, replace(SPEAKER[A], mark=Mark(Incarnation("d" * 16), 20)))
    assert on_b.copies[M].pending is Reason.OWNER_FORGOT


def test_unknown_from_anybody_else_means_nothing(on_b: Books) -> None:
    unknown(on_b, SPEAKER[C])
    assert on_b.copies[M].held


def test_unknown_from_a_holder_means_exposed() -> None:
    on = books(A, message(holders=(holder(B),)))
    unknown(on, SPEAKER[B])
    assert on.copies[M].exposed


def test_an_owner_that_is_asked_by_a_holder_records_it() -> None:
    on = books(A, message())
    verdicts = on.apply(answers.answer(on, SPEAKER[B], M, 1, None, NOW))
    assert [v.kind for v in verdicts] == [Kind.HELD]
    assert not on.copies[M].exposed


def test_a_holder_answers_yours_to_its_owner_and_taken_to_a_former_one(on_b: Books) -> None:
    assert [v.kind for v in on_b.apply(answers.answer(on_b, SPEAKER[A], M, 1, 0, NOW))] == [Kind.YOURS]
    take_over(on_b)
    (verdict,) = on_b.apply(answers.answer(on_b, SPEAKER[A], M, 1, 0, NOW))
    assert (verdict.kind, verdict.argument, verdict.epoch) == (Kind.TAKEN, B, 2)


def test_safety_net_and_outcomes_answer_too() -> None:
    on = books(B, message(Role.SHADOW, stage=Stage.SAFETY_NET))
    settled = on.copies[M].with_recipients(replace(r, status=Status.RELAYED) for r in on.copies[M].recipients)
    on.copies[M] = settled
    assert [v.kind for v in on.apply(answers.answer(on, SPEAKER[A], M, 1, 0, NOW))] == [Kind.DELIVERED]
    gone = books(B)
    gone.outcomes[M] = Outcome(M, 1, (1, 2), NOW)
    assert [v.kind for v in gone.apply(answers.answer(gone, SPEAKER[A], M, 1, 0, NOW))] == [Kind.DELIVERED]


def test_an_id_in_flight_is_left_out_of_the_answer() -> None:
    on = books(A)
    query = Query(200, questions=(Question(M, 1),))
    assert asked(on, SPEAKER[B], query, {M}, (), POLICY, NOW).lines == ()
    said = asked(on, SPEAKER[B], query, (), (), POLICY, NOW)
    assert [line.verdict.kind for line in said.lines] == [Kind.UNKNOWN]


def test_holders_ask_about_copies_of_which_the_owner_said_nothing() -> None:
    on = books(B, message(Role.SHADOW, check_at=NOW))
    assert ask(on, A, Inquiry(), NOW).questions == (Question(M, 1, None),)
    assert ask(on, A, Inquiry(), NOW - timedelta(seconds=1)).questions == ()
    assert ask(on, C, Inquiry(), NOW).questions == ()


def test_a_question_that_was_not_answered_is_put_off() -> None:
    on = books(B, message(Role.SHADOW, check_at=NOW))
    query = ask(on, A, Inquiry(), NOW)
    told(on, SPEAKER[A], query, (), Inquiry(), POLICY, NOW)
    assert on.copies[M].check_at == NOW + POLICY.orphan_check_interval


def test_a_holder_says_who_owns_what_it_holds_for_another_of_the_same_epoch() -> None:
    on = books(C, message(Role.SHADOW, owner=B, owner_database=DB[B], epoch=2))
    (verdict,) = on.apply(answers.answer(on, SPEAKER[A], M, 2, None, NOW))
    assert (verdict.kind, verdict.argument) == (Kind.TAKEN, B)


def test_superseded_counts_from_the_owner_alone(on_b: Books) -> None:
    on_b.apply(questions.learn(on_b, Verdict(M, 1, Kind.SUPERSEDED, "9"), SPEAKER[C], None, POLICY, NOW))
    assert on_b.copies[M].held


# Ownership.


def test_an_owner_yields_at_equal_epoch_to_the_rival_itself_and_asks_after_hearsay() -> None:
    taken = Verdict(M, 2, Kind.TAKEN, B)
    hearsay = books(A, message(epoch=2))
    hearsay.apply(questions.learn(hearsay, taken, SPEAKER[C], DB[B], POLICY, NOW))
    assert hearsay.copies[M].owned
    assert hearsay.copies[M].confirmation is Confirmation.ASK
    told_by_b = books(A, message(epoch=2))
    told_by_b.apply(questions.learn(told_by_b, taken, SPEAKER[B], DB[B], POLICY, NOW))
    assert told_by_b.copies[M].held


def test_a_holder_follows_its_owner_to_the_one_it_yielded_to(on_b: Books) -> None:
    taken = Verdict(M, 1, Kind.TAKEN, C)
    on_b.apply(questions.learn(on_b, taken, SPEAKER[C], DB[C], POLICY, NOW))
    assert on_b.copies[M].owner == A
    on_b.apply(questions.learn(on_b, taken, SPEAKER[A], DB[C], POLICY, NOW))
    assert on_b.copies[M].owner == C


def test_a_message_that_two_hold_for_each_other_is_promoted(on_b: Books) -> None:
    on_b.apply(questions.learn(on_b, Verdict(M, 1, Kind.YOURS), SPEAKER[A], None, POLICY, NOW))
    assert on_b.copies[M].pending is Reason.OWNER_FORGOT


def test_promotion_raises_the_epoch_and_tells_the_former_owner(on_b: Books) -> None:
    take_over(on_b)
    copy = on_b.copies[M]
    assert (copy.epoch, copy.owner, copy.confirmation) == (2, B, Confirmation.ASK)
    assert [(e.addressee, e.verdict.kind) for e in on_b.told] == [(DB[A], Kind.TAKEN)]
    assert [event.event_id for event in on_b.events] == ["RESUBMIT"]


def test_taking_over_twice_changes_nothing(on_b: Books) -> None:
    assert heartbeat.take_over(on_b, A, Reason.HEARTBEAT_LOST, NOW) == (1, None)
    assert heartbeat.take_over(on_b, A, Reason.HEARTBEAT_LOST, NOW) == (0, None)


def test_a_copy_acknowledged_so_late_that_it_may_be_promoted_is_asked_about_first(on_a: Books) -> None:
    policy, now = POLICY, NOW
    known = (attempt(Leg.ACKNOWLEDGED),)
    on_a.known[B] = Member(B, lineage(B))
    decision = redundancy.accept(
        on_a, arrival(), Content(data=b"x"), known, policy, now, last_resort=False, late=True
    )
    assert on_a.apply(decision) is Answer.ACCEPTED
    assert on_a.copies[M].confirmation is Confirmation.ASK


def test_a_delivery_that_somebody_else_settled_meanwhile_has_its_row_all_the_same(on_a: Books) -> None:
    first = message().recipients[0]
    on_a.copies[M] = message().with_recipients([replace(first, status=Status.DELIVERED)])
    results = [Result(1, Ending.ACCEPTED, "250 ok"), Result(2, Ending.ACCEPTED, "250 ok")]
    on_a.apply(settle(on_a, M, results, (), HOP, NOW))
    rows = [event for event in on_a.events if event.event_id == "SENDEXTERNAL"]
    assert sorted(r.number for row in rows for r in row.recipients) == [1, 2]
    assert on_a.copies[M].recipients[0].status is Status.DELIVERED


def test_the_higher_epoch_owns_then_the_lower_rank_then_name_order() -> None:
    assert outranks(2, 5, B, (1, 0, A))
    assert outranks(1, 0, B, (1, 1, A))
    assert outranks(1, 1, A, (1, 1, B))
    assert not outranks(1, 1, B, (1, 1, A))


def test_a_returning_owner_becomes_a_holder_of_the_new_one() -> None:
    on = books(A, message(holders=(holder(B), holder(C, rank=2))))
    on.apply(questions.learn(on, Verdict(M, 2, Kind.TAKEN, B), SPEAKER[B], DB[B], POLICY, NOW))
    copy = on.copies[M]
    assert (copy.role, copy.owner, copy.epoch, copy.check_at) == (Role.SHADOW, B, 2, NOW)
    assert [(e.addressee, e.verdict.kind) for e in on.told] == [(DB[C], Kind.TAKEN)]


def test_taken_of_an_older_epoch_is_ignored() -> None:
    on = books(A, message(epoch=3))
    on.apply(questions.learn(on, Verdict(M, 2, Kind.TAKEN, B), SPEAKER[B], DB[B], POLICY, NOW))
    assert on.copies[M].owned


def test_what_was_settled_here_travels_to_the_new_owner() -> None:
    copy = message()
    half = copy.with_recipients([replace(copy.recipients[0], status=Status.RELAYED)])
    on = books(A, half)
    on.apply(questions.learn(on, Verdict(M, 2, Kind.TAKEN, B), SPEAKER[B], DB[B], POLICY, NOW))
    assert [(e.addressee, e.verdict.kind, e.verdict.recipients) for e in on.told] == [
        (DB[B], Kind.DELIVERED, (1,))
    ]


def test_a_message_in_doubt_waits_again_once_its_holder_is_met(on_a: Books) -> None:
    lost = holder(B, HolderState.LOST)
    on_a.copies[M] = message(holders=(lost,), confirmation=Confirmation.IN_DOUBT)
    on_a.known[B] = Member(B, lineage(B))
    heartbeat.meet(on_a, B, lineage(B, 11), None, NOW, after_silence=True)
    assert on_a.copies[M].confirmation is Confirmation.ASK
    assert on_a.copies[M].holders[0].state is HolderState.HOLDING


def test_a_new_contact_after_silence_asks_again_about_what_was_taken_over(on_b: Books) -> None:
    take_over(on_b)
    on_b.copies[M] = replace(on_b.copies[M], confirmation=Confirmation.NONE)
    heartbeat.meet(on_b, A, lineage(A, 11), None, NOW, after_silence=True)
    assert on_b.copies[M].confirmation is Confirmation.ASK


# The watch.


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
    on = books(A, message(holders=(holder(B),)))
    heartbeat.lose_holder(on, B)
    assert on.copies[M].exposed
    heartbeat.meet(on, B, lineage(B, 11), None, NOW, after_silence=True)
    assert not on.copies[M].exposed


def test_an_owner_that_was_cut_off_asks_before_it_delivers() -> None:
    on = books(A, message(holders=(holder(B),)))
    heartbeat.cut_off(on, B, frozenset(), NOW)
    assert on.copies[M].confirmation is Confirmation.ASK


def test_what_a_member_at_hand_holds_too_goes_out_in_doubt_and_does_not_wait() -> None:
    lost = holder(B, state=HolderState.LOST)
    on = books(A, message(holders=(lost, holder(C))))
    heartbeat.cut_off(on, B, frozenset({B, C}), NOW)
    assert on.copies[M].confirmation is Confirmation.IN_DOUBT
    on = books(A, message(holders=(lost, holder(C))))
    heartbeat.cut_off(on, B, frozenset({B}), NOW)
    assert on.copies[M].confirmation is Confirmation.ASK


def test_a_long_queue_is_marked_part_by_part() -> None:
    ids = [MessageId(f"{M[:-1]}{number}") for number in range(5)]
    on = books(A, *(message(id=one, holders=(holder(B),)) for one in ids))
    part: Part | None = Part(most=2)
    marked = []
    while part is not None:
        part = heartbeat.cut_off(on, B, frozenset(), NOW, part)
        marked.append(sum(copy.confirmation is Confirmation.ASK for copy in on.copies.values()))
    assert marked == [2, 4, 5]


# Asking first.


def conclude(on: Books, inquiry: Inquiry, reachable: frozenset[ServerName], at: float) -> Confirmation:
    inquiry.conclude(on, reachable, POLICY, NOW, at)
    return on.copies[M].confirmation


def waiting(*holders: Holder) -> Books:
    return books(A, message(holders=holders, confirmation=Confirmation.ASK, confirm_since=NOW))


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


# Settling and reports.


def test_settling_tells_every_possible_holder_in_the_same_decision() -> None:
    on = books(A, message(holders=(holder(B), holder(C, HolderState.UNCERTAIN, 2))))
    results = [
        Result(1, Ending.ACCEPTED, "250 2.0.0"),
        Result(2, Ending.DEFERRED, "451 4.3.2", timedelta(60)),
    ]
    on.apply(settle(on, M, results, (), HOP, NOW))
    assert {(e.addressee, e.verdict.recipients) for e in on.told} == {(DB[B], (1,)), (DB[C], (1,))}
    assert [event.event_id for event in on.events] == ["SENDEXTERNAL", "DEFER"]


def test_a_delivery_that_was_overtaken_by_a_promotion_still_settles() -> None:
    on = books(A, message(Role.SHADOW, owner=B, owner_database=DB[B], epoch=2))
    results = [Result(n, Ending.ACCEPTED, "250 2.0.0") for n in (1, 2)]
    on.apply(settle(on, M, results, (), HOP, NOW))
    assert on.copies[M].stage is Stage.SAFETY_NET
    assert [e.addressee for e in on.told] == [DB[B]]


DSN = report_id(M, 1, ReportKind.FAILED)


def fail(on: Books) -> None:
    report = Report(id=DSN, about=1, content=b"x", next_hop=NextHop("back"))
    on.apply(settle(on, M, [Result(1, Ending.REJECTED, "550 5.1.1")], [report], HOP, NOW))


def test_a_failure_is_announced_only_when_its_report_is_safe() -> None:
    on = books(A, message(holders=(holder(B),)))
    fail(on)
    assert on.told == []
    on.apply(redundancy.repaired(on, DSN, attempt(Leg.ACKNOWLEDGED), NOW))
    assert [(e.addressee, e.verdict.argument, e.verdict.recipients) for e in on.told] == [
        (DB[B], "failed", (1,))
    ]


def test_a_report_that_somebody_else_made_is_safe_at_once() -> None:
    on = books(A, message(holders=(holder(B),)))
    on.copies[DSN] = replace(message(Role.SHADOW, owner=B, owner_database=DB[B]), id=DSN)
    assert side_effects.already_safe(on, DSN)
    fail(on)
    assert on.copies[M].recipients[0].report is None
    assert len(on.told) == 1


def test_two_nodes_cannot_make_two_reports() -> None:
    assert report_id(M, 1, ReportKind.FAILED) == report_id(M, 1, ReportKind.FAILED)
    assert report_id(M, 1, ReportKind.FAILED) != report_id(M, 2, ReportKind.FAILED)


# Repair.


def test_an_offer_has_its_rank_on_record_before_it_is_made() -> None:
    on = books(A, message())
    copy = on.apply(redundancy.reserve_rank(on, M, B))
    assert (copy.ranks_given, copy.holders[0].state) == (1, HolderState.UNCERTAIN)


def test_a_new_holder_supersedes_the_one_that_was_lost() -> None:
    on = books(A, message(holders=(holder(B, HolderState.LOST),), ranks_given=1))
    on.apply(redundancy.repaired(on, M, attempt(Leg.ACKNOWLEDGED, C, 2), NOW))
    assert {h.name: h.state for h in on.copies[M].holders} == {
        B: HolderState.SUPERSEDED,
        C: HolderState.HOLDING,
    }
    assert [(e.addressee, e.verdict.kind, e.verdict.argument) for e in on.told] == [
        (DB[B], Kind.SUPERSEDED, "1")
    ]


def test_an_answer_after_the_settlement_is_answered_by_an_event() -> None:
    on = books(A, message(stage=Stage.SAFETY_NET))
    on.copies[M] = on.copies[M].with_recipients(
        replace(r, status=Status.RELAYED) for r in on.copies[M].recipients
    )
    assert on.apply(redundancy.repaired(on, M, attempt(Leg.ACKNOWLEDGED), NOW)) is False
    assert [(e.addressee, e.verdict.kind) for e in on.told] == [(DB[B], Kind.DELIVERED)]


# Safety Net.


def test_a_settled_copy_goes_after_the_hold_time_and_its_outcome_stays() -> None:
    settled = message(stage=Stage.SAFETY_NET, settled_at=NOW)
    on = books(A, settled)
    assert not on.apply(
        safety_net.expire(on, settled, POLICY, NOW + POLICY.safety_net_hold_time - timedelta(seconds=1), ())
    )
    assert on.apply(safety_net.expire(on, settled, POLICY, NOW + POLICY.safety_net_hold_time, ()))
    assert on.outcomes[M].delivered == (1, 2)


def test_a_settlement_by_somebody_else_reaches_the_holders_of_ours() -> None:
    on = books(A, message(holders=(holder(B), holder(C, rank=2))))
    settled = tuple(replace(r, status=Status.RELAYED) for r in on.copies[M].recipients)
    on.apply(settle_held(on, on.copies[M], settled, DB[B], NOW))
    assert [e.addressee for e in on.told] == [DB[C]]
