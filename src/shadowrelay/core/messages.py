"""The message as a node holds it: envelope, recipients, holders, role and ownership epoch."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from shadowrelay.core.identifiers import (
    DatabaseId,
    Digest,
    Incarnation,
    Mark,
    MessageId,
    NextHop,
    RequestId,
    ServerName,
    id_time,
    tells_its_time,
)
from shadowrelay.core.spelling import decoded
from shadowrelay.core.values import dataclass, replace


class Role(StrEnum):
    """Primary: this node owns the message and delivers it. Shadow: it holds a copy for the owner."""

    PRIMARY = "primary"
    SHADOW = "shadow"


class Stage(StrEnum):
    """Where a copy is: in a queue (or shadow queue), in Safety Net, or set aside for the operator.

    ARRIVING: durable here while a holder makes its copy durable; not yet a message. DAMAGED: its rows cannot
    be believed (``decisions.DamagedRow``); no copy that a decision reads is in this stage.
    """

    ARRIVING = "arriving"
    QUEUED = "queued"
    SAFETY_NET = "safety_net"
    SET_ASIDE = "set_aside"
    DAMAGED = "damaged"


class Status(StrEnum):
    """A recipient's state. Everything but READY is settled: nobody may deliver to it any more.

    REMOVED: an operator removed the message for that recipient.
    """

    READY = "ready"
    DELIVERED = "delivered"
    RELAYED = "relayed"
    FAILED = "failed"
    REMOVED = "removed"


FOREVER = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
"""The end of a suspension without an end. It fits the microseconds of the database, and milliseconds."""


class Confirmation(StrEnum):
    """Whether this node must ask the other members about a message before it delivers it.

    ASK: this node was away, or took the message over, so another member may own or have delivered it.
    IN_DOUBT: this node asked, but could not reach a holder within the reconcile timeout, so the message goes
    out. It asks again on the next contact.
    """

    NONE = "none"
    ASK = "ask"
    IN_DOUBT = "in_doubt"


class HolderState(StrEnum):
    """What the owner believes of a member that may hold a copy; only HOLDING counts as a second copy.

    HOLDING: it acknowledged the copy. BESIDE: it acknowledged the copy, but stands on our own machine, whose
    loss would take both copies; the message stays exposed. LOST: it acknowledged the copy, and cannot be
    reached; it counts again when it comes back on the same lineage. UNCERTAIN: it may hold a copy (its answer
    was lost, or its database was rolled back). SUPERSEDED: another holder replaced it, and it is told to
    discard its copy. Holders in every state are told the outcome.
    """

    HOLDING = "holding"
    BESIDE = "beside"
    LOST = "lost"
    UNCERTAIN = "uncertain"
    SUPERSEDED = "superseded"


class Damage(StrEnum):
    """What is wrong with a copy whose row is sound. It does not count as a copy, and never leaves this node.

    CONTENT: the content is short, unreadable, missing, exchanged or changed.
    OTHER_MAKER: this node made a report itself and holds it for another node, which made the same report in
    other octets. If the other node's report is lost, ours is as good.
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
class Unread:
    """A host took the content, and its answer could not be read: the recipient may have the message.

    ``tries``: how often in a row that was so; 0 since an operator let the message go on. ``host``: the one
    that took it last; '' for any. Another host is a sure duplicate, and is not tried.
    """

    tries: int
    host: str = ""


@dataclass(frozen=True, slots=True)
class Recipient:
    """One recipient (a RCPT command) and its state. Numbers start at 1 at reception and never change.

    ``suspended``: an operator wants it delivered no earlier. ``ordered_at``: when the last order to suspend
    or to resume it was given, in whole milliseconds. An order that was given earlier changes nothing, in
    whatever order a node hears of them.
    """

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
    report: MessageId | None = None  # the DSN that must be safe before the settlement is announced
    settled_at: datetime | None = None  # by the clock of the node that settled it; None also if not known
    journal: MessageId | None = None  # the journal copy that must be safe before the settlement is announced
    suspended: datetime | None = None  # FOREVER: until it is resumed
    ordered_at: datetime | None = None
    unread: Unread | None = None

    @property
    def settled(self) -> bool:
        return self.status is not Status.READY

    @property
    def waits(self) -> bool:
        """May no member be told of the settlement before a report or a journal copy is safe?"""
        return self.report is not None or self.journal is not None

    def is_suspended(self, now: datetime) -> bool:
        """Does an operator want it delivered later?"""
        return self.suspended is not None and now < self.suspended

    def let_go(self) -> Recipient:
        """The recipient once an operator wants it tried: due now, at any host, with no answer counted."""
        return replace(self, next_attempt=None, unread=self.unread and Unread(0))

    def ordered(self, until: datetime | None, at: datetime) -> Recipient:
        """The recipient after an order to suspend it (``until``) or to resume it (None), given at that time.

        The same recipient if it is settled, or if a later order is known. Of two orders of one millisecond,
        the one with the later end counts.
        """
        known = None if self.ordered_at is None else (self.ordered_at, self.suspended or at)
        if self.settled or (known and known >= (at, until or at)):
            return self
        return replace(self, suspended=until, ordered_at=at)


class TlsWish(StrEnum):
    """What the sender wants of TLS on the message's way (RFC 8689). REQUIRED: the parameter REQUIRETLS of
    MAIL. WAIVED: the header field ``TLS-Required: No``, which does not count beside the parameter.
    """

    REQUIRED = "required"
    WAIVED = "waived"


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What the sender said about the message, without the recipients. ``sender`` is '' for the null path."""

    sender: str
    size: int  # octets of the content
    body: str = "7BIT"  # RFC 6152: 7BIT or 8BITMIME
    smtputf8: bool = False
    ret: str | None = None  # RFC 3461: FULL or HDRS
    envid: str | None = None  # RFC 3461, xtext as received
    message_id: str = ""  # the Message-ID header, for the tracking log
    subject: str = ""  # the Subject header as it came
    tls: TlsWish | None = None

    @property
    def subject_read(self) -> str:
        """The subject as a person reads it."""
        return decoded(self.subject)


@dataclass(frozen=True, slots=True)
class AsSent:
    """What a client sent, as it sent it: who the client is, and the digests of envelope and content before
    anything of ours was added.
    """

    client: str  # its address, and the name it gave in EHLO
    envelope: Digest
    content: Digest


@dataclass(frozen=True, slots=True)
class Digests:
    """The digests of content and envelope (``core.digests``). ``content`` is None while the content arrives.

    ``late``: this node made the digests from what it had stored, because nobody told it any (its row, or the
    member that offered the copy, was of a version before digests). Earlier damage then goes unnoticed.
    """

    content: Digest | None
    envelope: Digest
    late: bool = False


@dataclass(frozen=True, slots=True)
class Holder:
    """A member that holds, or may hold, a copy for us; ``mark`` is at or after the commit of its copy.

    On a shadow copy whose promotion is pending: another holder for the same owner, with its rank there.
    """

    name: ServerName
    database_id: DatabaseId
    mark: Mark | None  # None while uncertain
    rank: int
    state: HolderState


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A message on one node: the aggregate that every decision about it reads and returns.

    The last ones follow from the others, and are computed once. ``damaged``: the content differs from its
    digest, so it may not leave this node, or be relied on. ``owned``: this node is the primary server, and
    the message is still in transit; ``unfinished``: or it waits for an operator. ``redundant``: a member on
    another machine is known to hold a copy. ``exposed``: unfinished, and not redundant. What is set aside may
    yet be sent, so its loss would be as bad; but if it is damaged, no member has anything to lose.
    """

    id: MessageId
    epoch: int
    rank: int  # our ordinal among the owner's holders; 0 on the node that received the message
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
    pending: Reason | None = None  # a shadow copy: why it will be promoted, after the others are asked
    former_owner: ServerName | None = None  # the owner from which we took the message over
    check_at: datetime | None = None  # a shadow copy: when to ask its owner about it
    received_at: datetime  # at the first owner; a takeover does not reset it; a resume does (``came_at``)
    settled_at: datetime | None = None
    reports_on: MessageId | None = None  # a DSN: the message whose recipient waits for its second copy
    digests: Digests | None = None  # None: the row is of a version before digests, its content not read since
    damage: Damage | None = None
    renewed_at: datetime | None = None  # a shadow copy: when its owner last said that it has the message
    content_of: MessageId | None = None  # made of another message: whose content it has, octet for octet
    request: RequestId | None = None  # resubmitted: the resubmit request that called for it
    queued: bool = field(init=False, repr=False, compare=False)
    damaged: bool = field(init=False, repr=False, compare=False)
    owned: bool = field(init=False, repr=False, compare=False)
    unfinished: bool = field(init=False, repr=False, compare=False)
    redundant: bool = field(init=False, repr=False, compare=False)
    exposed: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        this: Any = self  # frozen for the type checker alone
        primary, aside = self.role is Role.PRIMARY, self.stage is Stage.SET_ASIDE
        this.queued = queued = self.stage is Stage.QUEUED
        this.damaged = self.damage is Damage.CONTENT
        this.owned = primary and queued
        this.unfinished = primary and (queued or aside)
        this.redundant = False
        for holder in self.holders:
            if holder.state is HolderState.HOLDING:
                this.redundant = True
        this.exposed = self.unfinished and not self.redundant and not (aside and self.damaged)

    @property
    def came_at(self) -> datetime:
        """When the message was received. If an operator gave an order about it, ``received_at`` may be when
        its age began anew, and its id tells: not one that was derived from another message.
        """
        if not any(one.ordered_at for one in self.recipients) or not tells_its_time(self.id):
            return self.received_at
        return min(self.received_at, id_time(self.id))

    @property
    def held(self) -> bool:
        """This is a shadow copy of a message that, as far as we know, is still in transit."""
        return self.role is Role.SHADOW and self.stage is Stage.QUEUED

    @property
    def suspended_until(self) -> datetime | None:
        """Until when an operator wants something of it to wait, as the last order said; None: nothing."""
        return max((one.suspended for one in self.unsettled if one.suspended), default=None)

    @property
    def unsettled(self) -> tuple[Recipient, ...]:
        return tuple([one for one in self.recipients if one.status is Status.READY])

    def holder(self, database_id: DatabaseId) -> Holder | None:
        return next((holder for holder in self.holders if holder.database_id == database_id), None)

    def kept_by(self, members: Collection[ServerName]) -> bool:
        """Do we own the message, and does one of those members, as far as we know, hold a copy?"""
        held = (holder.name for holder in self.holders if holder.state is HolderState.HOLDING)
        return self.owned and any(name in members for name in held)

    def with_recipients(self, changed: Iterable[Recipient]) -> Copy:
        """The same copy, with the changed recipients in place of those with the same numbers."""
        by_number = {recipient.number: recipient for recipient in changed}
        merged = [by_number.get(old.number, old) for old in self.recipients]
        return replace(self, recipients=tuple(merged))

    def with_holder(self, holder: Holder) -> Copy:
        """The same copy with that holder; it replaces the entry of the same database, if there is one."""
        others = tuple(old for old in self.holders if old.database_id != holder.database_id)
        return replace(self, holders=(*others, holder), ranks_given=max(self.ranks_given, holder.rank))
