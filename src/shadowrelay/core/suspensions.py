"""Suspended queues: no node of the boundary delivers to that next hop until an operator resumes the queue."""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.identifiers import NextHop, RequestId, ServerName
from shadowrelay.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """The record of a queue that was suspended, as every member stores it.

    ``suspended`` is False once the queue is resumed. ``until``: it ends by itself then. ``spans``: earlier
    times in which the queue was suspended, oldest first; a message does not age in them. ``revision``
    (``next_revision``) grows with each change; of two changes with the same revision, the later one counts.
    """

    id: RequestId  # of the last change: the job of the act that gives it
    next_hop: NextHop
    suspended: bool
    until: datetime | None = None
    spans: tuple[tuple[datetime, datetime], ...] = ()
    revision: int = 1
    operator: str
    reason: str
    changed_by: ServerName
    changed_at: datetime

    def in_force(self, now: datetime) -> bool:
        """Is the queue suspended at that time?"""
        return self.suspended and (self.until is None or now < self.until)


@dataclass(frozen=True, slots=True)
class ForgetSuspension:
    """Forget the record of a queue."""

    next_hop: NextHop
