"""A member gives a record to a node, which merges it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from decision_inputs import POLICY
from ledger_at_hand import NOW, B, LedgerAtHand

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.policy import Policy
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.records import Record, RecordPart
from shadowrelay.core.replicating import Merging, merge
from shadowrelay.members.sharing import RULES

R = TypeVar("R", bound=Record)


def hears(
    on: LedgerAtHand,
    record: R,
    parts: Sequence[RecordPart] = (),
    *,
    members: Collection[ServerName] = (B,),
    now: datetime = NOW,
    age: timedelta = timedelta(0),
    policy: Policy = POLICY,
) -> R | None:
    """``b`` gives the record, and how far it is itself."""
    return on.apply(
        merge(on, RULES[record.kind], record, parts, B, Merging(policy, Endings(now), members, age))
    )
