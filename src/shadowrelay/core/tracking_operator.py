"""The tracking events of operators' acts on messages in a queue (docs/reference/tracking-log.md).

Custom-data names the operator, the reason and the job. So a row of a message that was set aside, which has no
job, is told apart from a suspension.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import FOREVER
from shadowrelay.core.operating import By
from shadowrelay.core.tracking import Fail
from shadowrelay.core.tracking_row import Columns, TrackingEvent, fork, timestamp
from shadowrelay.core.values import dataclass


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
