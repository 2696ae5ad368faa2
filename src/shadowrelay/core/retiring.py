"""Retired members: which records of them a node has still to follow."""

from __future__ import annotations

from collections.abc import Iterator

from shadowrelay.core.ledger import Ledger
from shadowrelay.core.replicating import Rules
from shadowrelay.core.retirements import RetiredMember

MOST_KEPT = 400
"""Records that a node stores: what members can make it hold is bounded."""

RULES = Rules(
    kind=RetiredMember,
    room=lambda ledger, *_: () if len(ledger.records(RetiredMember)) < MOST_KEPT else None,
)


def to_follow(ledger: Ledger) -> Iterator[RetiredMember]:
    """Those of members that are not retired here yet, whatever database they have: a node may have met a
    later or an earlier one than the node that the operator asked, and a name that was retired is never taken
    again.
    """
    for one in ledger.records(RetiredMember):
        known = ledger.member(one.member)
        if one.member != ledger.name and not (known and known.retired):
            yield one
