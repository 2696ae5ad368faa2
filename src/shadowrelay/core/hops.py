"""Hop by hop, between boundaries: what a node remembers of its peers beyond its boundary, and of what they
handed over (docs/decisions/0034-from-hop-to-hop.md).
"""

from __future__ import annotations

from shadowrelay.core.identifiers import DatabaseId, Incarnation, Lineage, Mark, MessageId, ServerName
from shadowrelay.core.values import dataclass


@dataclass(frozen=True, slots=True)
class HopPeer:
    """What this node durably knows of a peer with which messages are tracked, whichever of the two sends.

    ``knows_ours``, ``applied`` and ``replaced`` are those of a member (``decisions.Member``).
    """

    name: ServerName
    lineage: Lineage | None = None
    knows_ours: Incarnation | None = None
    applied: Mark | None = None
    replaced: Incarnation | None = None


@dataclass(frozen=True, slots=True)
class Handed:
    """Who handed a message over: the peer, its database, and its own id of the message.

    ``numbers``: the peer's numbers of the recipients, in the order of ours, which run from 1.
    """

    message_id: MessageId
    peer: ServerName
    database_id: DatabaseId
    their_id: MessageId
    numbers: tuple[int, ...]

    def theirs(self, number: int) -> int | None:
        """The peer's number of our recipient; None if it has none."""
        return self.numbers[number - 1] if 1 <= number <= len(self.numbers) else None
