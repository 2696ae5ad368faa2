"""Whose content a member may refer to, instead of sending it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from decision_inputs import POLICY, holder, offer
from ledger_at_hand import NOW, A, B, C, LedgerAtHand, M, ledger_of, message

from shadowrelay.core.decisions import Content
from shadowrelay.core.digests import of_content
from shadowrelay.core.identifiers import DatabaseId, MessageId, RequestId, ServerName
from shadowrelay.core.messages import Copy, Damage, Holder, HolderState, Reason, Role, Stage
from shadowrelay.core.ownership import transfer
from shadowrelay.core.reception.by_reference import keepers, may_refer
from shadowrelay.core.reception.holding import OfferAnswer, hold

ORIGINAL = MessageId("01900000-0000-7000-8000-000000000099")
REQUEST = RequestId("01900000-0000-4000-8000-000000000001")
X = of_content(b"x")


def original(role: Role = Role.PRIMARY, **changes: object) -> Copy:
    return message(role, id=ORIGINAL, stage=Stage.SAFETY_NET, **changes)


def refers(on: LedgerAtHand, asker: ServerName, octets: int = 1, digest: str | None = X) -> bool:
    return may_refer(on, asker, ORIGINAL, octets, digest)  # type: ignore[arg-type]


@pytest.mark.parametrize("stage", [Stage.QUEUED, Stage.SAFETY_NET])
def test_its_owner_may_refer_to_what_is_held_for_it_and_nobody_else_may(stage: Stage) -> None:
    on = ledger_of(B, replace(original(Role.SHADOW), stage=stage))
    assert refers(on, A)
    assert not refers(on, C)


def test_a_recorded_holder_may_refer_to_what_its_owner_has_and_nobody_else_may() -> None:
    on = ledger_of(A, original(holders=(holder(B),)))
    assert refers(on, B)
    assert not refers(on, C)
    assert refers(on, A)


@pytest.mark.parametrize(
    "there",
    [
        original(Role.SHADOW, damage=Damage.CONTENT),
        original(Role.SHADOW, digests=None),
        replace(original(Role.SHADOW), stage=Stage.SET_ASIDE),
        replace(original(Role.SHADOW), id=M),
    ],
    ids=["damaged", "no digest", "set aside", "another message"],
)
def test_nobody_may_refer_to_what_is_not_good_or_not_there(there: Copy) -> None:
    assert not refers(ledger_of(B, there), A)


def test_size_and_digest_are_those_of_the_message() -> None:
    on = ledger_of(B, original(Role.SHADOW))
    assert not refers(on, A, octets=2)
    assert not refers(on, A, digest=of_content(b"y"))
    assert not refers(on, A, digest=None)


def test_the_copy_is_taken_with_the_content_of_the_other_message_and_tells_what_it_is_made_of() -> None:
    on = ledger_of(B, original(Role.SHADOW))
    on.state.contents[ORIGINAL] = b"x"
    made = replace(offer(), content_of=ORIGINAL, request=REQUEST)
    for _ in range(2):
        assert on.apply(hold(on, made, Content(of=ORIGINAL), POLICY, NOW)) is OfferAnswer.QUEUED
    assert (on.copies[M].content_of, on.copies[M].request) == (ORIGINAL, REQUEST)
    assert on.state.content(M) == b"x"
    assert list(on.state.contents) == [ORIGINAL]


def test_what_the_copy_is_made_of_survives_a_promotion() -> None:
    on = ledger_of(B, original(Role.SHADOW))
    made = replace(offer(), content_of=ORIGINAL, request=REQUEST)
    on.apply(hold(on, made, Content(of=ORIGINAL), POLICY, NOW))
    on.apply(transfer.intend(on.copies[M], Reason.OWNER_RETIRED, NOW))
    on.apply(transfer.promote(on, on.copies[M], NOW))
    assert on.copies[M].owned
    assert (on.copies[M].content_of, on.copies[M].request) == (ORIGINAL, REQUEST)


def test_a_copy_of_an_older_version_learns_what_it_is_made_of_from_a_later_offer() -> None:
    on = ledger_of(B)
    on.apply(hold(on, offer(), Content(data=b"x"), POLICY, NOW))
    on.apply(hold(on, replace(offer(rank=2), content_of=ORIGINAL), Content(data=b"x"), POLICY, NOW))
    assert on.copies[M].content_of == ORIGINAL
    on.apply(hold(on, offer(rank=3), Content(data=b"x"), POLICY, NOW))
    assert on.copies[M].content_of == ORIGINAL


def test_a_stranger_is_asked_for_the_octets_and_nothing_is_kept() -> None:
    on = ledger_of(B, original(Role.SHADOW))
    made = replace(offer(owner=C), content_of=ORIGINAL)
    decision = hold(on, made, Content(of=ORIGINAL), POLICY, NOW)
    assert (decision.then, decision.writes, decision.events) == (OfferAnswer.SEND, (), ())
    assert on.apply(hold(on, made, Content(data=b"x"), POLICY, NOW)) is OfferAnswer.QUEUED


def test_the_members_that_have_the_content_are_the_owner_and_the_holders_of_the_original() -> None:
    made = message(content_of=ORIGINAL)
    spoilt = [
        Holder(ServerName(state.value), DatabaseId(state.value), None, 3, state) for state in HolderState
    ]
    on = ledger_of(A, original(holders=(holder(B), *spoilt)))
    assert keepers(on, made) == {B, "holding", "beside", "lost"}
    assert keepers(ledger_of(B, original(Role.SHADOW)), made) == {A}
    assert keepers(ledger_of(B), made) == frozenset()
    assert keepers(on, message()) == frozenset()
