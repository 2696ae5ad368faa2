"""The script that repairs exposure, step by step."""

from __future__ import annotations

import pytest
from ledger_at_hand import NOW, A, B, C, M, ledger_of, message

from shadowrelay.core.messages import HolderState
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.redundancy import Concern, Leg, OfferAttempt
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.steps import OfferCopy, Transact
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.repair import Repaired, copy_again

OWN, *OTHERS = (MemberPlace(name, "site", f"host-{name}") for name in (A, B, C))


def boundary() -> Boundary:
    return Boundary(OWN, tuple(OTHERS), Policy(), _turn=-1)


def test_the_rank_of_an_offer_and_who_may_hold_it_are_written_down_before_it_is_made() -> None:
    """If the answer is lost, or this node, that member is told of the outcome like any other."""
    on = ledger_of(A, message())
    script = copy_again(M, boundary().candidates(0.0).healthy, lambda: NOW)
    reserve = script.send(None)
    assert isinstance(reserve, Transact)
    offered = script.send(reserve.work(on))
    assert isinstance(offered, OfferCopy)
    copy = on.copies[M]
    assert (copy.ranks_given, offered.rank) == (1, 1)
    assert [(holder.name, holder.state) for holder in copy.holders] == [(B, HolderState.UNCERTAIN)]


def test_who_refused_the_copy_lately_is_not_asked_and_every_attempt_is_told() -> None:
    on = ledger_of(A, message())
    refused = OfferAttempt(B, Leg.REFUSED, 1, "550 5.7.1", concern=Concern.COPY)
    script = copy_again(M, boundary().candidates(0.0).healthy, lambda: NOW, [refused])
    reserve = script.send(None)
    assert isinstance(reserve, Transact)
    offered = script.send(reserve.work(on))
    assert isinstance(offered, OfferCopy)
    assert offered.to == C
    again = OfferAttempt(C, Leg.REFUSED, offered.rank, "552 5.3.4", concern=Concern.COPY)
    record = script.send(again)
    assert isinstance(record, Transact)
    with pytest.raises(StopIteration) as ended:
        script.send(record.work(on))
    assert ended.value.value == Repaired(safe=False, attempts=(again,))
