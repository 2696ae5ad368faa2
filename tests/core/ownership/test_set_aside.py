"""Away for so long that the fate of a message may be forgotten everywhere."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from ledger_at_hand import DB, NOW, RUN, A, B, C, LedgerAtHand, M, ledger_of, message

from shadowrelay.core.decisions import VerdictKind
from shadowrelay.core.events.side_effects import already_safe
from shadowrelay.core.identifiers import Mark, MessageId
from shadowrelay.core.members.answers import answer
from shadowrelay.core.members.questions import Speaker
from shadowrelay.core.messages import Confirmation, Damage, Holder, HolderState, Stage
from shadowrelay.core.ownership.heartbeat import lose_holder
from shadowrelay.core.ownership.set_aside import resume
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.redundancy import Leg, OfferAttempt, repaired, reserve_rank
from shadowrelay.members.inquiry import Inquiry

HOLDER = Holder(B, DB[B], Mark(RUN[B], 5), 1, HolderState.HOLDING)


def returned(
    *, confirmed: bool, at: datetime | None, long: bool | None = True, offered: int = 1
) -> LedgerAtHand:
    """A's queue, asked about since NOW, after both members answered. ``confirmed``: B holds a copy for A;
    ``at``: when A returned; ``long``: after a long absence; ``offered``: how many members it asked for one.
    """
    holders = (HOLDER,) if offered else ()
    asking = message(holders=holders, ranks_given=offered, confirmation=Confirmation.ASK, confirm_since=NOW)
    on = ledger_of(A, asking)
    inquiry = Inquiry(at, lambda: long)
    inquiry.note(on.copies[M], B, confirmed=confirmed)
    inquiry.note(on.copies[M], C)
    inquiry.conclude(on, frozenset({B, C}), Policy(), NOW, 1.0)
    return on


def test_after_a_long_absence_what_no_holder_confirms_is_set_aside() -> None:
    on = returned(confirmed=False, at=NOW)
    assert on.copies[M].stage is Stage.SET_ASIDE
    assert [event.event_id for event in on.events] == ["SUSPEND"]


def test_after_a_long_absence_what_a_holder_confirms_is_delivered() -> None:
    copy = returned(confirmed=True, at=NOW).copies[M]
    assert (copy.stage, copy.confirmation) == (Stage.QUEUED, Confirmation.NONE)


def test_what_is_asked_about_later_was_not_away() -> None:
    copy = returned(confirmed=False, at=NOW - timedelta(seconds=1)).copies[M]
    assert (copy.stage, copy.confirmation) == (Stage.QUEUED, Confirmation.NONE)


def test_after_a_short_absence_nobody_has_to_confirm() -> None:
    copy = returned(confirmed=False, at=None).copies[M]
    assert (copy.stage, copy.confirmation) == (Stage.QUEUED, Confirmation.NONE)


def test_before_it_is_known_how_long_the_absence_was_what_no_holder_confirms_waits() -> None:
    copy = returned(confirmed=False, at=NOW, long=None).copies[M]
    assert (copy.stage, copy.confirmation) == (Stage.QUEUED, Confirmation.ASK)
    copy = returned(confirmed=True, at=NOW, long=None).copies[M]
    assert (copy.stage, copy.confirmation) == (Stage.QUEUED, Confirmation.NONE)
    copy = returned(confirmed=False, at=NOW, long=False).copies[M]
    assert (copy.stage, copy.confirmation) == (Stage.QUEUED, Confirmation.NONE)


@pytest.mark.parametrize("long", [True, None])
def test_what_no_member_was_offered_nobody_can_have_settled(long: bool | None) -> None:
    copy = returned(confirmed=False, at=NOW, long=long, offered=0).copies[M]
    assert (copy.stage, copy.confirmation) == (Stage.QUEUED, Confirmation.NONE)


ASIDE = message(stage=Stage.SET_ASIDE, ranks_given=1)


def test_what_is_set_aside_keeps_its_holder_and_gets_another_if_that_is_lost() -> None:
    on = ledger_of(A, replace(ASIDE, holders=(HOLDER,)))
    assert not on.copies[M].exposed
    lose_holder(on, B)
    assert on.copies[M].exposed
    offered = on.apply(reserve_rank(on, M, C))
    assert offered is not None
    assert on.apply(repaired(on, M, OfferAttempt(C, Leg.ACKNOWLEDGED, 2, "250", DB[C], Mark(RUN[C], 5)), NOW))
    copy = on.copies[M]
    assert (copy.stage, copy.exposed) == (Stage.SET_ASIDE, False)
    assert [(event.addressee, event.verdict.kind) for event in on.told] == [(DB[B], VerdictKind.SUPERSEDED)]


def test_a_holder_that_was_let_go_is_not_told_so_again_while_what_is_set_aside_has_no_other() -> None:
    """Redundancy was turned off and on: what the holder still has is the only other copy."""
    on = ledger_of(A, replace(ASIDE, holders=(replace(HOLDER, state=HolderState.SUPERSEDED),)))
    (said,) = on.apply(answer(on, Speaker(B, DB[B], Mark(RUN[B], 6)), M, 1, None, NOW))
    assert (said.kind, said.argument) == (VerdictKind.RECORDED, "2")
    assert not on.copies[M].exposed


def test_what_is_set_aside_since_no_member_has_a_good_copy_is_not_exposed_but_keeps_one_that_turns_up() -> (
    None
):
    superseded = replace(HOLDER, state=HolderState.SUPERSEDED)
    on = ledger_of(A, replace(ASIDE, damage=Damage.CONTENT, holders=(superseded,)))
    assert not on.copies[M].exposed
    assert not already_safe(on, M)
    said = on.apply(answer(on, Speaker(B, DB[B], Mark(RUN[B], 6)), M, 1, None, NOW))
    assert [verdict.kind for verdict in said] == [VerdictKind.DAMAGED]
    assert on.copies[M].redundant


@pytest.mark.parametrize("safe", [True, False])
def test_a_report_that_is_set_aside_is_safe_once_it_has_a_holder(*, safe: bool) -> None:
    report = replace(ASIDE, reports_on=MessageId("original"), holders=(HOLDER,) if safe else ())
    assert already_safe(ledger_of(A, report), M) is safe


def test_what_is_resumed_begins_a_new_age_and_is_due_at_once() -> None:
    on = returned(confirmed=False, at=NOW)
    later = NOW + timedelta(days=5)
    assert on.apply(resume(on, M, later)) is not None
    copy = on.copies[M]
    assert (copy.stage, copy.received_at) == (Stage.QUEUED, later)
    assert all(recipient.next_attempt is None for recipient in copy.recipients)
    assert on.apply(resume(on, M, later)) is None
