"""The script that repairs exposure, step by step."""

from __future__ import annotations

from ledger_at_hand import NOW, A, B, M, books, message

from shadowrelay.core.messages import HolderState
from shadowrelay.core.steps import OfferCopy, Transact
from shadowrelay.primary.repairing import copy_again


def test_the_rank_of_an_offer_and_who_may_hold_it_are_written_down_before_it_is_made() -> None:
    """If the answer is lost, or this node, that member is told of the outcome like any other."""
    on = books(A, message())
    script = copy_again(M, [B], lambda: NOW)
    reserve = next(script)
    assert isinstance(reserve, Transact)
    offered = script.send(reserve.work(on))
    assert isinstance(offered, OfferCopy)
    copy = on.copies[M]
    assert (copy.ranks_given, offered.rank) == (1, 1)
    assert [(holder.name, holder.state) for holder in copy.holders] == [(B, HolderState.UNCERTAIN)]
