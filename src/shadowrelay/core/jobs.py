"""Jobs: what an operator wants done to messages in the queues, and how far each node is with it.

A job is on every member of the boundary, as a resubmit request is. Each node does it to the messages that it
owns. So a job outlives the node that took it, and reaches a member that was away.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar

from shadowrelay.core.identifiers import FIRST, MessageId, NextHop, RequestId, ServerName
from shadowrelay.core.records import Record, RecordPart
from shadowrelay.core.values import dataclass


class Verb(StrEnum):
    """What can be done to messages in a queue. Each has this one name everywhere.

    RETRY: try them now. SUSPEND: do not deliver them until RESUME. REMOVE: never deliver them. BOUNCE: they
    fail, and their senders are told.
    """

    RETRY = "retry"
    SUSPEND = "suspend"
    RESUME = "resume"
    REMOVE = "remove"
    BOUNCE = "bounce"


PAST = {
    Verb.RETRY: "tried",
    Verb.SUSPEND: "suspended",
    Verb.RESUME: "resumed",
    Verb.REMOVE: "removed",
    Verb.BOUNCE: "bounced",
}
"""What was done, as a word: a message that was tried may wait again, so it is not done."""


class JobState(StrEnum):
    """What an operator wants of a job. STOPPED is final: what was done stays done."""

    RUNNING = "running"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which unsettled recipients a verb is about; all given conditions have to hold.

    ``ids``: ids of messages. ``queue``: a next hop. ``sender`` and ``recipient``: an address, or
    ``*@DOMAIN``; lower case. ``domain``: of the recipient. ``subject`` and ``error`` (the last reply): a part
    of it, without regard to case. ``suspended``: only those that are, or are not. ``older`` and ``younger``:
    the age of the message when the job was made. ``larger`` and ``smaller``: octets.
    """

    ids: tuple[MessageId, ...] = ()
    queue: NextHop | None = None
    sender: str | None = None
    recipient: str | None = None
    domain: str | None = None
    subject: str | None = None
    error: str | None = None
    suspended: bool | None = None
    older: timedelta | None = None
    younger: timedelta | None = None
    larger: int | None = None
    smaller: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Record):
    """A verb, and the messages it is about, as every member stores it.

    It is about messages received before ``made_at``. ``until``: when a suspension ends by itself.
    ``with_report``: the senders of removed messages are told.
    """

    kind: ClassVar[str] = "job"

    verb: Verb
    filter: Filter
    made_by: ServerName
    made_at: datetime
    until: datetime | None = None
    with_report: bool = False
    state: JobState = JobState.RUNNING

    @property
    def final(self) -> bool:
        return self.state is JobState.STOPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress(RecordPart):
    """How far ``node`` is with a job, in its own messages.

    ``after``: it has gone through the ids up to this one. ``did``: messages to which the verb was done.
    ``late``: messages that were settled before their turn. ``waiting``: messages that a delivery attempt has
    in hand now. ``done``: it went through all that it has. ``pending``: messages to which the verb was done,
    and of which not every member that may hold a copy has acknowledged it yet. ``closed``: every other member
    was done with nothing pending, and then this node looked once more at what it took over meanwhile.
    ``step`` (``next_revision``) grows with each change: of two reports the one with the higher step is the
    newer one. ``since``: when this node began to do the verb, by its own clock.
    """

    kind: ClassVar[type[Record]] = Job

    job: RequestId
    after: MessageId = FIRST
    did: int = 0
    late: int = 0
    waiting: int = 0
    pending: int = 0
    done: bool = False
    closed: bool = False
    step: int = 0
    since: datetime | None = None

    @property
    def key(self) -> tuple[RequestId, ServerName, str]:
        return self.job, self.node, ""
