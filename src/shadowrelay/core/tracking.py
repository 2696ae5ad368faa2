"""The tracking events, one dataclass each, with the columns that they fill in the message tracking log.

Names and meanings: docs/reference/tracking-log.md, which has a section for each event.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import ClassVar, TypeAlias

from shadowrelay.core.identifiers import DatabaseId, Mark, MessageId, NextHop, RequestId, ServerName
from shadowrelay.core.jobs import Job
from shadowrelay.core.messages import FOREVER, Holder
from shadowrelay.core.operating import By
from shadowrelay.core.pressure import PressureLevel, Resource
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.tracking_row import (
    Columns,
    SnapshotEnd,
    TrackingEvent,
    entries,
    fork,
    listed,
    numbers,
    timestamp,
)
from shadowrelay.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive(TrackingEvent):
    """The message is accepted: the 250 follows. Written after HAREDIRECT or HAREDIRECTFAIL."""

    event_id: ClassVar[str] = "RECEIVE"
    digested: ClassVar[bool] = True
    client_ip: str = ""
    client_hostname: str = ""
    connector: str = ""
    session: str = ""
    login: str = ""  # the user who logged in
    handed_by: str = ""  # the peer beyond the boundary that keeps a copy until it is told
    handed_as: str = ""  # its id of the message
    redundant: str = ""  # '' or 'Failed', as Exchange writes S:Replication; or arrivals.UNKNOWN
    unfiltered: str = ""  # the filters that were down, and without which it was taken, joined with ``+``
    quarantined: str = ""  # why a filter suspended all its recipients

    def more(self) -> Columns:
        return {
            "client-ip": self.client_ip,
            "client-hostname": self.client_hostname,
            "connector-id": self.connector,
            "source-context": self.session,
            "original-client-ip": self.client_ip,
        }

    def custom(self) -> dict[str, str]:
        by = {"HandedBy": self.handed_by, "HandedAs": self.handed_as}
        filtered = {"Unfiltered": self.unfiltered, "Quarantined": self.quarantined}
        wanted = {"Tls": self.copy.envelope.tls or ""}
        return {"Replication": self.redundant, "Login": self.login} | by | filtered | wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded(TrackingEvent):
    """A filter wants the message to end here, unseen: the client has its 250, and nothing is kept."""

    event_id: ClassVar[str] = "DROP"
    source: ClassVar[str] = "AGENT"
    client_ip: str = ""
    client_hostname: str = ""
    connector: str = ""
    session: str = ""
    filter: str  # which one, or why there is nothing left to deliver

    def more(self) -> Columns:
        return {
            "client-ip": self.client_ip,
            "client-hostname": self.client_hostname,
            "connector-id": self.connector,
            "source-context": self.session,
        }

    def custom(self) -> dict[str, str]:
        return {"Filter": self.filter}


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated(TrackingEvent):
    """A client sent a message again whose 250 was never written. Nothing was made for these recipients: they
    have the message, or will get it from here.
    """

    event_id: ClassVar[str] = "DUPLICATERECEIVE"
    session: str = ""

    def more(self) -> Columns:
        return {"source-context": self.session}


@dataclass(frozen=True, slots=True, kw_only=True)
class HaRedirect(TrackingEvent):
    """A shadow server holds a copy. ``attempts``: ``<shadow>=<its reply>``; the last attempt succeeded.

    ``holder``: that shadow server. Its mark is at or after the commit of the copy, so our log shows how far
    the holder's log has to reach.
    """

    event_id: ClassVar[str] = "HAREDIRECT"
    holder: Holder
    machines: tuple[str, str] = ("", "")  # ours, and the shadow server's
    attempts: tuple[str, ...] = ()

    @property
    def shadow(self) -> ServerName:
        return self.holder.name

    def more(self) -> Columns:
        return {
            "source-context": listed(self.attempts),
            "server-hostname": self.shadow,
            "reference": str(self.holder.mark or ""),
        }

    def custom(self) -> dict[str, str]:
        own, other = self.machines
        return {"Shadow": self.shadow, "ShadowDb": self.holder.database_id, "Host": own, "ShadowHost": other}


@dataclass(frozen=True, slots=True, kw_only=True)
class HaRedirectFail(TrackingEvent):
    """No shadow server is known to have a copy, and the message was accepted all the same: it is exposed."""

    event_id: ClassVar[str] = "HAREDIRECTFAIL"
    attempts: tuple[str, ...] = ()

    def more(self) -> Columns:
        return {"source-context": listed(self.attempts) or "No suitable shadow servers"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HaReceive(TrackingEvent):
    """On the shadow server: it holds a copy for the primary server. ``reason``: '' for a first offer.

    ``mark``: the owner's mark when it offered the copy, so our log shows how far the owner's log has to
    reach.
    """

    event_id: ClassVar[str] = "HARECEIVE"
    digested: ClassVar[bool] = True
    primary: ServerName
    machines: tuple[str, str] = ("", "")  # ours, and the primary server's
    mark: Mark | None = None
    reason: str = ""

    def more(self) -> Columns:
        mark = str(self.mark or "")
        return {"client-hostname": self.primary, "source-context": self.reason, "reference": mark}

    def custom(self) -> dict[str, str]:
        own, other = self.machines
        rank, database = str(self.copy.rank), self.copy.owner_database
        return {"Rank": rank, "OwnerDb": database, "Host": own, "OwnerHost": other}


@dataclass(frozen=True, slots=True, kw_only=True)
class HaDiscard(TrackingEvent):
    """On the shadow server: recipients of a copy are settled, or the copy is discarded.

    ``reason``: ExplicitlyDiscarded (delivered), Superseded, Rejected, Orphaned, Revoked, Expired.
    ``told_by``: the database of the member that said that they are settled, and ``mark`` its mark then: so
    our log shows how far that member's log has to reach, which tells the same.
    """

    event_id: ClassVar[str] = "HADISCARD"
    digested: ClassVar[bool] = True
    reason: str
    told_by: str = ""
    mark: Mark | None = None

    def more(self) -> Columns:
        reason, mark = f"{self.reason};{self.copy.id}", str(self.mark or "")
        return {"source-context": reason, "client-hostname": self.copy.owner, "reference": mark}

    def custom(self) -> dict[str, str]:
        return {"TellerDb": self.told_by}


@dataclass(frozen=True, slots=True, kw_only=True)
class HaDamage(TrackingEvent):
    """The node's content of the message cannot be relied on: ``reason`` says why."""

    event_id: ClassVar[str] = "HADAMAGE"
    source: ClassVar[str] = "REDUNDANCY"
    reason: str

    def more(self) -> Columns:
        return {"source-context": self.reason}

    def custom(self) -> dict[str, str]:
        return {"Damaged": "content"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HaRestore(TrackingEvent):
    """A good copy replaced a damaged one. ``giver`` gave it to ``taker``; both log this."""

    event_id: ClassVar[str] = "HARESTORE"
    source: ClassVar[str] = "REDUNDANCY"
    digested: ClassVar[bool] = True
    giver: ServerName
    taker: ServerName

    def more(self) -> Columns:
        return {"client-hostname": self.giver, "server-hostname": self.taker}


@dataclass(frozen=True, slots=True, kw_only=True)
class Promote(TrackingEvent):
    """A shadow copy was promoted to primary message. ``reason`` says what happened to the former owner."""

    event_id: ClassVar[str] = "RESUBMIT"
    source: ClassVar[str] = "REDUNDANCY"
    former_owner: ServerName
    former_database: str
    reason: str

    def more(self) -> Columns:
        return {
            "source-context": self.reason,
            "client-hostname": self.former_owner,
            "reference": self.former_database,
        }

    def custom(self) -> dict[str, str]:
        return {"Owner": self.former_owner, "OwnerDb": self.former_database, "Reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resubmit(TrackingEvent):
    """A message was made of one in Safety Net, for a resubmit request. ``owner`` owned that one."""

    event_id: ClassVar[str] = "RESUBMIT"
    digested: ClassVar[bool] = True
    source: ClassVar[str] = "SAFETYNET"
    original: MessageId
    request: RequestId
    owner: ServerName

    def more(self) -> Columns:
        return {"source-context": f"request {self.request}", "reference": self.original}

    def custom(self) -> dict[str, str]:
        return {"Request": self.request, "Owner": self.owner}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer(TrackingEvent):
    """Ownership moved to another member, by its promotion or by a handover."""

    event_id: ClassVar[str] = "TRANSFER"
    source: ClassVar[str] = "REDUNDANCY"
    new_owner: ServerName

    def more(self) -> Columns:
        return {"source-context": "taken", "server-hostname": self.new_owner}


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(TrackingEvent):
    """A next hop inside the boundary took responsibility. ``reply`` is its reply."""

    event_id: ClassVar[str] = "SEND"
    digested: ClassVar[bool] = True
    server: str
    reply: str

    def more(self) -> Columns:
        about = self.recipients or self.copy.recipients
        return {
            "server-hostname": self.server,
            "source-context": self.reply,
            "recipient-status": listed(["250 2.1.5 Recipient OK"] * len(about)),
        }

    def custom(self) -> dict[str, str]:
        in_doubt = "true" if self.copy.confirmation == "in_doubt" else ""
        return {"Fork": fork(self.recipients), "InDoubt": in_doubt}


@dataclass(frozen=True, slots=True, kw_only=True)
class SendExternal(Send):
    """A next hop outside the boundary took responsibility: Safety Net never resubmits the message."""

    event_id: ClassVar[str] = "SENDEXTERNAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver(Send):
    """A mailbox server stored the message (LMTP)."""

    event_id: ClassVar[str] = "DELIVER"
    source: ClassVar[str] = "STOREDRIVER"


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateDeliver(Deliver):
    """The mailbox server already had the message and dropped this one."""

    event_id: ClassVar[str] = "DUPLICATEDELIVER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defer(TrackingEvent):
    """An attempt failed for now. ``in_doubt``: no answer to the final dot can be read."""

    event_id: ClassVar[str] = "DEFER"
    server: str
    reply: str
    in_doubt: str = ""  # '' or 'true'

    def more(self) -> Columns:
        return {"server-hostname": self.server, "source-context": self.reply}

    def custom(self) -> dict[str, str]:
        return {"Fork": fork(self.recipients), "InDoubt": self.in_doubt}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail(TrackingEvent):
    """Recipients failed; a DSN tells the sender, unless no DSN is due."""

    event_id: ClassVar[str] = "FAIL"
    digested: ClassVar[bool] = True
    source: ClassVar[str] = "QUEUE"
    server: str
    reply: str
    report: MessageId | None

    def more(self) -> Columns:
        about = self.recipients or self.copy.recipients
        when = timestamp(self.at)
        status = f"[{{LED={self.reply}}};{{MSG=}};{{FQDN={self.server}}};{{IP=}};{{LRT={when}}}]"
        return {
            "server-hostname": self.server,
            "source-context": self.reply,
            "recipient-status": listed([status] * len(about)),
            "reference": self.report or "",
        }

    def custom(self) -> dict[str, str]:
        if self.report or not self.copy.envelope.sender:
            return {}
        about = self.recipients or self.copy.recipients
        return {"NoReport": numbers(one for one in about if one.notify and "FAILURE" not in one.notify)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dsn(TrackingEvent):
    """A delivery status notification was made and queued. ``reports_on`` is the message it is about."""

    event_id: ClassVar[str] = "DSN"
    digested: ClassVar[bool] = True
    source: ClassVar[str] = "DSN"
    reports_on: MessageId

    def more(self) -> Columns:
        return {"reference": self.reports_on}


@dataclass(frozen=True, slots=True, kw_only=True)
class Journaled(TrackingEvent):
    """A journal copy of the message ``original`` was made and queued."""

    event_id: ClassVar[str] = "RECEIVE"
    digested: ClassVar[bool] = True
    source: ClassVar[str] = "AGENT"
    original: MessageId

    def more(self) -> Columns:
        return {"reference": self.original}


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside(TrackingEvent):
    """A message is set aside for the operator: no member knows its fate, or has a good copy of it."""

    event_id: ClassVar[str] = "SUSPEND"
    source: ClassVar[str] = "QUEUE"
    reason: str

    def more(self) -> Columns:
        return {"source-context": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(TrackingEvent):
    """An operator released a message that was set aside; it is sent once there is a good copy of it."""

    event_id: ClassVar[str] = "RESUME"
    source: ClassVar[str] = "ADMIN"
    operator: str = ""

    def custom(self) -> dict[str, str]:
        return {"Operator": self.operator}


class OfRows(Enum):
    """The events of a message whose rows cannot be believed: event-id and source.

    DROPPED: an operator gave it up; its sender is not known, so nobody is told.
    """

    DAMAGED = (HaDamage.event_id, HaDamage.source)
    SET_ASIDE = (SetAside.event_id, SetAside.source)
    RESUMED = (Resume.event_id, Resume.source)
    DROPPED = ("DROP", "ADMIN")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsDamaged:
    """HADAMAGE, SUSPEND, RESUME or DROP of a message whose rows cannot be believed: only its id is known."""

    at: datetime
    message_id: MessageId
    reason: str = ""
    told: OfRows = OfRows.DAMAGED
    operator: str = ""

    def columns(self) -> Columns:
        """The row, keyed by column name."""
        event_id, source = self.told.value
        by = {} if self.told is OfRows.DAMAGED else {"Operator": self.operator}  # nobody orders damage
        row = {
            "date-time": timestamp(self.at),
            "source": source,
            "event-id": event_id,
            "network-message-id": self.message_id,
            "source-context": self.reason,
            "custom-data": entries({"Damaged": "rows", **by}),
        }
        return {column: text for column, text in row.items() if text}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(TrackingEvent):
    """A row of a snapshot: this node still has that message in its queue or a shadow queue."""

    event_id: ClassVar[str] = "LOAD"
    source: ClassVar[str] = "BOOTLOADER"
    snapshot: str

    def custom(self) -> dict[str, str]:
        return {"Snapshot": self.snapshot, "Role": self.copy.role}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolve(TrackingEvent):
    """A recipient was rewritten: the sender gave it the address ``original``."""

    event_id: ClassVar[str] = "RESOLVE"
    source: ClassVar[str] = "ROUTING"
    original: str

    def more(self) -> Columns:
        return {"related-recipient-address": listed([self.original])}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expand(TrackingEvent):
    """A distribution list was expanded: its members are the recipients of the message ``made``."""

    event_id: ClassVar[str] = "EXPAND"
    source: ClassVar[str] = "ROUTING"
    digested: ClassVar[bool] = True
    made: MessageId
    reply: str

    def more(self) -> Columns:
        before = listed(one.address for one in self.recipients)
        return {
            "source-context": self.reply,
            "reference": self.made,
            "related-recipient-address": before,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ToMembers(TrackingEvent):
    """The message to the members of a list was made of the message ``original``, and queued."""

    event_id: ClassVar[str] = "RECEIVE"
    digested: ClassVar[bool] = True
    source: ClassVar[str] = "ROUTING"
    original: MessageId

    def more(self) -> Columns:
        return {"reference": self.original}


@dataclass(frozen=True, slots=True, kw_only=True)
class HopDiscard(TrackingEvent):
    """Recipients left the shadow queue of a hop beyond our boundary.

    ``reason``: ExplicitlyDiscarded (the hop says that they are delivered), Expired (too old).
    """

    event_id: ClassVar[str] = "HADISCARD"
    digested: ClassVar[bool] = True
    source: ClassVar[str] = "REDUNDANCY"
    hop: ServerName
    reason: str

    def more(self) -> Columns:
        return {"source-context": f"{self.reason};{self.copy.id}", "server-hostname": self.hop}


@dataclass(frozen=True, slots=True, kw_only=True)
class SentAgain(TrackingEvent):
    """A message was made of one that a hop beyond our boundary took, and that it has lost or cannot be asked
    about. ``reason`` says what happened to the hop.
    """

    event_id: ClassVar[str] = "RESUBMIT"
    digested: ClassVar[bool] = True
    source: ClassVar[str] = "REDUNDANCY"
    original: MessageId
    hop: ServerName
    hop_database: DatabaseId
    reason: str

    def more(self) -> Columns:
        return {
            "source-context": self.reason,
            "server-hostname": self.hop,
            "reference": f"{self.original}/{self.hop_database}",
        }

    def custom(self) -> dict[str, str]:
        return {"Hop": self.hop, "HopDb": self.hop_database, "Reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueActed:
    """RETRY, SUSPEND or RESUME of a queue, on the node that does it: who wants it, why, and until when.

    ``changed_by``: the node where the operator gave the order.
    """

    at: datetime
    event_id: str
    queue: NextHop
    by: By
    changed_by: ServerName
    until: datetime | None = None

    def columns(self) -> Columns:
        """The row, keyed by column name."""
        custom = {
            "Queue": self.queue,
            "Operator": self.by.operator,
            "Reason": self.by.reason,
            "Job": self.by.job,
            "Until": timestamp(self.until) if self.until else "",
            "ChangedBy": self.changed_by,
        }
        return {
            "date-time": timestamp(self.at),
            "source": "ADMIN",
            "event-id": self.event_id,
            "source-context": self.queue,
            "custom-data": entries(custom),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureChanged:
    """BACKPRESSURE: the level of a resource changed, and with it what the node refuses."""

    at: datetime
    resource: Resource
    before: PressureLevel
    level: PressureLevel
    reading: float

    def columns(self) -> Columns:
        """The row, keyed by column name."""
        level, before = self.level.name.lower(), self.before.name.lower()
        custom = {
            "Resource": self.resource.value,
            "Level": level,
            "Before": before,
            "Reading": f"{self.reading:.1f}",
        }
        return {
            "date-time": timestamp(self.at),
            "source": "QUEUE",
            "event-id": "BACKPRESSURE",
            "source-context": f"{self.resource.value}: {before} to {level}",
            "custom-data": entries(custom),
        }


def recorded(record: Suspension, now: datetime) -> QueueActed:
    """This node learnt that a queue is suspended, or resumed."""
    return QueueActed(
        at=now,
        event_id="SUSPEND" if record.suspended else "RESUME",
        queue=record.next_hop,
        by=By(record.operator, record.reason, record.id),
        changed_by=record.changed_by,
        until=record.until if record.suspended else None,
    )


def retried(job: Job, queue: NextHop, now: datetime) -> QueueActed:
    """This node begins to try all mail of a queue now."""
    by = By(job.operator, job.reason, job.id)
    return QueueActed(at=now, event_id="RETRY", queue=queue, by=by, changed_by=job.made_by)


def signed(by: By) -> dict[str, str]:
    """The entries of custom-data that say who did it, and why."""
    return {"Operator": by.operator, "Reason": by.reason, "Job": by.job}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRetry(TrackingEvent):
    """An operator wants an attempt now: recipients of one next hop are due at once."""

    event_id: ClassVar[str] = "RETRY"
    source: ClassVar[str] = "ADMIN"
    by: By

    def more(self) -> Columns:
        return {"source-context": self.by.reason}

    def custom(self) -> dict[str, str]:
        return {"Fork": fork(self.recipients)} | signed(self.by)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSuspend(OperatorRetry):
    """The recipients are suspended until that time."""

    event_id: ClassVar[str] = "SUSPEND"
    until: datetime

    def custom(self) -> dict[str, str]:
        until = "" if self.until == FOREVER else timestamp(self.until)
        return {"Fork": fork(self.recipients), "Until": until} | signed(self.by)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorResume(OperatorRetry):
    """The recipients are not suspended any more; the age of the message begins anew."""

    event_id: ClassVar[str] = "RESUME"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRemove(OperatorRetry):
    """The recipients are removed: nobody delivers to them any more. ``report``: the DSN that says so."""

    event_id: ClassVar[str] = "REMOVE"
    digested: ClassVar[bool] = True
    report: MessageId | None

    def more(self) -> Columns:
        return {"source-context": self.by.reason, "reference": self.report or ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFail(Fail):
    """An operator bounced the message: the recipients failed."""

    source: ClassVar[str] = "ADMIN"
    by: By

    def custom(self) -> dict[str, str]:
        return {"Fork": fork(self.recipients)} | Fail.custom(self) | signed(self.by)


Tracked: TypeAlias = TrackingEvent | SnapshotEnd | RowsDamaged | QueueActed | PressureChanged
"""All that becomes a row."""
