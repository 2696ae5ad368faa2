"""What the log says of rows that could not be believed is enough to tell what became of the message."""

from __future__ import annotations

from datetime import timedelta

from ledger_at_hand import DB, NOW, RUN, A, B, M, ledger_of, message

from shadowrelay.core.decisions import Content, DamagedRow
from shadowrelay.core.identifiers import Mark
from shadowrelay.core.members.damage import NO_GOOD_COPY, found_rows, given_up
from shadowrelay.core.messages import Stage, Status
from shadowrelay.core.reception.holding import OfferAnswer, ShadowCopyOffer, restore
from shadowrelay.core.values import replace

LATER = NOW + timedelta(minutes=1)


def test_rows_that_are_set_aside_are_told_once_and_as_such() -> None:
    ledger = ledger_of(A)
    ledger.apply(found_rows(DamagedRow(M, NOW, "the sum of a row differs")))
    assert ledger.apply(given_up(ledger, M, LATER))
    assert not ledger.apply(given_up(ledger, M, LATER))
    told = [event.columns() for event in ledger.events]
    assert [(row["event-id"], row["source"]) for row in told] == [
        ("HADAMAGE", "REDUNDANCY"),
        ("SUSPEND", "QUEUE"),
    ]
    assert told[1]["source-context"] == NO_GOOD_COPY
    assert {row["network-message-id"] for row in told} == {M}


def test_what_the_giver_knows_to_be_settled_is_told_with_what_it_gave() -> None:
    """The first recipient was delivered here, the log says; the second one elsewhere, the giver says."""
    ledger = ledger_of(A)
    ledger.rows[M] = DamagedRow(M, NOW, "the sum of a row differs", settled=((1, Status.DELIVERED),))
    plain = message()
    first, second = plain.recipients
    assert plain.digests
    offer = ShadowCopyOffer(
        message_id=M,
        epoch=1,
        rank=1,
        owner=B,
        owner_database=DB[B],
        mark=Mark(RUN[B], 12),
        received_at=NOW,
        envelope=plain.envelope,
        recipients=(first, replace(second, status=Status.RELAYED)),
        digests=plain.digests,
        given_for=A,
    )
    assert ledger.apply(restore(ledger, offer, Content(data=b"x"), LATER)) is OfferAnswer.QUEUED
    assert ledger.copies[M].stage is Stage.SAFETY_NET
    told = [(event.event_id, [one.number for one in event.recipients]) for event in ledger.events]
    assert told == [("HARESTORE", []), ("HADISCARD", [2])]
    assert ledger.events[1].reason == "DeliveredElsewhere"
    assert (ledger.events[1].told_by, ledger.events[1].mark) == (DB[B], Mark(RUN[B], 12))
