"""Says anew what a damaged discard event said, from what this node knows of its message.

Which part of the event is damaged cannot be seen. So nothing of it is believed but this: it was about that
message, and the rows of that message tell the truth. If it was about another one, that truth does no harm,
and the addressee learns the rest when it asks (CHECK).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from shadowrelay.core.decisions import (
    Decision,
    DiscardEvent,
    DropEvent,
    UnsoundEvent,
    Verdict,
    VerdictKind,
    Write,
)
from shadowrelay.core.events.discard_notices import addressed, known, to_giver
from shadowrelay.core.identifiers import DatabaseId
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.messages import Copy, HolderState


def said_again(ledger: Ledger, unsound: Iterable[UnsoundEvent], now: datetime) -> Decision[None]:
    """Put sound events in place of damaged ones. Where nothing is known, the addressee is told nothing."""
    writes: list[Write] = []
    for event in unsound:
        writes.append(DropEvent(event.number))
        writes += addressed([event.addressee], _verdicts(ledger, event), now)
        writes += _beyond(ledger, event, now)
    return Decision(None, tuple(writes))


def _verdicts(ledger: Ledger, event: UnsoundEvent) -> tuple[Verdict, ...]:
    if not event.addressee:
        return ()
    if copy := ledger.copy(event.message_id):
        return (*known(copy), *_moved(ledger, copy, event.addressee))
    outcome = ledger.outcome(event.message_id)
    if outcome is None:
        return ()
    if outcome.refused:
        return (Verdict(outcome.message_id, outcome.epoch, VerdictKind.REJECTED),)
    return (Verdict(outcome.message_id, outcome.epoch, VerdictKind.DELIVERED, recipients=outcome.delivered),)


def _moved(ledger: Ledger, copy: Copy, addressee: DatabaseId) -> tuple[Verdict, ...]:
    """Who owns the message by now, or that the addressee's copy is not needed any more."""
    if copy.held and copy.pending is None:
        return (Verdict(copy.id, copy.epoch, VerdictKind.TAKEN, copy.owner),)
    if not copy.owned:
        return ()
    holder = copy.holder(addressee)
    if holder and holder.state is HolderState.SUPERSEDED and not copy.exposed:
        return (Verdict(copy.id, copy.epoch, VerdictKind.SUPERSEDED, str(holder.rank)),)
    return (Verdict(copy.id, copy.epoch, VerdictKind.TAKEN, ledger.name),) if copy.epoch > 1 else ()


def _beyond(ledger: Ledger, event: UnsoundEvent, now: datetime) -> Sequence[DiscardEvent]:
    """The events for a peer beyond the boundary, which knows the message by an id of its own."""
    return [
        one
        for handed in ledger.handed_as(event.addressee, event.message_id)
        if (copy := ledger.copy(handed.message_id))
        for one in to_giver(ledger, copy.id, copy.recipients, now)
    ]
