"""What an attempt leads to: recipients settled, discard events."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from decision_inputs import HOP, holder
from ledger_at_hand import DB, NOW, A, B, C, LedgerAtHand, M, ledger_of, message

from shadowrelay.core.delivery.settling import AttemptResult, Ending, settle
from shadowrelay.core.messages import HolderState, Role, Stage, Status


def test_a_delivery_that_somebody_else_settled_meanwhile_has_its_row_all_the_same(on_a: LedgerAtHand) -> None:
    first = message().recipients[0]
    on_a.copies[M] = message().with_recipients([replace(first, status=Status.DELIVERED)])
    results = [AttemptResult(1, Ending.ACCEPTED, "250 ok"), AttemptResult(2, Ending.ACCEPTED, "250 ok")]
    on_a.apply(settle(on_a, M, results, (), HOP, NOW))
    rows = [event for event in on_a.events if event.event_id == "SENDEXTERNAL"]
    assert sorted(r.number for row in rows for r in row.recipients) == [1, 2]
    assert on_a.copies[M].recipients[0].status is Status.DELIVERED


def test_settling_tells_every_possible_holder_in_the_same_decision() -> None:
    on = ledger_of(A, message(holders=(holder(B), holder(C, HolderState.UNCERTAIN, 2))))
    results = [
        AttemptResult(1, Ending.ACCEPTED, "250 2.0.0"),
        AttemptResult(2, Ending.DEFERRED, "451 4.3.2", timedelta(60)),
    ]
    on.apply(settle(on, M, results, (), HOP, NOW))
    assert {(e.addressee, e.verdict.recipients) for e in on.told} == {(DB[B], (1,)), (DB[C], (1,))}
    assert [event.event_id for event in on.events] == ["SENDEXTERNAL", "DEFER"]


def test_a_delivery_that_was_overtaken_by_a_promotion_still_settles() -> None:
    on = ledger_of(A, message(Role.SHADOW, owner=B, owner_database=DB[B], epoch=2))
    results = [AttemptResult(n, Ending.ACCEPTED, "250 2.0.0") for n in (1, 2)]
    on.apply(settle(on, M, results, (), HOP, NOW))
    assert on.copies[M].stage is Stage.SAFETY_NET
    assert [e.addressee for e in on.told] == [DB[B]]
