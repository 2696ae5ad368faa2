"""Handing a queue over before a node is stopped: who owns it then, and what a holder makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from decision_inputs import SPEAKER
from ledger_at_hand import DB, NOW, RUN, A, B, C, LedgerAtHand, M, ledger_of, lineage, message

from shadowrelay.core.decisions import Decision, DropEvents, Member, VerdictKind
from shadowrelay.core.identifiers import Beginning, Incarnation, Mark, ServerName
from shadowrelay.core.members.conversation import Answered, ask, asked, told
from shadowrelay.core.messages import Confirmation, Holder, HolderState, Reason, Role
from shadowrelay.core.ownership.handover import awaits_its_owner, hand_over
from shadowrelay.core.policy import Policy
from shadowrelay.members.inquiry import Inquiry

POLICY = Policy()


def holder(name: ServerName, rank: int, state: HolderState = HolderState.HOLDING) -> Holder:
    return Holder(name, DB[name], Mark(RUN[name], 5), rank, state)


def owning(*holders: Holder) -> LedgerAtHand:
    """A owns the message."""
    return ledger_of(A, replace(message(), holders=holders, ranks_given=len(holders)))


def holding(name: ServerName, rank: int) -> LedgerAtHand:
    """A node that holds a copy for A."""
    return ledger_of(name, message(Role.SHADOW, rank=rank))


def talk(asker: LedgerAtHand, to: LedgerAtHand, inquiry: Inquiry) -> None:
    """One XQDISCARD, asked, answered and applied."""
    query = ask(asker, to.name, inquiry, NOW)
    said = asked(to, SPEAKER[asker.name], query, (), (), POLICY, NOW)
    answered = Answered(said.lines, SPEAKER[to.name].mark, said.seen)
    told(asker, SPEAKER[to.name], query, answered.lines, inquiry, POLICY, NOW)


def give(on: LedgerAtHand, *reachable: ServerName) -> ServerName | None:
    return on.apply(hand_over(on, on.copies[M], reachable, NOW))


def test_the_first_holder_that_can_be_reached_becomes_the_owner_and_we_its_holder() -> None:
    on = owning(holder(C, 2), holder(B, 1))
    assert give(on, C, B) == B
    held = on.copies[M]
    assert (held.role, held.owner, held.owner_database, held.epoch) == (Role.SHADOW, B, DB[B], 2)
    assert awaits_its_owner(held)
    assert {(event.addressee, event.verdict.kind, event.verdict.argument) for event in on.told} == {
        (DB[B], VerdictKind.TAKEN, B),
        (DB[C], VerdictKind.TAKEN, B),
    }


def test_a_holder_out_of_reach_is_passed_over() -> None:
    assert give(owning(holder(B, 1), holder(C, 2)), C) == C


@pytest.mark.parametrize("state", [HolderState.LOST, HolderState.UNCERTAIN, HolderState.SUPERSEDED])
def test_nobody_gets_a_message_that_is_not_known_to_have_a_copy(state: HolderState) -> None:
    on = owning(holder(B, 1, state))
    before = on.copies[M]
    assert give(on, B) is None
    assert (on.copies[M], on.told) == (before, [])


def test_a_holder_that_was_restarted_since_gets_it_though_its_lineage_no_longer_reaches_back() -> None:
    on = owning(holder(B, 1))
    later = Beginning(Incarnation("f" * 16), 12)
    on.known[B] = Member(B, replace(lineage(B), beginnings=(later,), sequence=20))
    assert give(on, B) == B


def test_a_holder_whose_lineage_broke_gets_nothing() -> None:
    on = owning(holder(B, 1))
    on.known[B] = Member(B, replace(lineage(B), database_id=DB[C]))
    assert give(on, B) is None


def test_a_message_that_others_are_to_be_asked_about_first_stays() -> None:
    on = owning(holder(B, 1))
    on.copies[M] = replace(on.copies[M], confirmation=Confirmation.ASK)
    assert give(on, B) is None


def test_the_new_owner_promotes_its_copy_and_records_the_old_owner_as_its_holder() -> None:
    old, new = owning(holder(B, 1)), holding(B, 1)
    give(old, B)
    asks, its = Inquiry(), Inquiry()
    talk(new, old, its)
    assert new.copies[M].pending is Reason.HANDED_OVER
    its.conclude(new, frozenset({A}), POLICY, NOW, 1.0)
    its.sound |= its.unread  # its content is as it has to be
    its.conclude(new, frozenset({A}), POLICY, NOW, 1.0)
    assert (new.copies[M].role, new.copies[M].owner, new.copies[M].epoch) == (Role.PRIMARY, B, 2)
    talk(old, new, asks)  # the word that it was taken
    talk(old, new, asks)  # the question that follows
    assert not awaits_its_owner(old.copies[M])
    (recorded,) = [one for one in new.copies[M].holders if one.database_id == DB[A]]
    assert recorded.state is HolderState.HOLDING


def test_a_new_owner_that_has_not_heard_of_it_yet_is_asked_again_and_nobody_promotes() -> None:
    old, new = owning(holder(B, 1)), holding(B, 1)
    give(old, B)
    talk(old, new, Inquiry())
    assert (old.copies[M].held, old.copies[M].pending) == (True, None)
    assert awaits_its_owner(old.copies[M])


def test_another_holder_follows_to_the_new_owner_without_promoting() -> None:
    old, new, other = owning(holder(B, 1), holder(C, 2)), holding(B, 1), holding(C, 2)
    give(old, B)
    asks = Inquiry()
    talk(other, old, asks)
    assert (other.copies[M].owner, other.copies[M].epoch) == (B, 2)
    talk(other, new, asks)  # which still thinks that A owns it
    assert (other.copies[M].held, other.copies[M].pending) == (True, None)


def test_only_its_owner_can_give_a_copy_to_its_holder() -> None:
    stranger, new = owning(holder(B, 1)), holding(B, 1)
    give(stranger, B)
    new.copies[M] = replace(new.copies[M], owner=C, owner_database=DB[C])
    talk(new, stranger, Inquiry())
    assert new.copies[M].pending is None


def test_a_new_owner_to_which_the_word_was_lost_learns_it_from_its_own_question() -> None:
    old, new = owning(holder(B, 1)), holding(B, 1)
    give(old, B)
    old.apply(Decision(None, (DropEvents(DB[B]),)))
    talk(old, new, Inquiry())  # which makes it ask in its turn
    talk(new, old, Inquiry())
    assert new.copies[M].pending is Reason.HANDED_OVER


def test_a_holder_on_our_own_machine_gets_it_only_if_it_is_named() -> None:
    on = owning(holder(B, 1, HolderState.BESIDE))
    assert give(on, B) is None
    assert on.apply(hand_over(on, on.copies[M], (B,), NOW, beside=True)) == B
