"""What was arriving when a process ended: its holder knows whether anybody may have a 250 for it."""

from __future__ import annotations

import pytest
from ledger_at_hand import DB, NOW, RUN, A, B, C, LedgerAtHand, ledger_of, message

from shadowrelay.core.decisions import Content, Verdict, VerdictKind
from shadowrelay.core.identifiers import Incarnation, Mark, ServerName
from shadowrelay.core.members.answers import answer
from shadowrelay.core.members.questions import Speaker, learn
from shadowrelay.core.messages import Confirmation, Copy, Envelope, Holder, HolderState, Role, Stage
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.holding import OfferAnswer, ShadowCopyOffer, hold
from shadowrelay.members.inquiry import Inquiry

OFFERED = Mark(RUN[B], 9)
ITS_HOLDER = Speaker(B, DB[B], Mark(RUN[B], 10))
ANOTHER = Speaker(C, DB[C], Mark(RUN[C], 10))
OPENED_AGAIN = Speaker(B, DB[B], Mark(Incarnation("0" * 15 + "9"), 10))
POLICY = Policy()
EARLY, LATE = 1.0, 1.0 + POLICY.reconcile_timeout.total_seconds()


def arriving(confirmation: Confirmation = Confirmation.ASK) -> Copy:
    uncertain = Holder(B, DB[B], OFFERED, 1, HolderState.UNCERTAIN)
    return message(
        stage=Stage.ARRIVING,
        holders=(uncertain,),
        ranks_given=1,
        confirmation=confirmation,
        confirm_since=NOW if confirmation is Confirmation.ASK else None,
    )


ID = arriving().id


@pytest.fixture
def on() -> LedgerAtHand:
    return ledger_of(A, arriving())


def hears(
    on: LedgerAtHand, kind: VerdictKind, speaker: Speaker, *recipients: int, epoch: int = 1, name: str = ""
) -> None:
    verdict = Verdict(ID, epoch, kind, name, recipients)
    on.apply(learn(on, verdict, speaker, speaker.database_id, POLICY, NOW))


def rows(on: LedgerAtHand) -> list[str]:
    return [event.event_id for event in on.events]


def test_what_its_holder_has_becomes_a_message_that_everybody_is_asked_about(on: LedgerAtHand) -> None:
    hears(on, VerdictKind.YOURS, ITS_HOLDER)
    copy = on.copies[ID]
    assert copy.owned
    assert not copy.exposed
    assert copy.confirmation is Confirmation.ASK
    assert rows(on) == ["HAREDIRECT", "RECEIVE"]


def concluded(
    on: LedgerAtHand, at: float, *answered: ServerName, reachable: tuple[ServerName, ...] = (B, C)
) -> int:
    """How many questions are closed once these have answered."""
    inquiry = Inquiry()
    inquiry.conclude(on, frozenset(reachable), POLICY, NOW, EARLY)
    for name in answered:
        inquiry.note(arriving(), name)
    return inquiry.conclude(on, frozenset(reachable), POLICY, NOW, at)


def test_what_its_holder_never_had_is_forgotten_once_nobody_else_has_it(on: LedgerAtHand) -> None:
    hears(on, VerdictKind.UNKNOWN, ITS_HOLDER)
    assert concluded(on, LATE, B) == 0
    assert on.arrival(ID) is not None
    assert concluded(on, EARLY, B, C) == 1
    assert (on.copy(ID), on.arrival(ID)) == (None, None)
    assert rows(on) == []
    assert on.outcomes[ID].refused


def test_a_copy_that_an_older_state_of_the_database_does_not_know_of_makes_it_a_message(
    on: LedgerAtHand,
) -> None:
    """That state is from before the copy was offered to another member; then the sender got its 250."""
    hears(on, VerdictKind.UNKNOWN, ITS_HOLDER)
    hears(on, VerdictKind.YOURS, ANOTHER)
    assert concluded(on, EARLY, B, C) == 1
    copy = on.copies[ID]
    assert (copy.owned, copy.exposed, copy.confirmation) == (True, False, Confirmation.NONE)
    assert rows(on) == ["HAREDIRECT", "RECEIVE"]


def test_a_holder_that_an_older_state_does_not_know_of_asks_and_is_recorded(on: LedgerAtHand) -> None:
    hears(on, VerdictKind.UNKNOWN, ITS_HOLDER)
    (said,) = on.apply(answer(on, ANOTHER, ID, 1, None, NOW))
    assert said.kind is VerdictKind.RECORDED
    assert not on.copies[ID].exposed


def test_one_of_two_that_were_offered_a_copy_does_not_speak_for_the_other() -> None:
    other = Holder(C, DB[C], ANOTHER.mark, 2, HolderState.UNCERTAIN)
    on = ledger_of(A, arriving().with_holder(other))
    hears(on, VerdictKind.UNKNOWN, ITS_HOLDER)
    assert concluded(on, EARLY, B, C) == 1
    assert on.copies[ID].owned


@pytest.mark.parametrize(
    ("kind", "speaker"),
    [
        (VerdictKind.UNKNOWN, OPENED_AGAIN),  # it may have been put back to before it had the copy
        (VerdictKind.UNKNOWN, ANOTHER),
        (VerdictKind.PENDING, ITS_HOLDER),
    ],
)
def test_what_proves_nothing_changes_nothing(on: LedgerAtHand, kind: VerdictKind, speaker: Speaker) -> None:
    hears(on, kind, speaker)
    assert (on.copy(ID), on.arrival(ID)) == (None, arriving())


@pytest.mark.parametrize(("speaker", "first"), [(ITS_HOLDER, "HAREDIRECT"), (ANOTHER, "HAREDIRECTFAIL")])
def test_what_was_taken_over_is_on_record_and_held_for_its_new_owner(
    on: LedgerAtHand, speaker: Speaker, first: str
) -> None:
    """Of another one it is not said that the first candidate had a copy: that may have refused it."""
    hears(on, VerdictKind.TAKEN, speaker, epoch=2, name=speaker.name)
    copy = on.copies[ID]
    assert (copy.role, copy.owner, copy.epoch) == (Role.SHADOW, speaker.name, 2)
    assert rows(on) == [first, "RECEIVE", "TRANSFER", "HARECEIVE"]


def test_what_was_delivered_is_on_record_and_settled(on: LedgerAtHand) -> None:
    hears(on, VerdictKind.DELIVERED, ITS_HOLDER)
    assert on.copies[ID].stage is Stage.SAFETY_NET
    assert rows(on) == ["HAREDIRECT", "RECEIVE", "HADISCARD"]


def test_recipients_that_are_told_of_one_by_one_are_settled_one_by_one(on: LedgerAtHand) -> None:
    """A member says separately what became of those that ended in different ways."""
    hears(on, VerdictKind.DELIVERED, ITS_HOLDER, 1)
    assert [recipient.number for recipient in on.copies[ID].unsettled] == [2]
    hears(on, VerdictKind.DELIVERED, ITS_HOLDER, 2)
    assert on.copies[ID].stage is Stage.SAFETY_NET
    assert rows(on) == ["HAREDIRECT", "RECEIVE", "HADISCARD", "HADISCARD"]


@pytest.mark.parametrize(
    "kind", [VerdictKind.YOURS, VerdictKind.UNKNOWN, VerdictKind.TAKEN, VerdictKind.DELIVERED]
)
def test_nothing_is_learnt_of_what_is_arriving_now(kind: VerdictKind) -> None:
    on = ledger_of(A, under_way := arriving(Confirmation.NONE))
    hears(on, kind, ITS_HOLDER)
    said = on.apply(answer(on, ITS_HOLDER, ID, 1, None, NOW))
    assert [verdict.kind for verdict in said] == [VerdictKind.PENDING]
    assert (on.copy(ID), on.arrival(ID)) == (None, under_way)


def test_a_holder_that_asks_has_the_copy_and_is_recorded(on: LedgerAtHand) -> None:
    said = on.apply(answer(on, ITS_HOLDER, ID, 1, None, NOW))
    assert said == (Verdict(ID, 1, VerdictKind.RECORDED, "1"),)
    assert not on.copies[ID].exposed
    assert rows(on) == ["HAREDIRECT", "RECEIVE"]


def test_a_member_that_may_hold_it_for_another_is_to_ask_again(on: LedgerAtHand) -> None:
    said = on.apply(answer(on, ANOTHER, ID, 2, None, NOW))
    assert [verdict.kind for verdict in said] == [VerdictKind.PENDING]
    assert (on.copy(ID), on.arrival(ID)) == (None, arriving())


@pytest.mark.parametrize(("asker", "first"), [(ITS_HOLDER, "HAREDIRECT"), (ANOTHER, "HAREDIRECTFAIL")])
def test_an_owner_that_asks_has_the_message_and_we_hold_it(
    on: LedgerAtHand, asker: Speaker, first: str
) -> None:
    said = on.apply(answer(on, asker, ID, 2, 1, NOW))
    assert said == (Verdict(ID, 2, VerdictKind.YOURS),)
    assert on.copies[ID].held
    assert rows(on) == [first, "RECEIVE", "TRANSFER", "HARECEIVE"]


def test_a_copy_of_what_is_arriving_is_not_taken_before_it_is_known_what_that_is(on: LedgerAtHand) -> None:
    offer = ShadowCopyOffer(
        message_id=ID,
        epoch=2,
        rank=1,
        owner=B,
        owner_database=DB[B],
        mark=ITS_HOLDER.mark,
        received_at=NOW,
        envelope=Envelope(sender="s@example.org", size=1),
        recipients=message().recipients,
        digests=message().digests,
    )
    assert on.apply(hold(on, offer, Content(data=b"x"), POLICY, NOW)) is OfferAnswer.NOT_YOURS
    assert (on.copy(ID), on.arrival(ID)) == (None, arriving())


@pytest.mark.parametrize(
    ("reachable", "after", "then"),
    [
        ((C,), LATE, Confirmation.IN_DOUBT),  # its holder is out of reach
        ((B, C), EARLY, Confirmation.NONE),  # or cannot say
    ],
)
def test_what_nobody_can_tell_any_more_counts_as_accepted(
    on: LedgerAtHand, reachable: tuple[ServerName, ...], after: float, then: Confirmation
) -> None:
    assert concluded(on, after, *reachable, reachable=reachable) == 1
    copy = on.copies[ID]
    assert copy.owned
    assert copy.exposed
    assert copy.confirmation is then
    assert rows(on) == ["HAREDIRECTFAIL", "RECEIVE"]


def test_what_nobody_confirms_after_a_long_absence_waits_for_the_operator(on: LedgerAtHand) -> None:
    inquiry = Inquiry(NOW, lambda: True)
    for at in (EARLY, LATE):
        inquiry.conclude(on, frozenset({C}), POLICY, NOW, at)
        inquiry.note(arriving(), C)
    inquiry.conclude(on, frozenset({C}), POLICY, NOW, LATE)
    assert on.copies[ID].stage is Stage.SET_ASIDE
    assert rows(on) == ["HAREDIRECTFAIL", "RECEIVE", "SUSPEND"]
