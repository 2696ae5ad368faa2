"""Asking a hop what it delivered: the query, and what its answer means for its shadow queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from shadowrelay.core.decisions import Decision
from shadowrelay.core.delivery.hop_shadows import discarded
from shadowrelay.core.identifiers import Mark, ServerName
from shadowrelay.core.ledger import Ledger, Transaction
from shadowrelay.core.members.conversation import MAX_LINES, Answered, Query
from shadowrelay.core.members.hops import heard
from shadowrelay.core.values import replace


def ask(ledger: Ledger, hop: ServerName) -> Query:
    """The next XQDISCARD for that hop. AFTER says which of its events are durably applied here."""
    peer = ledger.hop_peer(hop)
    return Query(MAX_LINES, after=peer.applied if peer else None)


def told(ledger: Transaction, hop: ServerName, answered: Answered, now: datetime) -> bool:
    """Apply a whole answer in one transaction. True if there may be more to fetch at once.

    Nothing of it counts if the process that gave it has a successor: its database may have been put back
    since, and its events with it.
    """
    peer = ledger.hop_peer(hop)
    if peer is None or peer.lineage is None or peer.lineage.incarnation != answered.mark.incarnation:
        return False
    ledger.apply(heard(ledger, hop, answered.mark))
    numbers: Sequence[int] = [line.event for line in answered.lines if line.event is not None]
    for line in answered.lines:
        ledger.apply(discarded(ledger, hop, peer.lineage.database_id, line.verdict, now))
    if numbers:
        upto = Mark(answered.mark.incarnation, max(numbers))
        known = ledger.hop_peer(hop)
        if known and not _is_past(known.applied, upto):
            ledger.apply(Decision(None, (replace(known, applied=upto),)))
    return len(answered.lines) >= MAX_LINES


def _is_past(applied: Mark | None, upto: Mark) -> bool:
    """Did the answer in another session go as far already? Two sessions may ask at once."""
    return (
        applied is not None and applied.incarnation == upto.incarnation and applied.sequence >= upto.sequence
    )
