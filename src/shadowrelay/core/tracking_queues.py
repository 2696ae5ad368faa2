"""The tracking event of an act on a queue: it is about no single message."""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.tracking_row import Columns, entries, timestamp
from shadowrelay.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueActed:
    """SUSPEND or RESUME of a queue, on the node that learnt of it: who did it, why, and until when."""

    at: datetime
    record: Suspension

    def columns(self) -> Columns:
        """The row, keyed by column name."""
        record = self.record
        custom = {
            "Queue": record.next_hop,
            "Operator": record.operator,
            "Reason": record.reason,
            "Job": record.id,
            "Until": timestamp(record.until) if record.suspended and record.until else "",
            "ChangedBy": record.changed_by,
        }
        return {
            "date-time": timestamp(self.at),
            "source": "ADMIN",
            "event-id": "SUSPEND" if record.suspended else "RESUME",
            "source-context": record.next_hop,
            "custom-data": entries(custom),
        }
