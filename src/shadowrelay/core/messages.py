"""The message as a node holds it: envelope, recipients, holders, role and ownership epoch."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from enum import StrEnum

from shadowrelay.core.identifiers import DatabaseId, Digest, Incarnation, Mark, MessageId, NextHop, ServerName
from shadowrelay.core.values import dataclass, replace


class Role(StrEnum):
    """Primary: this node owns the message and delivers it. Shadow: it holds a copy for the owner."""

    PRIMARY = "primary"
    SHADOW = "shadow"


class Stage(StrEnum):
    """Where a copy is: in a queue (or shadow queue), in Safety Net, or set aside for the operator.

    ARRIVING: durable here while a holder makes its copy durable; no message before it is recorded. DAMAGED:
    its rows cannot be believed (``decisions.DamagedRow``); no copy that a decision reads is in this stage.
    """

    ARRIVING = "arriving"
    QUEUED = "queued"
    SAFETY_NET = "safety_net"
    SET_ASIDE = "set_aside"
    DAMAGED = "damaged"


class Status(StrEnum):
    """A recipient's state. Everything but READY is settled: nobody may deliver to it any more."""

    READY = "ready"
    DELIVERED = "delivered"
    RELAYED = "relayed"
    FAILED = "failed"


class Confirmation(StrEnum):
    """Whether this node must ask the other members about a message before it delivers it.

    ASK: it was away, or took the message over, so somebody else may own or have delivered it. IN_DOUBT: it
    asked, a holder could not be reached within the reconcile timeout, so the message goes out; the question
    is asked again on the next contact.
    """

    NONE = "none"
    ASK = "ask"
    IN_DOUBT = "in_doubt"


class HolderState(StrEnum):
    """What the owner believes of a member that may hold a copy; only HOLDING counts as a second copy.

    HOLDING: it acknowledged the copy. BESIDE: it did, and stands on our own machine, with which its copy
    would be lost; the message stays exposed. LOST: it did, and cannot be reached; it counts again when it
    comes back on the same lineage. UNCERTAIN: it may hold one (its answer was lost, or its database was
    rolled back). SUPERSEDED: it was replaced by another holder and is told to discard its copy. All are
    told of the outcome.
    """

    HOLDING = "holding"
    BESIDE = "beside"
    LOST = "lost"
    UNCERTAIN = "uncertain"
    SUPERSEDED = "superseded"


class Damage(StrEnum):
    """What is wrong with a copy whose row is sound. Such a copy counts as none, and never leaves this node.

    CONTENT: short, unreadable, missing, exchanged or changed. OTHER_MAKER: a report that this node made
    itself and holds for another node, which made the same report in octets of its own; it is as good as any
    if that other one is lost.
    """

    CONTENT = "content"
    OTHER_MAKER = "other-maker"


class Reason(StrEnum):
    """Why a shadow copy is promoted."""

    DATABASE_REPLACED = "database-replaced"
    DATABASE_ROLLED_BACK = "database-rolled-back"
    HEARTBEAT_LOST = "heartbeat-lost"
    OWNER_FORGOT = "owner-forgot"
    OWNER_RETIRED = "owner-retired"
    HANDED_OVER = "handed-over"


@dataclass(frozen=True, slots=True)
class Recipient:
    """One RCPT command and what became of it. Numbers start at 1 at reception and never change."""

    number: int
    address: str
    next_hop: NextHop
    notify: tuple[str, ...] = ()  # RFC 3461 NOTIFY, upper case; empty: not given
    orcpt: str | None = None  # RFC 3461 ORCPT, xtext as received
    status: Status = Status.READY
    attempts: int = 0
    next_attempt: datetime | None = None  # None: now
    last_reply: str = ""
    delay_notified: bool = False
    report: MessageId | None = None  # the DSN that has to be safe before the settlement is announced

    @property
    def settled(self) -> bool:
        return self.status is not Status.READY


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What the sender said of the message, apart from its recipients. ``sender`` is '' for the null path."""

    sender: str
    size: int  # octets of the content
    body: str = "7BIT"  # RFC 6152: 7BIT or 8BITMIME
    smtputf8: bool = False
    ret: str | None = None  # RFC 3461: FULL or HDRS
    envid: str | None = None  # RFC 3461, xtext as received
    message_id: str = ""  # the Message-ID header, for the tracking log
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Digests:
    """What content and envelope have to be (``core.digests``). ``content`` is None while the content arrives.

    ``late``: this node made them itself of what it had stored, because nobody had said what they are (rows of
    a version before digests, or a copy from a member of such a version). What was damaged before is not
    known.
    """

    content: Digest | None
    envelope: Digest
    late: bool = False


@dataclass(frozen=True, slots=True)
class Holder:
    """A member that holds, or may hold, a copy for us; ``mark`` is at or after the commit of its copy.

    On a shadow copy whose promotion is pending: another holder of the same owner, and its rank there.
    """

    name: ServerName
    database_id: DatabaseId
    mark: Mark | None  # None while uncertain
    rank: int
    state: HolderState


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A message on one node: the aggregate that every decision about it reads and returns."""

    id: MessageId
    epoch: int
    rank: int  # which holder we are for the owner; 0 on the node that received it
    role: Role
    stage: Stage = Stage.QUEUED
    owner: ServerName
    owner_database: DatabaseId
    offered_in: Incarnation  # the owner's incarnation that offered the copy (our own while primary)
    envelope: Envelope
    recipients: tuple[Recipient, ...]
    holders: tuple[Holder, ...] = ()
    ranks_given: int = 0
    confirmation: Confirmation = Confirmation.NONE
    confirm_since: datetime | None = None  # since when we ask, while confirmation is ASK
    pending: Reason | None = None  # a shadow copy: why it is to be promoted, once the others were asked
    former_owner: ServerName | None = None  # whom we took it over from
    check_at: datetime | None = None  # a shadow copy: when to ask its owner about it
    received_at: datetime  # at the first owner; a takeover does not reset it
    settled_at: datetime | None = None
    reports_on: MessageId | None = None  # a DSN: the message whose recipient waits for its second copy
    digests: Digests | None = None  # None: a row of a version before them, whose content was not read since
    damage: Damage | None = None
    renewed_at: datetime | None = None  # a shadow copy: when its owner last said that it has the message

    @property
    def damaged(self) -> bool:
        """Is the content not what it has to be? Then nothing of this copy may leave, or be relied on."""
        return self.damage is Damage.CONTENT

    @property
    def queued(self) -> bool:
        return self.stage is Stage.QUEUED

    @property
    def owned(self) -> bool:
        """Primary and still in transit: ours to deliver."""
        return self.role is Role.PRIMARY and self.stage is Stage.QUEUED

    @property
    def held(self) -> bool:
        """A shadow copy of a message that is, for all we know, still in transit."""
        return self.role is Role.SHADOW and self.stage is Stage.QUEUED

    @property
    def exposed(self) -> bool:
        """In transit, and no member on another machine is known to hold a copy."""
        return self.owned and not any(holder.state is HolderState.HOLDING for holder in self.holders)

    @property
    def unsettled(self) -> tuple[Recipient, ...]:
        return tuple(recipient for recipient in self.recipients if not recipient.settled)

    def holder(self, database_id: DatabaseId) -> Holder | None:
        return next((holder for holder in self.holders if holder.database_id == database_id), None)

    def kept_by(self, members: Collection[ServerName]) -> bool:
        """Does one of those members, for all we know, hold a copy of what we own?"""
        held = (holder.name for holder in self.holders if holder.state is HolderState.HOLDING)
        return self.owned and any(name in members for name in held)

    def with_recipients(self, changed: Iterable[Recipient]) -> Copy:
        """The same copy with those recipients in place of the ones of the same numbers."""
        by_number = {recipient.number: recipient for recipient in changed}
        merged = tuple(by_number.get(old.number, old) for old in self.recipients)
        return replace(self, recipients=merged)

    def with_holder(self, holder: Holder) -> Copy:
        """The same copy with that holder added, or in place of the entry for the same database."""
        others = tuple(old for old in self.holders if old.database_id != holder.database_id)
        return replace(self, holders=(*others, holder), ranks_given=max(self.ranks_given, holder.rank))
