"""A holder leaves for good: its copies are needed until others count, and then it may forget them."""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.decisions import ALL, Decision, Part, SaveCopy, Verdict, VerdictKind, Write
from shadowrelay.core.events.discard_notices import addressed
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.messages import Copy, HolderState
from shadowrelay.core.ownership.chores import in_state
from shadowrelay.core.ownership.transfer import with_better_holder

_REPLACED = frozenset({HolderState.LOST, HolderState.UNCERTAIN, HolderState.BESIDE})


def holder_leaves(ledger: Transaction, name: ServerName, now: datetime, part: Part = ALL) -> Part | None:
    """The copies that the member holds for this node count no more. Repeating this changes nothing.

    If another copy counts, the member is told to discard its own. Else the message is exposed, so that the
    repair makes a copy elsewhere, which replaces the member's; until then the member keeps it. Returns the
    next part, None at the end.
    """
    found = ledger.copies_held_by(name, part)
    for copy in found.copies:
        ledger.apply(_without(copy, name, now))
    return found.rest


def _without(copy: Copy, name: ServerName, now: datetime) -> Decision[None]:
    lost = in_state(copy, name, HolderState.HOLDING, HolderState.LOST)
    counts = [holder for holder in lost.holders if holder.state is HolderState.HOLDING]
    if counts:
        after, told = with_better_holder(lost, counts[0], _REPLACED, now)
    else:
        after, told = _without_beside(lost, name, now)
    return Decision(None, (SaveCopy(copy, after), *told)) if after != copy else Decision(None)


def _without_beside(copy: Copy, name: ServerName, now: datetime) -> tuple[Copy, tuple[Write, ...]]:
    """A copy on our own machine never counted, so it need not wait for another one."""
    told: list[Write] = []
    for holder in copy.holders:
        if holder.name == name and holder.state is HolderState.BESIDE:
            gone = (Verdict(copy.id, copy.epoch, VerdictKind.SUPERSEDED, str(holder.rank)),)
            told += addressed([holder.database_id], gone, now)
    return in_state(copy, name, HolderState.BESIDE, HolderState.SUPERSEDED), tuple(told)
