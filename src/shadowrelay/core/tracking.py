"""Every tracking event, one dataclass each, with the columns it fills in the message tracking log.

Names and meanings: docs/reference/tracking-log.md, where each of them has a section.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum, StrEnum
from typing import ClassVar

from shadowrelay.core.identifiers import Mark, MessageId, ServerName
from shadowrelay.core.messages import Holder
from shadowrelay.core.tracking_row import Columns, TrackingEvent, entries, fork, listed, timestamp
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
    redundant: str = ""  # '' or 'Failed', as Exchange writes S:Replication; or arrivals.UNKNOWN

    def more(self) -> Columns:
        return {
            "client-ip": self.client_ip,
            "client-hostname": self.client_hostname,
            "connector-id": self.connector,
            "source-context": self.session,
            "original-client-ip": self.client_ip,
        }

    def custom(self) -> dict[str, str]:
        return {"Replication": self.redundant, "Login": self.login}


@dataclass(frozen=True, slots=True, kw_only=True)
class HaRedirect(TrackingEvent):
    """A shadow server holds a copy. ``attempts``: ``<shadow>=<its reply>``, the last one took it.

    ``holder``: who that is; its mark is at or after the commit of the copy, so our log is a witness of how
    far the holder's log has to reach.
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
    """No shadow server took a copy, and policy accepted the message all the same: it is exposed."""

    event_id: ClassVar[str] = "HAREDIRECTFAIL"
    attempts: tuple[str, ...] = ()

    def more(self) -> Columns:
        return {"source-context": listed(self.attempts) or "No suitable shadow servers"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HaReceive(TrackingEvent):
    """On the shadow server: a copy is held for the primary server (``reason`` says why, if not offered).

    ``mark``: the owner's when it offered the copy, so that our log is a witness of how far the owner's has to
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
    """

    event_id: ClassVar[str] = "HADISCARD"
    digested: ClassVar[bool] = True
    reason: str

    def more(self) -> Columns:
        return {"source-context": f"{self.reason};{self.copy.id}", "client-hostname": self.copy.owner}


@dataclass(frozen=True, slots=True, kw_only=True)
class HaDamage(TrackingEvent):
    """What this node has of the message cannot be relied on: ``reason`` says what of it, and why."""

    event_id: ClassVar[str] = "HADAMAGE"
    source: ClassVar[str] = "REDUNDANCY"
    reason: str

    def more(self) -> Columns:
        return {"source-context": self.reason}

    def custom(self) -> dict[str, str]:
        return {"Damaged": "content"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HaRestore(TrackingEvent):
    """A good copy took the place of a damaged one. ``giver`` gave it, ``taker`` has it; both log it."""

    event_id: ClassVar[str] = "HARESTORE"
    source: ClassVar[str] = "REDUNDANCY"
    digested: ClassVar[bool] = True
    giver: ServerName
    taker: ServerName

    def more(self) -> Columns:
        return {"client-hostname": self.giver, "server-hostname": self.taker}


@dataclass(frozen=True, slots=True, kw_only=True)
class Promote(TrackingEvent):
    """A shadow copy became the primary one. ``reason`` says what befell the former owner."""

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
class Transfer(TrackingEvent):
    """Ownership moved to another member, which promoted its copy while we were away."""

    event_id: ClassVar[str] = "TRANSFER"
    source: ClassVar[str] = "REDUNDANCY"
    new_owner: ServerName

    def more(self) -> Columns:
        return {"source-context": "taken", "server-hostname": self.new_owner}


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(TrackingEvent):
    """The next hop took responsibility; inside the boundary. ``reply`` is its reply."""

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
    """As SEND, across the boundary: Safety Net never resubmits it."""

    event_id: ClassVar[str] = "SENDEXTERNAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver(Send):
    """A mailbox server stored it (LMTP)."""

    event_id: ClassVar[str] = "DELIVER"
    source: ClassVar[str] = "STOREDRIVER"


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateDeliver(Deliver):
    """The mailbox server had it already and dropped this one."""

    event_id: ClassVar[str] = "DUPLICATEDELIVER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defer(TrackingEvent):
    """An attempt failed for now. ``in_doubt``: the connection broke after the final dot."""

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
    """Recipients are given up; a DSN tells the sender unless there is none to tell."""

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
class SetAside(TrackingEvent):
    """A message is set aside for the operator: nobody knows its fate, or has a good copy of it."""

    event_id: ClassVar[str] = "SUSPEND"
    source: ClassVar[str] = "QUEUE"
    reason: str

    def more(self) -> Columns:
        return {"source-context": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(TrackingEvent):
    """An operator lets a message go out that was set aside, once there is a good copy of it."""

    event_id: ClassVar[str] = "RESUME"
    source: ClassVar[str] = "ADMIN"


class Told(Enum):
    """What is told of a message whose rows cannot be believed: event-id and source. DROP: an operator gave it
    up, and nobody knows whom to tell.
    """

    DAMAGED = (HaDamage.event_id, HaDamage.source)
    SET_ASIDE = (SetAside.event_id, SetAside.source)
    RESUMED = (Resume.event_id, Resume.source)
    DROPPED = ("DROP", "ADMIN")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsDamaged:
    """As HADAMAGE, and what follows, of rows of which nothing can be believed but whose they are: the
    message's id.
    """

    at: datetime
    message_id: MessageId
    reason: str = ""
    told: Told = Told.DAMAGED

    def columns(self) -> Columns:
        """The row, keyed by column name."""
        event_id, source = self.told.value
        row = {
            "date-time": timestamp(self.at),
            "source": source,
            "event-id": event_id,
            "network-message-id": self.message_id,
            "source-context": self.reason,
            "custom-data": entries({"Damaged": "rows"}),
        }
        return {column: text for column, text in row.items() if text}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(TrackingEvent):
    """A row of a snapshot: this node still holds that message (queue or shadow queue)."""

    event_id: ClassVar[str] = "LOAD"
    source: ClassVar[str] = "BOOTLOADER"
    snapshot: str

    def custom(self) -> dict[str, str]:
        return {"Snapshot": self.snapshot, "Role": self.copy.role}


class Taken(StrEnum):
    """When a snapshot was taken. After that of STOP the log goes on only when the node is started again."""

    START = "start"
    HOURLY = "hourly"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotEnd:
    """Closes a snapshot with the count of its LOAD rows. It is about no message.

    ``among``: they are among so many rows before this one, more than ``count`` where it was taken in parts.
    """

    at: datetime
    snapshot: str
    count: int
    among: int
    taken: Taken

    def columns(self) -> Columns:
        """The row, keyed by column name."""
        return {
            "date-time": timestamp(self.at),
            "source": "BOOTLOADER",
            "event-id": "LOAD",
            "custom-data": entries(
                {
                    "Snapshot": self.snapshot,
                    "Count": str(self.count),
                    **({"Among": str(self.among)} if self.among != self.count else {}),
                    "Taken": self.taken,
                }
            ),
        }
