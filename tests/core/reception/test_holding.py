"""What a holder takes, keeps and drops."""

from __future__ import annotations

from dataclasses import replace

from decision_inputs import POLICY, SPEAKER, offer, take_over
from ledger_at_hand import DB, NOW, A, B, C, LedgerAtHand, M, ledger_of, lineage, message

from shadowrelay.core.decisions import Content, Outcome, SaveCopy, Tombstone, Verdict, VerdictKind
from shadowrelay.core.digests import of_content
from shadowrelay.core.members import questions
from shadowrelay.core.messages import Confirmation, Digests, Envelope, Role, Stage
from shadowrelay.core.reception.holding import OfferAnswer, hold, revoke


def test_an_offer_is_held_and_may_be_repeated() -> None:
    on = ledger_of(B)
    assert on.apply(hold(on, offer(), Content(data=b"x"), POLICY, NOW)) is OfferAnswer.QUEUED
    assert on.apply(hold(on, offer(), Content(data=b"x"), POLICY, NOW)) is OfferAnswer.QUEUED
    assert on.copies[M].held
    assert on.known[A].lineage == lineage(A, 11)


def test_the_copy_of_a_report_that_two_members_made_becomes_that_of_the_later_owner(
    on_b: LedgerAtHand,
) -> None:
    made_by_c = replace(
        offer(epoch=2, owner=C),
        digests=Digests(of_content(b"at another time"), "of another size"),
        envelope=Envelope(sender="", size=15),
    )
    decision = hold(on_b, made_by_c, Content(data=b"at another time"), POLICY, NOW)
    (stored,) = (write for write in decision.writes if isinstance(write, SaveCopy))
    assert stored.content == Content(data=b"at another time")
    assert on_b.apply(decision) is OfferAnswer.QUEUED
    copy = on_b.copies[M]
    assert (copy.owner, copy.digests, copy.envelope) == (C, made_by_c.digests, made_by_c.envelope)


def test_octets_that_this_node_has_already_are_not_stored_again(on_b: LedgerAtHand) -> None:
    decision = hold(on_b, offer(epoch=2, owner=C), Content(data=b"x"), POLICY, NOW)
    assert [write.content for write in decision.writes if isinstance(write, SaveCopy)] == [None]


def test_a_tombstone_refuses_equal_and_lower_ranks_only() -> None:
    on = ledger_of(B)
    on.graves[M] = Tombstone(M, A, 1, 2, NOW)
    assert on.apply(hold(on, offer(rank=2), Content(data=b"x"), POLICY, NOW)) is OfferAnswer.REVOKED
    assert on.apply(hold(on, offer(rank=3), Content(data=b"x"), POLICY, NOW)) is OfferAnswer.QUEUED


def test_an_offer_of_something_settled_or_owned_here_is_refused() -> None:
    on = ledger_of(B)
    on.outcomes[M] = Outcome(M, 1, (1, 2), NOW)
    assert on.apply(hold(on, offer(), Content(data=b"x"), POLICY, NOW)) is OfferAnswer.NOT_YOURS
    owned = ledger_of(B, message(owner=B, owner_database=DB[B], epoch=2))
    assert owned.apply(hold(owned, offer(), Content(data=b"x"), POLICY, NOW)) is OfferAnswer.NOT_YOURS


def test_two_owners_of_one_message_both_ask_when_one_offers_it_to_the_other() -> None:
    on = ledger_of(B, message(owner=B, owner_database=DB[B]))
    on.apply(hold(on, offer(), Content(data=b"x"), POLICY, NOW))
    assert on.copies[M].confirmation is Confirmation.ASK


def test_revoke_drops_the_copy_and_refuses_it_for_ever(on_b: LedgerAtHand) -> None:
    assert on_b.apply(revoke(on_b, A, M, 1, 1, POLICY, NOW)).kind is VerdictKind.REJECTED
    assert M not in on_b.copies
    assert on_b.apply(hold(on_b, offer(), Content(data=b"x"), POLICY, NOW)) is OfferAnswer.REVOKED


def test_revoke_leaves_a_tombstone_for_an_unknown_id() -> None:
    on = ledger_of(B)
    assert on.apply(revoke(on, A, M, 1, 1, POLICY, NOW)).kind is VerdictKind.REJECTED
    assert on.graves[M].rank == 1


def test_only_its_owner_revokes_a_copy_and_blocks_its_offers(on_b: LedgerAtHand) -> None:
    verdict = on_b.apply(revoke(on_b, C, M, 1, 1, POLICY, NOW))
    assert (verdict.kind, verdict.argument, on_b.graves) == (VerdictKind.TAKEN, A, {})
    assert on_b.copies[M].held
    empty = ledger_of(B)
    empty.apply(revoke(empty, C, M, 1, 9, POLICY, NOW))
    assert empty.apply(hold(empty, offer(), Content(data=b"x"), POLICY, NOW)) is OfferAnswer.QUEUED


def test_a_promoted_or_delivered_copy_cannot_be_revoked(on_b: LedgerAtHand) -> None:
    take_over(on_b)
    assert on_b.apply(revoke(on_b, A, M, 1, 1, POLICY, NOW)).kind is VerdictKind.TAKEN
    settled = ledger_of(B, message(Role.SHADOW, stage=Stage.SAFETY_NET))
    assert settled.apply(revoke(settled, A, M, 1, 1, POLICY, NOW)).kind is VerdictKind.DELIVERED


def test_a_half_delivered_message_is_half_discarded(on_b: LedgerAtHand) -> None:
    on_b.apply(
        questions.learn(
            on_b, Verdict(M, 1, VerdictKind.DELIVERED, recipients=(2,)), SPEAKER[A], None, POLICY, NOW
        )
    )
    assert [r.settled for r in on_b.copies[M].recipients] == [False, True]
    assert on_b.copies[M].held


def test_the_last_recipient_moves_the_copy_to_safety_net(on_b: LedgerAtHand) -> None:
    on_b.apply(questions.learn(on_b, Verdict(M, 1, VerdictKind.DELIVERED), SPEAKER[A], None, POLICY, NOW))
    assert on_b.copies[M].stage is Stage.SAFETY_NET
