"""What a damaged copy counts for, what is said of it, who is given a good one, and what comes of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from ledger_at_hand import DB, NOW, RUN, A, B, C, LedgerAtHand, M, ledger_of, message

from shadowrelay.core.decisions import Content, DamagedRow, Outcome, Verdict, VerdictKind
from shadowrelay.core.digests import of_content
from shadowrelay.core.events.reports import ReportKind, report_id
from shadowrelay.core.identifiers import Mark, MessageId, ServerName
from shadowrelay.core.members import damage
from shadowrelay.core.members.answers import answer, for_version_1
from shadowrelay.core.members.claims import Claim, judge
from shadowrelay.core.members.damage import Wanted
from shadowrelay.core.members.questions import Speaker, learn
from shadowrelay.core.messages import (
    Copy,
    Damage,
    Digests,
    Holder,
    HolderState,
    Reason,
    Role,
    Stage,
    Status,
)
from shadowrelay.core.ownership.transfer import intend, promote, yields
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.holding import OfferAnswer, ShadowCopyOffer, hold, revoke
from shadowrelay.core.reception.redundancy import Leg, OfferAttempt, repaired, reserve_rank
from shadowrelay.core.safety_net.expiry import expire

POLICY = Policy()
SPEAKS = {name: Speaker(name, DB[name], Mark(RUN[name], 10)) for name in (A, B, C)}
BY_B = Holder(B, DB[B], Mark(RUN[B], 10), 1, HolderState.HOLDING)
MINE = message(holders=(BY_B,), ranks_given=1)
HELD = message(Role.SHADOW)
BAD = Damage.CONTENT
ROWS = DamagedRow(M, NOW, "the sum of a row differs")
GOOD = MINE.digests
assert GOOD


def given(by: ServerName = B, to: ServerName = A, **changes: Any) -> ShadowCopyOffer:
    """A good copy, as a holder gives it to its owner."""
    plain = ShadowCopyOffer(
        message_id=M,
        epoch=1,
        rank=1,
        owner=by,
        owner_database=DB[by],
        mark=Mark(RUN[by], 10),
        received_at=NOW,
        envelope=MINE.envelope,
        recipients=MINE.recipients,
        digests=GOOD,
        given_for=to,
    )
    return replace(plain, **changes)


def take(on: LedgerAtHand, offer: ShadowCopyOffer) -> OfferAnswer:
    return on.apply(hold(on, offer, Content(data=b"x"), POLICY, NOW))  # type: ignore[no-any-return]


def half_sent(copy: Copy) -> Copy:
    return copy.with_recipients([replace(copy.recipients[0], status=Status.DELIVERED)])


def kinds(said: tuple[Verdict, ...]) -> list[VerdictKind]:
    return [verdict.kind for verdict in said]


# Found.


def test_damage_is_written_down_once_and_deletes_nothing() -> None:
    on = ledger_of(A, MINE)
    assert on.apply(damage.found(on, M, NOW, "it is short"))
    assert (on.copies[M].damage, on.copies[M].recipients) == (BAD, MINE.recipients)
    assert not on.apply(damage.found(on, M, NOW))
    assert [event.event_id for event in on.events] == ["HADAMAGE"]


def test_a_holder_tells_its_owner_at_once() -> None:
    on = ledger_of(B, HELD)
    on.apply(damage.found(on, M, NOW))
    assert on.copies[M].check_at == NOW


def test_a_damaged_message_is_offered_to_nobody_and_not_promoted() -> None:
    on = ledger_of(A, replace(MINE, holders=(), damage=BAD))
    assert reserve_rank(on, M, B).writes == ()
    held = ledger_of(B, replace(HELD, damage=BAD))
    held.apply(intend(held.copies[M], Reason.DATABASE_REPLACED, NOW))
    held.apply(promote(held, held.copies[M], NOW))
    assert held.copies[M].held


def test_damage_outlasts_every_age() -> None:
    late = NOW + timedelta(days=900)
    on = ledger_of(B, replace(HELD, damage=BAD))
    assert expire(on, on.copies[M], POLICY, late, ()).writes == ()
    sound = ledger_of(B, HELD)
    assert sound.apply(expire(sound, HELD, POLICY, late, ()))


def test_before_a_copy_goes_by_age_its_owner_is_asked_and_what_it_says_renews_the_copy() -> None:
    late = NOW + timedelta(days=900)
    on = ledger_of(B, HELD)
    assert not on.apply(expire(on, HELD, POLICY, late, {A}))
    assert on.copies[M].check_at == late
    on.apply(learn(on, Verdict(M, 1, VerdictKind.RECORDED, "1"), SPEAKS[A], None, POLICY, late))
    assert on.copies[M].check_at is None
    assert not expire(on, on.copies[M], POLICY, late, ()).writes


# Said.


@pytest.mark.parametrize("asker", [B, C])
def test_what_is_settled_is_said_of_a_damaged_message_and_else_that_it_is_damaged(asker: ServerName) -> None:
    on = ledger_of(A, replace(half_sent(MINE), damage=BAD))
    said = answer(on, SPEAKS[asker], M, 1, None, NOW).then
    assert kinds(said) == [VerdictKind.DELIVERED, VerdictKind.DAMAGED]
    assert said[0].recipients == (1,)


def test_the_same_is_said_of_rows_that_cannot_be_believed() -> None:
    on = ledger_of(A)
    on.rows[M] = replace(ROWS, settled=((2, Status.RELAYED),))
    said = answer(on, SPEAKS[B], M, 1, None, NOW).then
    assert (kinds(said), said[0].recipients) == ([VerdictKind.DELIVERED, VerdictKind.DAMAGED], (2,))


def test_a_damaged_copy_promotes_nothing_waits_for_nobody_and_is_waited_for_by_nobody() -> None:
    on = ledger_of(C, replace(HELD, rank=1, damage=BAD))
    claim = Claim(A, DB[A], Reason.DATABASE_REPLACED)
    said = on.apply(judge(on, SPEAKS[B], claim, M, 1, 2, (), NOW))
    assert (kinds(said), said[0].argument) == ([VerdictKind.DAMAGED], "1")
    good = ledger_of(B, replace(HELD, rank=2))
    good.apply(intend(good.copies[M], Reason.DATABASE_REPLACED, NOW))
    good.apply(learn(good, said[0], SPEAKS[C], None, POLICY, NOW))
    good.apply(promote(good, good.copies[M], NOW))
    (fellow,) = good.copies[M].holders
    assert (fellow.name, fellow.state, good.copies[M].exposed) == (C, HolderState.UNCERTAIN, True)


def test_the_copy_of_a_claimant_that_is_damaged_does_not_count_either() -> None:
    on = ledger_of(B, replace(HELD, rank=2))
    claim = Claim(A, DB[A], Reason.DATABASE_REPLACED)
    on.apply(judge(on, SPEAKS[C], claim, M, 1, 1, (), NOW, damaged=True))
    assert [one.state for one in on.copies[M].holders] == [HolderState.UNCERTAIN]


def test_a_copy_that_its_holder_calls_damaged_counts_as_none_and_stays_until_there_is_another() -> None:
    on = ledger_of(A, MINE)
    said = on.apply(answer(on, SPEAKS[B], M, 1, None, NOW, damaged=True))
    assert kinds(said) == [VerdictKind.PENDING]
    assert (on.copies[M].exposed, on.copies[M].holders[0].state) == (True, HolderState.UNCERTAIN)
    again = OfferAttempt(C, Leg.ACKNOWLEDGED, 2, "250", DB[C], Mark(RUN[C], 10))
    assert on.apply(repaired(on, M, again, NOW))
    assert [(e.addressee, e.verdict.kind) for e in on.told] == [(DB[B], VerdictKind.SUPERSEDED)]
    assert kinds(answer(on, SPEAKS[B], M, 1, None, NOW, damaged=True).then) == [VerdictKind.SUPERSEDED]


def test_what_its_holder_answers_is_damaged_counts_as_none() -> None:
    on = ledger_of(A, MINE)
    on.apply(learn(on, Verdict(M, 1, VerdictKind.DAMAGED), SPEAKS[B], None, POLICY, NOW))
    assert on.copies[M].exposed


def test_a_good_copy_takes_the_place_of_a_damaged_one() -> None:
    on = ledger_of(B, replace(HELD, damage=BAD))
    offer = given(by=A, owner=A, given_for=None, rank=2)
    decision = hold(on, offer, Content(data=b"x"), POLICY, NOW)
    assert any(getattr(write, "content", None) == Content(data=b"x") for write in decision.writes)
    on.apply(decision)
    assert on.copies[M].damage is None


def test_rows_that_cannot_be_believed_are_replaced_by_what_the_owner_offers() -> None:
    on = ledger_of(B)
    on.rows[M] = ROWS
    assert take(on, given(by=A, owner=A, given_for=None)) is OfferAnswer.QUEUED
    assert (M in on.rows, on.copies[M].held) == (False, True)


def test_a_revoke_of_rows_that_cannot_be_believed_is_not_confirmed() -> None:
    on = ledger_of(B)
    on.rows[M] = ROWS
    said = on.apply(revoke(on, A, M, 1, 1, POLICY, NOW))
    assert said.kind is VerdictKind.DAMAGED


# Given.


def test_an_owner_asks_for_what_it_has_lost_and_a_holder_only_for_what_it_would_promote() -> None:
    assert damage.wanted(ledger_of(A, MINE), M) is None
    assert damage.wanted(ledger_of(A, replace(MINE, damage=BAD)), M) == Wanted(M, 1, GOOD.content)
    held = ledger_of(B, replace(HELD, damage=BAD))
    assert damage.wanted(held, M) is None
    held.apply(intend(held.copies[M], Reason.DATABASE_REPLACED, NOW))
    assert damage.wanted(held, M) == Wanted(M, 1, GOOD.content)
    rows = ledger_of(A)
    rows.rows[M] = ROWS
    assert damage.wanted(rows, M) == Wanted(M)


@pytest.mark.parametrize("wanted", [Wanted(M), Wanted(M, 1, GOOD.content)], ids=["rows", "content"])
def test_a_good_copy_is_given_to_the_owner_that_it_is_held_for_and_to_nobody_else(wanted: Wanted) -> None:
    on = ledger_of(B, HELD)
    said, give = on.apply(damage.answer(on, SPEAKS[A], wanted, NOW))
    assert (kinds(said), give) == ([VerdictKind.YOURS], M)
    said, give = on.apply(damage.answer(on, SPEAKS[C], wanted, NOW))
    assert (kinds(said), give) == ([VerdictKind.TAKEN], None)


def test_a_content_that_is_not_the_one_looked_for_is_not_given() -> None:
    on = ledger_of(B, HELD)
    said, give = on.apply(damage.answer(on, SPEAKS[A], Wanted(M, 1, of_content(b"y")), NOW))
    assert (kinds(said), give) == ([VerdictKind.DAMAGED], None)


def test_a_copy_from_before_digests_is_given_for_nobody_knows_yet_that_it_is_another_one() -> None:
    on = ledger_of(B, replace(HELD, digests=None))
    said, give = on.apply(damage.answer(on, SPEAKS[A], Wanted(M, 1, GOOD.content), NOW))
    assert (kinds(said), give) == ([VerdictKind.YOURS], M)
    on.apply(damage.digested(on, M, of_content(b"y")))  # as it is read to be given
    said, give = on.apply(damage.answer(on, SPEAKS[A], Wanted(M, 1, GOOD.content), NOW))
    assert (kinds(said), give) == ([VerdictKind.DAMAGED], None)


def test_a_copy_that_is_damaged_itself_is_not_given() -> None:
    on = ledger_of(B, replace(HELD, damage=BAD))
    said, give = on.apply(damage.answer(on, SPEAKS[A], Wanted(M, 1, GOOD.content), NOW))
    assert (kinds(said), give) == ([VerdictKind.DAMAGED], None)


def test_the_copy_of_its_owner_replaces_what_is_damaged_and_nothing_that_is_settled() -> None:
    on = ledger_of(A, replace(half_sent(MINE), damage=BAD))
    assert take(on, given(recipients=MINE.recipients)) is OfferAnswer.QUEUED
    assert on.copies[M].damage is None
    assert [one.settled for one in on.copies[M].recipients] == [True, False]
    assert [event.event_id for event in on.events] == ["HARESTORE"]


def test_what_the_giver_knows_to_be_settled_is_not_sent_again() -> None:
    on = ledger_of(A, replace(MINE, damage=BAD))
    take(on, given(recipients=half_sent(MINE).recipients))
    assert [one.settled for one in on.copies[M].recipients] == [True, False]


def test_of_rows_that_cannot_be_believed_settled_is_what_either_side_has_settled() -> None:
    on = ledger_of(A)
    on.rows[M] = replace(ROWS, settled=((2, Status.RELAYED),))
    assert take(on, given(recipients=half_sent(MINE).recipients)) is OfferAnswer.QUEUED
    assert M not in on.rows
    assert (on.copies[M].stage, on.copies[M].unsettled) == (Stage.SAFETY_NET, ())


def test_what_is_restored_is_delivered_only_after_everybody_was_asked() -> None:
    on = ledger_of(A)
    on.rows[M] = ROWS
    take(on, given())
    assert on.copies[M].confirm_since == NOW


@pytest.mark.parametrize(
    ("copy", "offer"),
    [
        (replace(MINE, damage=BAD), given(to=C)),
        (MINE, given()),
        (replace(MINE, damage=BAD), given(digests=Digests(of_content(b"y"), GOOD.envelope))),
        (replace(MINE, damage=BAD), given(digests=Digests(GOOD.content, of_content(b"y")))),
        (None, given()),
    ],
    ids=["for another", "ours is good", "another content", "another envelope", "nothing is here"],
)
def test_a_copy_that_is_given_is_taken_for_a_damaged_one_alone(
    copy: Copy | None, offer: ShadowCopyOffer
) -> None:
    on = ledger_of(A, *([copy] if copy else []))
    assert take(on, offer) is OfferAnswer.NOT_YOURS
    assert on.copies.get(M) == copy


# The end.


def test_without_any_good_copy_a_message_is_set_aside_once() -> None:
    on = ledger_of(A, replace(MINE, damage=BAD))
    assert on.apply(damage.given_up(on, M, NOW))
    assert on.copies[M].stage is Stage.SET_ASIDE
    assert not on.apply(damage.given_up(on, M, NOW))
    assert [event.event_id for event in on.events] == ["SUSPEND"]


def test_so_are_rows_that_cannot_be_believed() -> None:
    on = ledger_of(A)
    on.rows[M] = ROWS
    assert on.apply(damage.given_up(on, M, NOW))
    assert on.rows[M].set_aside
    assert damage.wanted(on, M) is None
    assert not on.apply(damage.given_up(on, M, NOW))


@pytest.mark.parametrize(
    ("verdict", "left"),
    [
        (Verdict(M, 1, VerdictKind.DELIVERED), False),
        (Verdict(M, 1, VerdictKind.REJECTED), False),
        (Verdict(M, 1, VerdictKind.SUPERSEDED, "1"), False),
        (Verdict(M, 1, VerdictKind.DELIVERED, recipients=(1,)), True),
        (Verdict(M, 1, VerdictKind.UNKNOWN), True),
        (Verdict(M, 1, VerdictKind.RECORDED, "1"), True),
    ],
)
def test_damaged_rows_go_when_nobody_needs_them(verdict: Verdict, left: bool) -> None:
    on = ledger_of(B)
    on.rows[M] = ROWS
    on.apply(learn(on, verdict, SPEAKS[A], None, POLICY, NOW))
    assert (M in on.rows) is left


# A report that two nodes made has the octets of each.


def test_a_report_of_another_maker_counts_as_no_copy_until_the_octets_of_the_owner_are_here() -> None:
    about = report_id(M, 1, ReportKind.FAILED)
    mine = replace(MINE, id=about, holders=())
    on = ledger_of(A, mine)
    on.apply(yields(on, mine, B, DB[B], 2, NOW))
    assert on.copies[about].damage is Damage.OTHER_MAKER
    said = answer(on, SPEAKS[B], about, 2, 1, NOW).then
    assert VerdictKind.DAMAGED in kinds(said)
    of_b = Digests(of_content(b"made by b"), GOOD.envelope)
    offer = given(by=B, message_id=about, epoch=2, given_for=None, digests=of_b)
    assert take(on, offer) is OfferAnswer.QUEUED
    assert (on.copies[about].damage, on.copies[about].digests) == (None, of_b)


def test_so_does_the_copy_that_its_maker_had_made_of_it() -> None:
    """B made it and C holds it for B; A made it too, and owns it."""
    dsn = report_id(M, 1, ReportKind.FAILED)
    on = ledger_of(C, message(Role.SHADOW, id=dsn, owner=B, owner_database=DB[B], rank=3))
    on.apply(yields(on, on.copies[dsn], A, DB[A], 1, NOW))
    assert on.copies[dsn].damage is Damage.OTHER_MAKER
    assert [verdict.kind for verdict in answer(on, SPEAKS[A], dsn, 1, 0, NOW).then] == [VerdictKind.DAMAGED]


def test_a_rank_that_another_owner_gave_does_not_outlive_its_ownership() -> None:
    """The new owner counts its holders by itself: what it supersedes may have had a higher rank before."""
    on = ledger_of(C, message(Role.SHADOW, owner=B, owner_database=DB[B], rank=3))
    on.apply(yields(on, on.copies[M], A, DB[A], 2, NOW))
    on.apply(learn(on, Verdict(M, 2, VerdictKind.SUPERSEDED, "1"), SPEAKS[A], None, POLICY, NOW))
    assert M not in on.copies


def test_a_message_that_is_no_report_has_the_same_octets_everywhere() -> None:
    on = ledger_of(A, MINE)
    on.apply(yields(on, MINE, B, DB[B], 2, NOW))
    assert on.copies[M].damage is None


# Version 1 knows of no damage, and takes `unknown` for refused.


@pytest.mark.parametrize(
    ("said", "rank", "heard"),
    [
        (Verdict(M, 1, VerdictKind.DAMAGED), None, Verdict(M, 1, VerdictKind.PENDING)),
        (Verdict(M, 1, VerdictKind.REJECTED), None, Verdict(M, 1, VerdictKind.UNKNOWN)),
        (Verdict(M, 1, VerdictKind.UNKNOWN), None, Verdict(M, 1, VerdictKind.PENDING)),
        (Verdict(M, 1, VerdictKind.UNKNOWN), 1, Verdict(M, 1, VerdictKind.UNKNOWN)),
        (Verdict(M, 1, VerdictKind.RECORDED, "1"), None, Verdict(M, 1, VerdictKind.RECORDED, "1")),
    ],
)
def test_a_verdict_is_put_as_version_1_understands_it(
    said: Verdict, rank: int | None, heard: Verdict
) -> None:
    assert for_version_1(said, rank) == heard


def test_what_is_settled_is_said_to_whoever_looks_for_a_good_copy() -> None:
    on = ledger_of(A)
    on.outcomes[M] = Outcome(M, 1, (1, 2), NOW)
    said, give = damage.answer(on, SPEAKS[B], Wanted(M), NOW).then
    assert (kinds(said), give) == ([VerdictKind.DELIVERED], None)


def test_an_unknown_message_is_unknown_to_whoever_looks_for_a_good_copy() -> None:
    on = ledger_of(B)
    said, give = damage.answer(on, SPEAKS[A], Wanted(MessageId(M)), NOW).then
    assert (kinds(said), give) == ([VerdictKind.UNKNOWN], None)
    assert set(kinds(said)) <= damage.FINAL
