"""Away for so long that the fate of a message may be forgotten everywhere."""

from __future__ import annotations

from datetime import datetime, timedelta

from ledger_at_hand import DB, NOW, RUN, A, B, C, LedgerAtHand, M, ledger_of, message

from shadowrelay.core.identifiers import Mark
from shadowrelay.core.messages import Confirmation, Holder, HolderState, Stage
from shadowrelay.core.ownership.set_aside import resume
from shadowrelay.core.policy import Policy
from shadowrelay.members.inquiry import Inquiry

HOLDER = Holder(B, DB[B], Mark(RUN[B], 5), 1, HolderState.HOLDING)


def returned(*, confirmed: bool, long_away: datetime | None) -> LedgerAtHand:
    """A's queue, asked about since NOW, after both members answered; ``confirmed``: B holds a copy for A."""
    on = ledger_of(A, message(holders=(HOLDER,), confirmation=Confirmation.ASK, confirm_since=NOW))
    inquiry = Inquiry(long_away=long_away)
    inquiry.note(on.copies[M], B, confirmed=confirmed)
    inquiry.note(on.copies[M], C)
    inquiry.conclude(on, frozenset({B, C}), Policy(), NOW, 1.0)
    return on


def test_after_a_long_absence_what_no_holder_confirms_is_set_aside() -> None:
    on = returned(confirmed=False, long_away=NOW)
    assert on.copies[M].stage is Stage.SET_ASIDE
    assert [event.event_id for event in on.events] == ["SUSPEND"]


def test_after_a_long_absence_what_a_holder_confirms_is_delivered() -> None:
    copy = returned(confirmed=True, long_away=NOW).copies[M]
    assert (copy.stage, copy.confirmation) == (Stage.QUEUED, Confirmation.NONE)


def test_what_is_asked_about_later_was_not_away() -> None:
    copy = returned(confirmed=False, long_away=NOW - timedelta(seconds=1)).copies[M]
    assert (copy.stage, copy.confirmation) == (Stage.QUEUED, Confirmation.NONE)


def test_after_a_short_absence_nobody_has_to_confirm() -> None:
    copy = returned(confirmed=False, long_away=None).copies[M]
    assert (copy.stage, copy.confirmation) == (Stage.QUEUED, Confirmation.NONE)


def test_what_is_resumed_begins_a_new_age_and_is_due_at_once() -> None:
    on = returned(confirmed=False, long_away=NOW)
    later = NOW + timedelta(days=5)
    assert on.apply(resume(on, M, later)) is not None
    copy = on.copies[M]
    assert (copy.stage, copy.received_at) == (Stage.QUEUED, later)
    assert all(recipient.next_attempt is None for recipient in copy.recipients)
    assert on.apply(resume(on, M, later)) is None
