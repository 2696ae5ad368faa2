"""What a decision is made of, and what it may read.

A decision has three parts. ``writes`` go into the transport database, ``events`` into the outbox of the
tracking log, both in one transaction; ``then`` is what may be said or done, only after that commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from shadowrelay.core.identifiers import (
    FIRST,
    DatabaseId,
    Incarnation,
    Lineage,
    Mark,
    MessageId,
    ServerName,
)
from shadowrelay.core.messages import Copy, Status
from shadowrelay.core.tracking import RowsDamaged, SnapshotEnd
from shadowrelay.core.tracking_row import TrackingEvent
from shadowrelay.core.values import dataclass, replace

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class VerdictKind(StrEnum):
    """What a line of an XQDISCARD answer says of a message.

    The first four are discard events; the others answer CHECK and REVOKE only. RECORDED: the owner counts the
    copy that is asked about.
    """

    DELIVERED = "delivered"
    TAKEN = "taken"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    RECORDED = "held"
    YOURS = "yours"
    PENDING = "pending"
    UNKNOWN = "unknown"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One statement about a message, as a discard event or as the answer to a question.

    ``argument`` is the owner's name for TAKEN, the outcome for DELIVERED, and a holder's rank for RECORDED,
    SUPERSEDED and PENDING.
    DAMAGED: a copy is here, and cannot be relied on. ``recipients`` are numbers; empty means all of them.
    """

    message_id: MessageId
    epoch: int
    kind: VerdictKind
    argument: str = ""
    recipients: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DiscardEvent:
    """A verdict addressed to a database; ``number`` is given when it is stored (0 before that)."""

    addressee: DatabaseId
    verdict: Verdict
    created_at: datetime
    number: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is remembered of a message whose copy is gone: nothing delivered is ever called unknown.

    ``refused``: it arrived here, and its sender never had a 250. Only that lets a holder drop its copy.
    """

    message_id: MessageId
    epoch: int
    delivered: tuple[int, ...]
    keep_until: datetime
    refused: bool = False


@dataclass(frozen=True, slots=True)
class DamagedRow:
    """A message whose rows cannot be believed: nothing is decided by them, and none is deleted.

    ``settled``: recipients, by number, of which a sound row of their own or the tracking log says what became
    of them. ``set_aside``: every member that may have a good copy was asked, and none has one.
    """

    message_id: MessageId
    found_at: datetime
    what: str
    settled: tuple[tuple[int, Status], ...] = ()
    set_aside: bool = False


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A revoked offer: copies of that owner and epoch, with equal or lower rank, are refused."""

    message_id: MessageId
    owner: ServerName
    epoch: int
    rank: int
    keep_until: datetime

    def refuses(self, owner: ServerName, epoch: int, rank: int) -> bool:
        return self.owner == owner and (epoch, rank) <= (self.epoch, self.rank)


@dataclass(frozen=True, slots=True)
class Member:
    """What we durably know of another member of the boundary.

    ``applied`` is the last of its discard events that is applied here, None before the first;
    ``knows_ours`` the latest of our incarnations that it named; ``replaced`` the one that ran in the database
    that this lineage took the place of.
    """

    name: ServerName
    lineage: Lineage | None = None
    knows_ours: Incarnation | None = None
    applied: Mark | None = None
    retired: bool = False
    replaced: Incarnation | None = None


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A message that members have to be asked about, since when; light, because there may be very many.

    ``taken_from``: the owner that a pending promotion takes it from, which is not asked for its consent.
    """

    message_id: MessageId
    since: datetime | None
    taken_from: ServerName | None = None


class Part(NamedTuple):
    """Of a queue: up to ``most`` of the messages behind the id ``after``, in the order of ids.

    What is done to thousands is done part by part, so that everything else is not kept waiting.
    """

    after: MessageId = FIRST
    most: int | None = None

    def rest(self, ids: Sequence[MessageId]) -> Part | None:
        """Where to go on behind those that it has; None at the end."""
        return None if len(ids) != self.most else Part(ids[-1], self.most)


ALL = Part()


class Found(NamedTuple):
    """What one part of a queue has of what is looked for, which may be nothing; ``rest`` is the next part."""

    copies: Sequence[Copy]
    rest: Part | None = None


class ChoreKind(StrEnum):
    """What is done to very many messages, see ``core.chores``: what called for it, the most urgent first."""

    OPENED = "opened"  # this database was opened
    REPLACED = "replaced"  # the member's database is another one
    ROLLED_BACK = "rolled-back"  # its database is an older state of itself
    RETURNED = "returned"  # it was out of reach, and is met again
    REOPENED = "reopened"  # it opened its database again
    COUNTED = "counted"  # it is met again: what it holds counts again


@dataclass(frozen=True, slots=True)
class Chore:
    """What is left of such work: stored, in place of what was left of the same work for that member before.

    ``member`` is this node's own name for what concerns all. The part behind ``after`` of the step of that
    number comes next.
    """

    work: ChoreKind
    member: ServerName
    at: datetime
    step: int = 0
    after: MessageId = FIRST


@dataclass(frozen=True, slots=True)
class ChoreDone:
    """Nothing is left of it."""

    chore: Chore


@dataclass(frozen=True, slots=True)
class Content:
    """Where the octets of a message are: in memory, or in a file already flushed to disk."""

    data: bytes | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class SaveCopy:
    """Store ``after``; ``before`` is what the ledger holds (None: nothing), so only changes are written.

    ``content`` comes with a new message, and takes the place of a damaged one; otherwise it stays as it is.
    """

    before: Copy | None
    after: Copy
    content: Content | None = None


@dataclass(frozen=True, slots=True)
class SaveDamaged:
    """Store what is known of rows that cannot be believed, beside them."""

    row: DamagedRow


@dataclass(frozen=True, slots=True)
class DropDamaged:
    """Forget rows that could not be believed: a good copy takes their place, or nobody needs them."""

    message_id: MessageId


@dataclass(frozen=True, slots=True)
class DropCopy:
    """Forget a copy and its content."""

    copy: Copy


@dataclass(frozen=True, slots=True)
class Heard:
    """A member's running incarnation announced that sequence, a later one than we remember."""

    name: ServerName
    sequence: int


@dataclass(frozen=True, slots=True)
class CheckCopies:
    """Copies held for that owner are to be asked about at that time at the latest: ``check_at``.

    Up to ``most`` of those that were not to be; all without it.
    """

    owner: ServerName
    at: datetime
    most: int | None = None


@dataclass(frozen=True, slots=True)
class AskAbout:
    """These, messages and what is arriving, are asked about since then, and held back meanwhile."""

    ids: tuple[MessageId, ...]
    since: datetime


@dataclass(frozen=True, slots=True)
class AcknowledgeEvents:
    """The addressee applied every event up to that mark: forget those (never newer ones, see Mark)."""

    addressee: DatabaseId
    upto: Mark


@dataclass(frozen=True, slots=True)
class DropEvents:
    """Forget all events for a database that exists no more."""

    addressee: DatabaseId


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
    | DropEvents
    | Outcome
    | Tombstone
    | Member
    | Heard
)


@dataclass(frozen=True, slots=True)
class Decision(Generic[T_co]):
    """Persist, then speak: ``then`` counts only once writes and events are durable."""

    then: T_co
    writes: tuple[Write, ...] = ()
    events: tuple[TrackingEvent | SnapshotEnd | RowsDamaged, ...] = ()

    def after(self, first: Decision[Any]) -> Decision[T_co]:
        """Both in one transaction: this one was taken on what the ``first`` writes."""
        return replace(self, writes=(*first.writes, *self.writes), events=(*first.events, *self.events))

    def but(self, then: T) -> Decision[T]:
        """The same writes and events, with another result."""
        return Decision(then, self.writes, self.events)
