"""What is settled goes by age, and is remembered."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from decision_inputs import POLICY, holder
from ledger_at_hand import DB, NOW, RUN, A, B, C, M, ledger_of, message

from shadowrelay.core.identifiers import Mark
from shadowrelay.core.messages import Stage, Status
from shadowrelay.core.reception.holding import settle_held
from shadowrelay.core.safety_net import expiry


def test_a_settled_copy_goes_after_the_hold_time_and_its_outcome_stays() -> None:
    settled = message(stage=Stage.SAFETY_NET, settled_at=NOW)
    on = ledger_of(A, settled)
    assert not on.apply(
        expiry.expire(on, settled, POLICY, NOW + POLICY.safety_net_hold_time - timedelta(seconds=1), ())
    )
    assert on.apply(expiry.expire(on, settled, POLICY, NOW + POLICY.safety_net_hold_time, ()))
    assert on.outcomes[M].delivered == (1, 2)


def test_a_settlement_by_somebody_else_reaches_the_holders_of_ours() -> None:
    on = ledger_of(A, message(holders=(holder(B), holder(C, rank=2))))
    settled = tuple(replace(r, status=Status.RELAYED) for r in on.copies[M].recipients)
    on.apply(settle_held(on, on.copies[M], settled, DB[B], Mark(RUN[B], 9), NOW))
    assert [e.addressee for e in on.told] == [DB[C]]
