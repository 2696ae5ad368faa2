"""The parts of a decision (writes, events, ``then``), and the records that decisions read and write.

``writes`` go into the transport database, ``events`` into the outbox of the tracking log, both in one
transaction. ``then`` is what may be said or done after that commit, and not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from shadowrelay.core.hops import Handed, HopPeer
from shadowrelay.core.identifiers import (
    FIRST,
    DatabaseId,
    Incarnation,
    Lineage,
    Mark,
    MessageId,
    ServerName,
)
from shadowrelay.core.messages import AsSent, Copy, Status
from shadowrelay.core.shared_records import RecordWrite
from shadowrelay.core.tracking import Tracked
from shadowrelay.core.values import dataclass, replace

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class VerdictKind(StrEnum):
    """What a line of an XQDISCARD answer says about a message.

    The first seven are discard events; the others only answer CHECK and REVOKE. SUSPENDED, RESUMED: an
    operator ordered that. UNREAD: a next hop took the content, and its answer could not be read. RECORDED:
    the owner has the asker's copy on record.
    """

    DELIVERED = "delivered"
    TAKEN = "taken"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    UNREAD = "unread"
    RECORDED = "held"
    YOURS = "yours"
    PENDING = "pending"
    UNKNOWN = "unknown"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One statement about a message, as a discard event or as the answer to a question.

    ``settled_at``: with DELIVERED, when those recipients were settled, by the clock of the node that did it;
    with SUSPENDED and RESUMED, when the operator ordered that.

    ``argument`` is the owner's name for TAKEN, the outcome for DELIVERED, the end in Unix milliseconds for
    SUSPENDED (empty: none), tries and host for UNREAD, and a holder's rank for RECORDED, SUPERSEDED and
    PENDING. ``recipients`` are recipient numbers; empty means all. DAMAGED: the speaker has a copy that
    cannot be relied on.
    """

    message_id: MessageId
    epoch: int
    kind: VerdictKind
    argument: str = ""
    recipients: tuple[int, ...] = ()
    settled_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DiscardEvent:
    """A verdict addressed to a database. Storing it gives it a ``number``; before that ``number`` is 0."""

    addressee: DatabaseId
    verdict: Verdict
    created_at: datetime
    number: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is remembered of a message whose copy is gone, so that no delivered message is called unknown.

    ``refused``: the message arrived here, and its sender never got a 250. Of all outcomes, only this one
    tells a holder to drop a copy that is not settled.
    """

    message_id: MessageId
    epoch: int
    delivered: tuple[int, ...]
    keep_until: datetime
    refused: bool = False


@dataclass(frozen=True, slots=True)
class DamagedRow:
    """A message whose rows cannot be believed: no decision reads these rows, and none is deleted.

    ``settled``: recipients, by number, whose outcome a sound row of their own or the tracking log shows.
    ``set_aside``: every member that may have a good copy was asked, and none has one.
    """

    message_id: MessageId
    found_at: datetime
    what: str
    settled: tuple[tuple[int, Status], ...] = ()
    set_aside: bool = False


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A revoked offer: the owner's offers up to this epoch and rank are refused."""

    message_id: MessageId
    owner: ServerName
    epoch: int
    rank: int
    keep_until: datetime

    def refuses(self, owner: ServerName, epoch: int, rank: int) -> bool:
        return self.owner == owner and (epoch, rank) <= (self.epoch, self.rank)


@dataclass(frozen=True, slots=True)
class Member:
    """What this node durably knows of another member of the boundary.

    ``applied``: the last of its discard events that this node applied, None before the first.
    ``knows_ours``: the latest of our incarnations that it named. ``replaced``: the last known incarnation of
    the lineage that this one replaced. ``broken_at``: when this node saw that the
    database of before is gone (replaced or rolled back).
    """

    name: ServerName
    lineage: Lineage | None = None
    knows_ours: Incarnation | None = None
    applied: Mark | None = None
    retired: bool = False
    replaced: Incarnation | None = None
    broken_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A message that members have to be asked about, and since when; small, because there may be very many.

    ``taken_from``: the owner from which a pending promotion takes the message; it is not asked before that.
    """

    message_id: MessageId
    since: datetime | None
    taken_from: ServerName | None = None


class Part(NamedTuple):
    """A part of a queue: up to ``most`` messages whose ids follow ``after``, in the order of ids.

    Work on thousands of messages is done part by part, so that other work is not kept waiting.
    """

    after: MessageId = FIRST
    most: int | None = None

    def rest(self, ids: Sequence[MessageId]) -> Part | None:
        """The next part, after these ``ids`` of this part; None at the end."""
        return None if len(ids) != self.most else Part(ids[-1], self.most)


ALL = Part()


class Found(NamedTuple):
    """The copies found in one part of a queue, perhaps none; ``rest`` is the next part."""

    copies: Sequence[Copy]
    rest: Part | None = None


class ChoreKind(StrEnum):
    """The kinds of chores (``ownership.chores``), named by what caused them, the most urgent first."""

    OPENED = "opened"  # this node opened its database
    REPLACED = "replaced"  # the member has another database
    ROLLED_BACK = "rolled-back"  # the member's database is an older state of itself
    RETURNED = "returned"  # the member was out of reach, and is back
    REOPENED = "reopened"  # the member opened its database again
    COUNTED = "counted"  # the member is back: the copies that it holds count again


@dataclass(frozen=True, slots=True)
class Chore:
    """The rest of a chore. Storing it replaces the stored rest of the same chore for the same member.

    ``member`` is this node's own name if the chore concerns no single member. The chore goes on in step
    number ``step``, with the messages after the id ``after``.
    """

    work: ChoreKind
    member: ServerName
    at: datetime
    step: int = 0
    after: MessageId = FIRST


@dataclass(frozen=True, slots=True)
class ChoreDone:
    """Forget a chore of which nothing is left."""

    chore: Chore


@dataclass(frozen=True, slots=True)
class Content:
    """Where the octets of a message are: in memory, in a file already flushed to disk, or stored ``of``
    another message that this node has. Whoever stores a reference has compared those octets.
    """

    data: bytes | None = None
    path: str | None = None
    of: MessageId | None = None


@dataclass(frozen=True, slots=True)
class SaveCopy:
    """Store ``after``; ``before`` is what the ledger holds (None: nothing), so only changes are written.

    ``content`` is given for a new message, and to replace a damaged content or another one; otherwise the
    content stays.
    """

    before: Copy | None
    after: Copy
    content: Content | None = None


@dataclass(frozen=True, slots=True)
class SaveDamaged:
    """Store what is known of a message whose rows cannot be believed, beside those rows."""

    row: DamagedRow


@dataclass(frozen=True, slots=True)
class DropDamaged:
    """Delete rows that could not be believed: nobody needs them, or a good copy takes their place.

    ``instead``: that copy, which the same decision saves. Then what is known of the message beyond the
    boundary stays: who handed it over, and which hops have it.
    """

    message_id: MessageId
    instead: Copy | None = None


@dataclass(frozen=True, slots=True)
class DropCopy:
    """Forget a copy and its content."""

    copy: Copy


@dataclass(frozen=True, slots=True)
class Heard:
    """A member's running incarnation announced a later sequence than this node remembers."""

    name: ServerName
    sequence: int


@dataclass(frozen=True, slots=True)
class CheckCopies:
    """Ask that owner about the copies held for it, at time ``at`` at the latest (``check_at``).

    Changes up to ``most`` of the copies whose check was planned later or not at all; None: all of them.
    """

    owner: ServerName
    at: datetime
    most: int | None = None


@dataclass(frozen=True, slots=True)
class AskAbout:
    """Ask the members about these messages and arrivals, and hold the messages back meanwhile."""

    ids: tuple[MessageId, ...]
    since: datetime


@dataclass(frozen=True, slots=True)
class AcknowledgeEvents:
    """The addressee applied every event up to that mark: delete those, and no newer ones (see Mark)."""

    addressee: DatabaseId
    upto: Mark


@dataclass(frozen=True, slots=True)
class UnsoundEvent:
    """A waiting event that differs from its sum: ``number`` and ``message_id`` are what its row says.
    ``addressee``: whoever is to be told it; empty if that is not known.
    """

    number: int
    addressee: DatabaseId
    message_id: MessageId


@dataclass(frozen=True, slots=True)
class DropEvent:
    """Delete one event, in whose place others are told."""

    number: int


@dataclass(frozen=True, slots=True)
class DropEvents:
    """Delete all events for a database that no longer exists."""

    addressee: DatabaseId


@dataclass(frozen=True, slots=True)
class HopShadow:
    """Recipients of a message that a hop beyond our boundary took, and that it tracks for us. Our copy of the
    message is the hop's shadow copy until the hop says that they are delivered.

    ``mark`` is at or after the commit of the hop's copy. ``recipients``: numbers of ours, those of which the
    hop has said nothing yet. ``since``: when the hop took the first of them. Storing it replaces the stored
    one of that message and hop.
    """

    message_id: MessageId
    hop: ServerName
    database_id: DatabaseId
    mark: Mark
    recipients: tuple[int, ...]
    since: datetime


@dataclass(frozen=True, slots=True)
class DropHopShadow:
    """The shadow queue of that hop has the message no more."""

    message_id: MessageId
    hop: ServerName


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """The client of a message has no 250 yet: the message is known by what that client sent."""

    message_id: MessageId
    sent: AsSent
    received_at: datetime


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The client of a message has its 250: what it sends from now on is another message."""

    message_id: MessageId


Write: TypeAlias = (
    SaveCopy
    | DropCopy
    | SaveDamaged
    | DropDamaged
    | CheckCopies
    | AskAbout
    | Chore
    | ChoreDone
    | DiscardEvent
    | AcknowledgeEvents
    | DropEvent
    | DropEvents
    | Outcome
    | Tombstone
    | Member
    | Heard
    | RecordWrite
    | HopShadow
    | DropHopShadow
    | HopPeer
    | Handed
    | Unacknowledged
    | Acknowledged
)


@dataclass(frozen=True, slots=True)
class Decision(Generic[T_co]):
    """Persist, then speak: ``then`` counts only after writes and events are durable."""

    then: T_co
    writes: tuple[Write, ...] = ()
    events: tuple[Tracked, ...] = ()

    def after(self, first: Decision[Any]) -> Decision[T_co]:
        """Both decisions in one transaction: this one was taken on what the ``first`` writes."""
        return replace(self, writes=(*first.writes, *self.writes), events=(*first.events, *self.events))

    def but(self, then: T) -> Decision[T]:
        """The same writes and events, with another ``then``."""
        return Decision(then, self.writes, self.events)
