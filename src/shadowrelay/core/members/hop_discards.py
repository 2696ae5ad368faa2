"""Asking a hop what it delivered: the query, and what its answer means for its shadow queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from shadowrelay.core.decisions import Decision
from shadowrelay.core.delivery.hop_shadows import discarded
from shadowrelay.core.identifiers import Mark, ServerName
from shadowrelay.core.ledger import Ledger, Transaction
from shadowrelay.core.members.conversation import MAX_LINES, Answered, Line, Query
from shadowrelay.core.members.hops import heard
from shadowrelay.core.values import replace


def ask(ledger: Ledger, hop: ServerName, most: int = MAX_LINES) -> Query:
    """The next XQDISCARD for that hop. AFTER says which of its events are durably applied here."""
    peer = ledger.hop_peer(hop)
    return Query(most, after=peer.applied if peer else None)


def told(ledger: Transaction, hop: ServerName, answered: Answered, now: datetime) -> int | None:
    """Apply a whole answer in one transaction. Returns how many events to ask for next, None: the talk ends.

    After the last events the hop is asked for 0: only to tell it what is applied, so that it can forget
    them. It may be long before there is another reason to talk.

    Nothing of it counts if the process that gave it has a successor: its database may have been put back
    since, and its events with it.
    """
    peer = ledger.hop_peer(hop)
    if peer is None or peer.lineage is None or peer.lineage.incarnation != answered.mark.incarnation:
        return None
    ledger.apply(heard(ledger, hop, answered.mark))
    for line in answered.lines:
        ledger.apply(discarded(ledger, hop, peer.lineage.database_id, line.verdict, now))
    numbers = _to_forget(ledger, answered.lines)
    if not numbers:
        return None
    upto = Mark(answered.mark.incarnation, max(numbers))
    known = ledger.hop_peer(hop)
    if known and not _is_past(known.applied, upto):
        ledger.apply(Decision(None, (replace(known, applied=upto),)))
    return MAX_LINES if len(numbers) >= MAX_LINES else 0


def _to_forget(ledger: Ledger, lines: Sequence[Line]) -> list[int]:
    """The events that the hop may forget: those before the first that came too early.

    The hop may have delivered a message, and told so in another session, before its 250 is written down here.
    Then the shadow queue will have the message only later, and the event has to come once more. It does not
    come for ever: at the head of a whole page it has come before, and its message is in doubt or suspended.
    If that is ever handed over again, the hop tells once more what became of it.
    """
    numbers = []
    for index, line in enumerate(lines):
        copy = ledger.copy(line.verdict.message_id)
        early = copy and any(one.number in line.verdict.recipients for one in copy.unsettled)
        if early and (index or len(lines) < MAX_LINES):
            break
        if line.event is not None:
            numbers.append(line.event)
    return numbers


def _is_past(applied: Mark | None, upto: Mark) -> bool:
    """Did the answer in another session go as far already? Two sessions may ask at once."""
    return (
        applied is not None and applied.incarnation == upto.incarnation and applied.sequence >= upto.sequence
    )
