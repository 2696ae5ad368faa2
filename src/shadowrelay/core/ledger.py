"""The ledger: what decisions can read of the transport database, and how they are applied to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from shadowrelay.core.decisions import (
    ALL,
    Chore,
    DamagedRow,
    Decision,
    DiscardEvent,
    Found,
    HopShadow,
    Member,
    OpenQuestion,
    Outcome,
    Part,
    Tombstone,
    UnsoundEvent,
)
from shadowrelay.core.hops import Handed, HopPeer
from shadowrelay.core.identifiers import DatabaseId, Lineage, MessageId, NextHop, RequestId, ServerName
from shadowrelay.core.messages import AsSent, Copy
from shadowrelay.core.requests import Place, Progress, Selected, Selector
from shadowrelay.core.shared_records import RecordLedger

T = TypeVar("T")


class Ledger(RecordLedger, Protocol):
    """The transport database as a decision reads it; it does not change during the decision."""

    @property
    def name(self) -> ServerName: ...

    @property
    def lineage(self) -> Lineage: ...

    @property
    def hosts(self) -> Mapping[ServerName, str]:
        """The machine of every member, and our own: copies on one machine fail together."""
        ...

    def copy(self, message_id: MessageId) -> Copy | None: ...

    def arrival(self, message_id: MessageId) -> Copy | None:
        """An arrival: a message that is arriving now, or was when the process before ended."""
        ...

    def damaged(self, message_id: MessageId) -> DamagedRow | None:
        """A message whose rows cannot be believed; ``copy`` and ``arrival`` do not find it."""
        ...

    def outcome(self, message_id: MessageId) -> Outcome | None: ...

    def unacknowledged_orders(self, message_id: MessageId) -> Sequence[DatabaseId]:
        """The databases that have not acknowledged events about an operator's order: a removal, a suspension
        or its end. An empty one stands for a row that is damaged: for whom it was is not known.
        """
        ...

    def sent_to(self, message_id: MessageId) -> Collection[NextHop]:
        """The next hops to which this process is sending the message: their attempts are not written down."""
        ...

    def tombstone(self, message_id: MessageId) -> Tombstone | None: ...

    def knows(self, message_id: MessageId) -> bool:
        """Is there a copy, damaged rows, an outcome or a tombstone of this id? One look-up answers all."""
        ...

    def member(self, name: ServerName) -> Member | None: ...

    def members(self) -> Iterable[Member]: ...

    def hop_peer(self, name: ServerName) -> HopPeer | None:
        """A peer beyond the boundary with which messages are tracked."""
        ...

    def handed(self, message_id: MessageId) -> Handed | None:
        """Who handed that message of ours over; None for nearly all."""
        ...

    def handed_as(self, database_id: DatabaseId, their_id: MessageId) -> Sequence[Handed]:
        """What that database of a peer handed over under that id of its own, oldest first."""
        ...

    @property
    def chores(self) -> Sequence[Chore]:
        """The chores of which a part is left to be done."""
        ...

    @property
    def at_once(self) -> int:
        """How many messages one part of a chore may have."""
        ...

    def in_transit(self, part: Part) -> tuple[Sequence[MessageId], Part | None]:
        """The ids of queued messages, held copies and arrivals in that part; and the next part."""
        ...

    def copies_held_for(self, owner: ServerName, part: Part = ALL, *, unclaimed: bool = False) -> Found:
        """Shadow copies in transit for that owner, of every epoch. ``unclaimed``: not pending promotion."""
        ...

    def any_unclaimed(self, owner: ServerName) -> bool:
        """Is there a shadow copy in transit for that owner without a pending promotion?"""
        ...

    def unchecked(self, owner: ServerName, at: datetime) -> bool:
        """Is there a copy held for that owner whose ``check_at`` is later than ``at``, or not set?"""
        ...

    def copies_held_by(self, holder: ServerName, part: Part = ALL, *, counted: bool | None = None) -> Found:
        """Messages of ours, set aside or not, with a holder of that name. ``counted`` True: only those with
        it in state HOLDING; False: only those with it in state LOST; None: all.
        """
        ...

    def copies_in_doubt(self, holder: ServerName, part: Part = ALL) -> Found:
        """Owned messages with a holder of that name that go out in doubt."""
        ...

    def copies_taken_from(self, former: ServerName, part: Part = ALL) -> Found:
        """Owned messages that were promoted from copies held for that member."""
        ...

    def open_questions(self, after: MessageId, most: int) -> Sequence[OpenQuestion]:
        """Messages and arrivals about which members have to be asked (confirmation ASK or IN_DOUBT): up to
        ``most``, in the order of ids, beginning after that id.
        """
        ...

    def copies_to_check(self, owner: ServerName, now: datetime, most: int) -> Iterable[Copy]:
        """Copies held for that owner whose ``check_at`` has come, oldest first."""
        ...

    def resubmittable(
        self, selector: Selector, owner: ServerName | None, place: Place, most: int
    ) -> Selected:
        """Messages in Safety Net that a selector means, whatever a request then makes of them: each once, in
        the order of (delivery time, id), behind ``place``. ``owner`` None: messages of this node; else what
        it holds for that owner, of every database of the owner. Looks at up to ``most`` settled recipients.
        """
        ...

    def resubmitting(self) -> int:
        """How many messages of this node that were resubmitted are not settled yet."""
        ...

    def unacknowledged(self, sent: AsSent, since: datetime) -> Sequence[MessageId]:
        """Messages that came since then, of which a client sent just that, and got no 250; oldest first."""
        ...

    def queued_for(self, next_hop: NextHop, most: int) -> int:
        """How many messages wait for that next hop, counted up to ``most``."""
        ...

    def events_for(self, addressee: DatabaseId, most: int) -> Iterable[DiscardEvent]:
        """The waiting discard events for that database, oldest first; those that are damaged are left out."""
        ...

    def take_unsound_events(self) -> Sequence[UnsoundEvent]:
        """Damaged events that ``events_for`` left out since the last call."""
        ...

    def hop_shadow(self, message_id: MessageId, hop: ServerName) -> HopShadow | None:
        """What that hop has of the message, and has not delivered as far as we know."""
        ...

    def hop_shadows_of(self, message_id: MessageId) -> Sequence[HopShadow]:
        """The same of every hop, in the order of their names."""
        ...

    def hop_shadows_unsound(self, message_id: MessageId) -> Mapping[ServerName, datetime]:
        """The hops whose rows about the message cannot be believed, and since when these rows say to be."""
        ...

    def hop_shadows(self, hop: ServerName, part: Part = ALL) -> tuple[Sequence[HopShadow], Part | None]:
        """A part of that hop's shadow queue, in the order of ids; and the next part."""
        ...


def own_progress(ledger: Ledger, request_id: RequestId) -> list[Progress]:
    """How far this node itself has come with a resubmit request, by owner."""
    return [one for one in ledger.progress(request_id) if one.node == ledger.name]


class Transaction(Ledger, Protocol):
    """A ledger to which decisions are applied, one after the other; all of them commit together."""

    def apply(self, decision: Decision[T]) -> T: ...
