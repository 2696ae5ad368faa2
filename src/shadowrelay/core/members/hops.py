"""The conversation with peers beyond the boundary: greetings, and the discard events that a peer asks for.

It is that of members (``conversation``), with less in it: no copies are held, offered or asked about.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from enum import Enum

from shadowrelay.core.decisions import Decision, DropEvents, Write
from shadowrelay.core.events import discard
from shadowrelay.core.events.said_again import said_again
from shadowrelay.core.hops import HopPeer
from shadowrelay.core.identifiers import Continuity, DatabaseId, Lineage, Mark, ServerName
from shadowrelay.core.ledger import Ledger, Transaction
from shadowrelay.core.members.conversation import MAX_LINES, Greeting, Line, Query, QueryResponse
from shadowrelay.core.ownership.heartbeat import continued
from shadowrelay.core.values import replace


def introduce(ledger: Ledger, to: ServerName) -> Greeting:
    """Our greeting for that peer: the lineage goes back to the incarnation that the peer knows."""
    peer = ledger.hop_peer(to)
    lineage = ledger.lineage.since(peer.knows_ours if peer else None)
    return Greeting(ledger.name, lineage, peer.lineage.incarnation if peer and peer.lineage else None, 1)


def met(ledger: Ledger, theirs: Greeting, asked_at: Lineage | None = None) -> Decision[Continuity | None]:
    """A peer introduced itself, as the caller or in answer to our greeting: remember its lineage.

    If its database was replaced, the events that wait for the former one are dropped. If it was put back,
    they stay true, and are told. ``asked_at``: as for members (``heartbeat.meet``). The result is None for a
    peer met for the first time.
    """
    peer = ledger.hop_peer(theirs.name) or HopPeer(theirs.name)
    former = peer.lineage
    judged = continued(former, peer.replaced, theirs.lineage, asked_at)
    if judged is None:
        return Decision(Continuity.UNBROKEN)
    continuity, found = judged
    after = replace(peer, lineage=found, knows_ours=theirs.known or peer.knows_ours)
    writes: list[Write] = []
    if former and continuity is Continuity.BROKEN:
        gone = former.incarnation if former.incarnation != found.incarnation else peer.replaced
        after = replace(after, applied=None, replaced=gone)
        if found.database_id != former.database_id:
            writes.append(DropEvents(former.database_id))
    if after != peer:
        writes.append(after)
    return Decision(continuity, tuple(writes))


class Unwelcome(Enum):
    """Why a caller is not the peer with which messages are tracked.

    REPLACED: another database took the place of its own. ANOTHERS: somebody else has that database.
    """

    REPLACED = "replaced"
    ANOTHERS = "another's"


def called(
    ledger: Transaction, theirs: Greeting, others: Collection[DatabaseId]
) -> tuple[Greeting, Continuity | None] | Unwelcome:
    """A peer introduced itself as the caller: remember it, and introduce ourselves. With what its lineage is
    found to be.

    ``others``: databases that the peer cannot have. Whoever shows an id gets the events for it.
    """
    known = ledger.hop_peer(theirs.name)
    if known is not None and known.replaced == theirs.lineage.incarnation:
        return Unwelcome.REPLACED
    if theirs.lineage.database_id in others:
        return Unwelcome.ANOTHERS
    continuity = ledger.apply(met(ledger, theirs))
    return introduce(ledger, theirs.name), continuity


def heard(ledger: Ledger, name: ServerName, mark: Mark) -> Decision[None]:
    """Remember the highest sequence that a peer announced in its running incarnation."""
    peer = ledger.hop_peer(name)
    if peer is None or peer.lineage is None or not _later(peer.lineage, mark):
        return Decision(None)
    return Decision(None, (replace(peer, lineage=peer.lineage.at_least(mark)),))


def _later(lineage: Lineage, mark: Mark) -> bool:
    return mark.incarnation == lineage.incarnation and mark.sequence > lineage.sequence


def asked(ledger: Transaction, asker: Greeting, query: Query, now: datetime) -> QueryResponse:
    """Answer an XQDISCARD of a peer: the events that wait for its database, up to ``most``.

    What it has applied (AFTER) is forgotten. A query from a process that has a successor gets nothing, and
    nothing is forgotten: its database may have been put back since.
    """
    peer = ledger.hop_peer(asker.name)
    if peer is None or peer.lineage is None or peer.lineage.incarnation != asker.lineage.incarnation:
        return QueryResponse(())
    if query.after:
        ledger.apply(discard.acknowledge(peer.lineage.database_id, query.after))
    events = ledger.events_for(peer.lineage.database_id, min(query.most, MAX_LINES))
    lines = tuple(Line(event.number, event.verdict) for event in events)
    ledger.apply(said_again(ledger, ledger.take_unsound_events(), now))
    return QueryResponse(lines)
