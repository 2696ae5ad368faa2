"""What was arriving when a process ended: its holder knows whether anybody may have a 250 for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ledger_at_hand import DB, NOW, RUN, B, C, message

from shadowrelay.core import arrivals
from shadowrelay.core.decisions import DropCopy, Kind, SaveCopy, Verdict
from shadowrelay.core.identifiers import Mark
from shadowrelay.core.messages import Confirmation, Copy, Holder, HolderState, Stage

ITS_HOLDER = Holder(B, DB[B], Mark(RUN[B], 10), 1, HolderState.HOLDING)
ANOTHER = Holder(C, DB[C], Mark(RUN[C], 10), 1, HolderState.HOLDING)


def arriving(confirmation: Confirmation = Confirmation.ASK) -> Copy:
    uncertain = replace(ITS_HOLDER, mark=None, state=HolderState.UNCERTAIN)
    return replace(message(), stage=Stage.ARRIVING, holders=(uncertain,), confirmation=confirmation)


def said(kind: Kind, *recipients: int) -> Verdict:
    return Verdict(arriving().id, 1, kind, recipients=recipients)


def test_what_its_holder_has_becomes_a_message_that_everybody_is_asked_about() -> None:
    decision = arrivals.learnt(arriving(), said(Kind.YOURS), ITS_HOLDER, NOW)
    (saved,) = decision.writes
    assert isinstance(saved, SaveCopy)
    assert (saved.before, saved.content) == (arriving(), None)
    assert saved.after.queued
    assert not saved.after.exposed
    assert saved.after.confirmation is Confirmation.ASK
    assert [event.event_id for event in decision.events] == ["HAREDIRECT", "RECEIVE"]


@pytest.mark.parametrize("verdict", [said(Kind.UNKNOWN), said(Kind.TAKEN), said(Kind.DELIVERED)])
def test_what_its_holder_never_had_or_has_taken_over_is_forgotten(verdict: Verdict) -> None:
    assert arrivals.learnt(arriving(), verdict, ITS_HOLDER, NOW).writes == (DropCopy(arriving()),)


@pytest.mark.parametrize("verdict", [said(Kind.UNKNOWN), said(Kind.YOURS), said(Kind.PENDING)])
def test_who_is_not_its_holder_proves_nothing(verdict: Verdict) -> None:
    assert arrivals.learnt(arriving(), verdict, ANOTHER, NOW).writes == ()


@pytest.mark.parametrize("kind", [Kind.YOURS, Kind.UNKNOWN, Kind.TAKEN, Kind.DELIVERED])
def test_nothing_is_learnt_of_what_is_arriving_now(kind: Kind) -> None:
    under_way = arriving(Confirmation.NONE)
    assert arrivals.learnt(under_way, said(kind), ITS_HOLDER, NOW).writes == ()
    answer = arrivals.answered(under_way, ITS_HOLDER, None, NOW)
    assert (answer.then[0].kind, answer.writes) == (Kind.PENDING, ())


def test_a_holder_that_asks_has_the_copy_and_is_recorded() -> None:
    answer = arrivals.answered(arriving(), ITS_HOLDER, None, NOW)
    assert answer.then == (Verdict(arriving().id, 1, Kind.HELD, "1"),)
    (saved,) = answer.writes
    assert isinstance(saved, SaveCopy)
    assert not saved.after.exposed


def test_an_owner_that_asks_has_the_message() -> None:
    answer = arrivals.answered(arriving(), ITS_HOLDER, 1, NOW)
    assert answer.then[0].kind is Kind.UNKNOWN
    assert answer.writes == (DropCopy(arriving()),)


@pytest.mark.parametrize(("in_doubt", "then"), [(True, Confirmation.IN_DOUBT), (False, Confirmation.NONE)])
def test_what_nobody_can_tell_any_more_counts_as_accepted(in_doubt: bool, then: Confirmation) -> None:
    decision = arrivals.accepted(arriving(), NOW, in_doubt=in_doubt)
    (saved,) = decision.writes
    assert isinstance(saved, SaveCopy)
    assert saved.after.exposed
    assert saved.after.confirmation is then
    assert [event.event_id for event in decision.events] == ["HAREDIRECTFAIL", "RECEIVE"]
