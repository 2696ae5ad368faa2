"""The second opinion: who vouches for an owner, who promotes, and who becomes a holder."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from decision_inputs import SPEAKER
from ledger_at_hand import DB, NOW, RUN, A, B, C, LedgerAtHand, M, ledger_of, lineage, message

from shadowrelay.core.decisions import Content, Member, Outcome, VerdictKind
from shadowrelay.core.identifiers import Mark, ServerName
from shadowrelay.core.members.answers import answer
from shadowrelay.core.members.claims import Claim, Sighting, judge, sighting_of, vouches
from shadowrelay.core.members.conversation import Answered, Query, Question, ask, asked, told
from shadowrelay.core.messages import Confirmation, Envelope, HolderState, Reason, Role, Status
from shadowrelay.core.ownership.transfer import NO_INCARNATION, intend, withdraw
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.holding import ShadowCopyOffer, hold
from shadowrelay.members.inquiry import Inquiry

POLICY = Policy()
SIGHTING = Sighting(A, DB[A], Mark(RUN[A], 8))
EVERYBODY = frozenset({A, B, C})


def holding(name: ServerName, rank: int, reason: Reason | None = None) -> LedgerAtHand:
    """A node that holds a copy for A, with that rank, and is perhaps about to promote it."""
    on = ledger_of(name, message(Role.SHADOW, rank=rank))
    if reason:
        on.apply(intend(on.copies[M], reason, NOW))
    return on


def talk(
    asker: LedgerAtHand, to: LedgerAtHand, inquiry: Inquiry, sighted: frozenset[ServerName] = frozenset()
) -> Query:
    """One XQDISCARD, asked, answered and applied."""
    query = ask(asker, to.name, inquiry, NOW)
    said = asked(to, SPEAKER[asker.name], query, (), sighted, POLICY, NOW)
    answered = Answered(said.lines, SPEAKER[to.name].mark, said.seen)
    told(asker, SPEAKER[to.name], query, answered.lines, inquiry, POLICY, NOW)
    return query


def conclude(on: LedgerAtHand, inquiry: Inquiry, *reachable: ServerName, at: float = 1.0) -> int:
    closed = inquiry.conclude(on, frozenset(reachable), POLICY, NOW, at)
    if not inquiry.unread:
        return closed
    inquiry.sound |= inquiry.unread  # their contents are as they have to be
    inquiry.unread.clear()
    return closed + inquiry.conclude(on, frozenset(reachable), POLICY, NOW, at)


# Contact with the owner.


def test_a_member_in_contact_on_the_same_lineage_vouches_for_an_owner() -> None:
    on = holding(C, 2)
    assert vouches(on, {A}, SIGHTING)
    assert not vouches(on, {B}, SIGHTING)


def test_nobody_vouches_for_an_owner_whose_lineage_broke() -> None:
    on = holding(C, 2)
    assert not vouches(on, {A}, replace(SIGHTING, mark=Mark(RUN[A], 11)))
    assert not vouches(on, {A}, replace(SIGHTING, database_id=DB[B]))


def test_the_second_opinion_is_part_of_the_answer() -> None:
    on = holding(C, 2)
    query = Query(0, sighting=SIGHTING)
    assert asked(on, SPEAKER[B], query, (), {A}, POLICY, NOW).seen == A
    assert asked(on, SPEAKER[B], query, (), (), POLICY, NOW).seen is None


def test_without_copies_there_is_nothing_to_ask_for() -> None:
    assert sighting_of(ledger_of(B), A) is None
    assert sighting_of(holding(B, 1), A) == Sighting(A, DB[A], Mark(RUN[A], 10))
    assert sighting_of(holding(B, 1, Reason.HEARTBEAT_LOST), A) is None


def test_of_an_owner_that_a_node_knows_no_more_its_copies_tell_whom_to_ask_for() -> None:
    """The row about that member was damaged, and dropped: its mail is promoted by time all the same."""
    on = holding(B, 1)
    del on.known[A]
    sighting = sighting_of(on, A)
    assert sighting == Sighting(A, DB[A], Mark(RUN[A], 0))
    assert vouches(holding(C, 2), {A}, sighting)
    on.put(replace(on.copies[M], offered_in=NO_INCARNATION))
    assert sighting_of(on, A) is None


# A promotion is pending first.


def test_nothing_is_promoted_before_every_member_in_reach_was_asked() -> None:
    on, inquiry = holding(B, 1, Reason.DATABASE_REPLACED), Inquiry()
    assert conclude(on, inquiry, A, C) == 0
    assert on.copies[M].held
    talk(on, ledger_of(C), inquiry)
    assert conclude(on, inquiry, A, C) == 1
    assert (on.copies[M].owned, on.copies[M].epoch) == (True, 2)


def test_the_owner_itself_is_not_asked_for_its_consent_but_before_the_delivery() -> None:
    on, inquiry = holding(B, 1, Reason.DATABASE_ROLLED_BACK), Inquiry()
    assert ask(on, A, inquiry, NOW).claimed == ()
    assert conclude(on, inquiry, A) == 1
    assert on.copies[M].confirmation is Confirmation.ASK
    assert ask(on, A, inquiry, NOW).questions == (Question(M, 2, 1),)
    assert conclude(on, inquiry, A) == 0


def test_of_two_holders_the_lower_rank_promotes_and_the_other_becomes_its_holder() -> None:
    on_b, on_c = holding(B, 1, Reason.DATABASE_REPLACED), holding(C, 2)
    b_asked, c_asked = Inquiry(), Inquiry()
    talk(on_b, on_c, b_asked)
    assert on_c.copies[M].pending is Reason.DATABASE_REPLACED  # adopted
    talk(on_c, on_b, c_asked)
    assert conclude(on_c, c_asked, B) == 0  # it waits for the lower rank, however often it asks
    assert conclude(on_b, b_asked, C) == 1
    (second,) = on_b.copies[M].holders
    assert (second.name, second.state, on_b.copies[M].exposed) == (C, HolderState.HOLDING, False)
    assert [event.event_id for event in on_b.events] == ["RESUBMIT", "HAREDIRECT"]
    assert [(event.addressee, event.verdict.kind) for event in on_b.told] == [(DB[C], VerdictKind.TAKEN)]
    talk(on_c, on_b, c_asked)
    assert (on_c.copies[M].owner, on_c.copies[M].epoch, on_c.copies[M].pending) == (B, 2, None)
    assert conclude(on_c, c_asked, B) == 0


def test_the_lower_rank_that_cannot_be_reached_any_more_is_waited_for_only_so_long() -> None:
    on_b, on_c = holding(B, 1), holding(C, 2, Reason.DATABASE_REPLACED)
    inquiry = Inquiry()
    talk(on_c, on_b, inquiry)
    assert conclude(on_c, inquiry, at=1.0) == 0
    assert conclude(on_c, inquiry, at=2.0 + POLICY.reconcile_timeout.total_seconds()) == 1
    assert on_c.copies[M].owned


def test_another_holder_whose_database_is_gone_by_then_does_not_count() -> None:
    on_b, inquiry = holding(B, 1, Reason.DATABASE_REPLACED), Inquiry()
    talk(on_b, holding(C, 2), inquiry)
    on_b.known[C] = Member(C, replace(lineage(C, 0), database_id=DB[A]))
    conclude(on_b, inquiry, C)
    assert on_b.copies[M].exposed


def test_what_was_delivered_is_learnt_instead_of_promoting() -> None:
    on_b, on_c = holding(B, 1, Reason.DATABASE_REPLACED), ledger_of(C)
    on_c.outcomes[M] = Outcome(M, 2, (1, 2), NOW)
    inquiry = Inquiry()
    talk(on_b, on_c, inquiry)
    conclude(on_b, inquiry, C)
    assert [recipient.status for recipient in on_b.copies[M].recipients] == [Status.DELIVERED] * 2
    assert not on_b.copies[M].queued


def test_half_of_it_delivered_is_merged_before_the_promotion() -> None:
    on_b, on_c = holding(B, 1, Reason.DATABASE_REPLACED), holding(C, 2)
    first, _ = on_c.copies[M].recipients
    on_c.copies[M] = on_c.copies[M].with_recipients([replace(first, status=Status.RELAYED)])
    inquiry = Inquiry()
    talk(on_b, on_c, inquiry)
    conclude(on_b, inquiry, C)
    assert [recipient.number for recipient in on_b.copies[M].unsettled] == [2]


# Silence is weaker than evidence.


def test_a_holder_in_contact_with_the_owner_gives_no_answer_to_mere_silence() -> None:
    on_b, on_c = holding(B, 1, Reason.HEARTBEAT_LOST), holding(C, 2)
    inquiry = Inquiry()
    talk(on_b, on_c, inquiry, sighted=frozenset({A}))
    assert on_c.copies[M].pending is None
    assert conclude(on_b, inquiry, C) == 0
    talk(on_b, on_c, inquiry)
    assert conclude(on_b, inquiry, C) == 1


def test_an_owner_that_is_back_before_the_promotion_stays_the_owner() -> None:
    on, inquiry = holding(B, 1, Reason.HEARTBEAT_LOST), Inquiry()
    assert conclude(on, inquiry, A) == 1
    assert (on.copies[M].held, on.copies[M].pending, on.copies[M].check_at) == (True, None, NOW)


def test_an_owner_that_asks_is_only_one_that_was_silent(subtests: pytest.Subtests) -> None:
    silent = holding(B, 1, Reason.HEARTBEAT_LOST)
    with subtests.test("silence"):
        (verdict,) = silent.apply(answer(silent, SPEAKER[A], M, 1, 0, NOW))
        assert (verdict.kind, silent.copies[M].pending) == (VerdictKind.YOURS, None)
    broken = holding(B, 1, Reason.DATABASE_ROLLED_BACK)
    with subtests.test("evidence"):
        (verdict,) = broken.apply(answer(broken, SPEAKER[A], M, 1, 0, NOW))
        assert (verdict.kind, broken.copies[M].pending) == (VerdictKind.PENDING, Reason.DATABASE_ROLLED_BACK)


def test_evidence_replaces_silence_and_not_the_other_way_round() -> None:
    on = holding(B, 1, Reason.HEARTBEAT_LOST)
    on.apply(intend(on.copies[M], Reason.DATABASE_REPLACED, NOW + timedelta(seconds=1)))
    assert (on.copies[M].pending, on.copies[M].confirm_since) == (Reason.DATABASE_REPLACED, NOW)
    on.apply(intend(on.copies[M], Reason.HEARTBEAT_LOST, NOW))
    on.apply(withdraw(on.copies[M], NOW))
    assert on.copies[M].pending is Reason.DATABASE_REPLACED


def test_an_owner_that_offers_the_copy_again_is_not_silent() -> None:
    on = holding(B, 1, Reason.HEARTBEAT_LOST)
    copy = on.copies[M]
    again = ShadowCopyOffer(
        message_id=M,
        epoch=1,
        rank=2,
        owner=A,
        owner_database=DB[A],
        mark=Mark(RUN[A], 11),
        received_at=NOW,
        envelope=Envelope(sender="s@example.org", size=1),
        recipients=copy.recipients,
        digests=copy.digests,
    )
    on.apply(hold(on, again, Content(data=b"x"), POLICY, NOW))
    assert (on.copies[M].pending, on.copies[M].rank, on.copies[M].confirmation) == (
        None,
        2,
        Confirmation.NONE,
    )


# Claims that concern another copy.


def test_a_claim_on_another_owner_or_database_is_an_ordinary_question() -> None:
    on = holding(C, 2)
    for claim in (
        Claim(B, DB[B], Reason.DATABASE_REPLACED),
        Claim(A, DB[B], Reason.DATABASE_REPLACED),
    ):
        verdicts = on.apply(judge(on, SPEAKER[B], claim, M, 1, 1, (), NOW))
        assert VerdictKind.PENDING not in [verdict.kind for verdict in verdicts]
        assert on.copies[M].pending is None


def test_a_claim_creates_no_state_for_an_unknown_message() -> None:
    on = ledger_of(C)
    (verdict,) = on.apply(judge(on, SPEAKER[B], Claim(A, DB[A], Reason.HEARTBEAT_LOST), M, 1, 1, (), NOW))
    assert (verdict.kind, on.copies) == (VerdictKind.UNKNOWN, {})


# The owner named the one that is to own the message.


def test_the_holder_to_which_the_owner_gave_the_message_promotes_whatever_the_ranks() -> None:
    named, other = holding(C, 2, Reason.HANDED_OVER), holding(B, 1)
    asks = Inquiry()
    talk(named, other, asks)
    assert other.copies[M].pending is None, "a handover is to one alone"
    conclude(named, asks, B)
    assert (named.copies[M].role, named.copies[M].owner) == (Role.PRIMARY, C)
    assert [one.name for one in named.copies[M].holders] == [B]


def test_a_holder_that_promotes_for_another_reason_waits_for_the_one_that_the_owner_named() -> None:
    named, other = holding(C, 2, Reason.HANDED_OVER), holding(B, 1, Reason.DATABASE_REPLACED)
    asks, its = Inquiry(), Inquiry()
    talk(other, named, its)
    conclude(other, its, C)
    assert other.copies[M].held, "it asks again"
    talk(named, other, asks)
    conclude(named, asks, B)
    assert named.copies[M].owned
    talk(other, named, its)
    conclude(other, its, C)
    assert (other.copies[M].role, other.copies[M].owner) == (Role.SHADOW, C)
