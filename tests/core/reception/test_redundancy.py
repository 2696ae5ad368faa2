"""When a message is accepted, and how its copies are put on record."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from decision_inputs import POLICY, accept, arrival, attempt, holder, offer
from ledger_at_hand import DB, NOW, A, B, C, LedgerAtHand, M, ledger_of, lineage, message

from shadowrelay.core.decisions import Content, Member, VerdictKind
from shadowrelay.core.messages import Confirmation, HolderState, Stage, Status
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception import redundancy
from shadowrelay.core.reception.holding import hold
from shadowrelay.core.reception.redundancy import Answer, Leg
from shadowrelay.core.reception.shadow_servers import MemberPlace, placed, preferred


def test_a_message_is_accepted_once_a_shadow_acknowledged_it(on_a: LedgerAtHand) -> None:
    assert accept(on_a, attempt(Leg.ACKNOWLEDGED)) is Answer.ACCEPTED
    assert [event.event_id for event in on_a.events] == ["HAREDIRECT", "RECEIVE"]
    assert not on_a.copies[M].exposed


def test_no_message_is_accepted_or_held_from_the_future(on_a: LedgerAtHand) -> None:
    """The clock is set back while a message comes in; or the owner's clock is ahead of the holder's."""
    ahead = NOW + timedelta(hours=3)
    early = replace(arrival(), received_at=ahead)
    known = [attempt(Leg.ACKNOWLEDGED)]
    on_a.apply(redundancy.accept(on_a, early, Content(data=b"x"), known, POLICY, NOW, last_resort=False))
    assert on_a.copies[M].received_at == NOW
    on_b = ledger_of(B)
    on_b.apply(hold(on_b, replace(offer(), received_at=ahead), Content(data=b"x"), POLICY, NOW))
    assert on_b.copies[M].received_at == NOW


def test_without_a_shadow_policy_decides_at_the_last_resort(on_a: LedgerAtHand) -> None:
    assert accept(on_a, attempt(Leg.REFUSED), last_resort=True) is Answer.NOT_REDUNDANT
    assert not on_a.copies
    lax = Policy(reject_message_on_shadow_failure=False)
    assert accept(on_a, attempt(Leg.REFUSED), policy=lax) is Answer.NOT_REDUNDANT
    assert accept(on_a, attempt(Leg.REFUSED), policy=lax, last_resort=True) is Answer.ACCEPTED
    assert [event.event_id for event in on_a.events] == ["HAREDIRECTFAIL", "RECEIVE"]
    assert on_a.copies[M].exposed


def test_an_acknowledgement_whose_holder_has_a_new_database_does_not_count(on_a: LedgerAtHand) -> None:
    on_a.known[B] = Member(B, replace(lineage(B), database_id=DB[C]))
    assert accept(on_a, attempt(Leg.ACKNOWLEDGED), last_resort=True) is Answer.NOT_REDUNDANT


def test_an_acknowledgement_of_a_retired_member_does_not_count(on_a: LedgerAtHand) -> None:
    on_a.known[B] = replace(on_a.known[B], retired=True)
    assert accept(on_a, attempt(Leg.ACKNOWLEDGED), last_resort=True) is Answer.NOT_REDUNDANT


def test_the_mark_of_an_acknowledgement_is_remembered(on_a: LedgerAtHand) -> None:
    accept(on_a, attempt(Leg.ACKNOWLEDGED, sequence=42))
    assert on_a.known[B].lineage == lineage(B, 42)


def test_two_offers_to_one_database_leave_one_holder_with_the_last_rank(on_a: LedgerAtHand) -> None:
    accept(on_a, attempt(Leg.LOST), attempt(Leg.ACKNOWLEDGED, rank=2))
    assert [(h.rank, h.state) for h in on_a.copies[M].holders] == [(2, HolderState.HOLDING)]


def test_a_candidate_whose_answer_was_lost_is_a_possible_holder(on_a: LedgerAtHand) -> None:
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
    assert [sites.members for sites in preferred(placed(here, places), POLICY, turn=0)] == [(), (C,)]


def test_a_copy_acknowledged_so_late_that_it_may_be_promoted_is_asked_about_first(on_a: LedgerAtHand) -> None:
    policy, now = POLICY, NOW
    known = (attempt(Leg.ACKNOWLEDGED),)
    on_a.known[B] = Member(B, lineage(B))
    decision = redundancy.accept(
        on_a, arrival(), Content(data=b"x"), known, policy, now, last_resort=False, late=True
    )
    assert on_a.apply(decision) is Answer.ACCEPTED
    assert on_a.copies[M].confirmation is Confirmation.ASK


def test_an_offer_has_its_rank_on_record_before_it_is_made() -> None:
    on = ledger_of(A, message())
    copy = on.apply(redundancy.reserve_rank(on, M, B))
    assert (copy.ranks_given, copy.holders[0].state) == (1, HolderState.UNCERTAIN)


def test_a_new_holder_supersedes_the_one_that_was_lost() -> None:
    on = ledger_of(A, message(holders=(holder(B, HolderState.LOST),), ranks_given=1))
    on.apply(redundancy.repaired(on, M, attempt(Leg.ACKNOWLEDGED, C, 2), NOW))
    assert {h.name: h.state for h in on.copies[M].holders} == {
        B: HolderState.SUPERSEDED,
        C: HolderState.HOLDING,
    }
    assert [(e.addressee, e.verdict.kind, e.verdict.argument) for e in on.told] == [
        (DB[B], VerdictKind.SUPERSEDED, "1")
    ]


def test_an_answer_after_the_settlement_is_answered_by_an_event() -> None:
    on = ledger_of(A, message(stage=Stage.SAFETY_NET))
    on.copies[M] = on.copies[M].with_recipients(
        replace(r, status=Status.RELAYED) for r in on.copies[M].recipients
    )
    assert on.apply(redundancy.repaired(on, M, attempt(Leg.ACKNOWLEDGED), NOW)) is False
    assert [(e.addressee, e.verdict.kind) for e in on.told] == [(DB[B], VerdictKind.DELIVERED)]
