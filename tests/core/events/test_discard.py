"""How discard events are acknowledged, and how far they are remembered."""

from __future__ import annotations

from datetime import timedelta

import pytest
from ledger_at_hand import DB, NOW, RUN, A, B, C, LedgerAtHand, M, ledger_of

from shadowrelay.core.decisions import Decision, DiscardEvent, Verdict, VerdictKind
from shadowrelay.core.events.discard import acknowledge, applied, remembered_for
from shadowrelay.core.identifiers import Mark, ServerName
from shadowrelay.core.policy import Policy


@pytest.fixture
def telling() -> LedgerAtHand:
    """A node with three events for B, and one for C."""
    on = ledger_of(A)
    for name in (B, B, C, B):
        verdict = Verdict(M, 1, VerdictKind.DELIVERED)
        on.apply(Decision(None, (DiscardEvent(DB[name], verdict, NOW),)))
    return on


def test_what_was_applied_is_forgotten_and_nothing_newer_nor_anybody_elses(telling: LedgerAtHand) -> None:
    telling.apply(acknowledge(DB[B], Mark(RUN[A], 2)))
    assert [(event.addressee, event.number) for event in telling.told] == [(DB[C], 3), (DB[B], 4)]


def test_a_mark_of_another_database_forgets_nothing(telling: LedgerAtHand) -> None:
    telling.apply(acknowledge(DB[B], Mark(RUN[B], 9)))
    assert len(telling.told) == 4


def test_how_far_events_are_applied_is_remembered_once_and_of_members_alone(on_a: LedgerAtHand) -> None:
    mark = Mark(RUN[B], 7)
    on_a.apply(applied(on_a, B, mark))
    assert on_a.known[B].applied == mark
    assert not applied(on_a, B, mark).writes
    assert not applied(on_a, ServerName("stranger"), mark).writes


def test_a_message_is_remembered_for_as_long_as_a_copy_of_it_may_be_somewhere() -> None:
    """Undelivered until it expires, then in Safety Net."""
    policy = Policy(message_expiration_timeout=timedelta(hours=5), safety_net_hold_time=timedelta(hours=2))
    assert remembered_for(policy) == timedelta(hours=7)
