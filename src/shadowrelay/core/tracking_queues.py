"""The tracking event of an act on a queue: it is about no single message."""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.identifiers import NextHop, ServerName
from shadowrelay.core.jobs import Job
from shadowrelay.core.operating import By
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.tracking_row import Columns, entries, timestamp
from shadowrelay.core.values import dataclass


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
