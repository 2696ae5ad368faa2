"""Suspended queues: no node of the boundary delivers to that next hop until an operator resumes the queue."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.records import Record
from shadowrelay.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension(Record):
    """The record of a queue that was suspended, as every member stores it. ``id``: of its last change.

    ``suspended`` is False once the queue is resumed. ``until``: it ends by itself then. ``spans``: earlier
    times in which the queue was suspended, oldest first; a message does not age in them.
    """

    kind: ClassVar[str] = "suspension"

    next_hop: NextHop
    suspended: bool
    until: datetime | None = None
    spans: tuple[tuple[datetime, datetime], ...] = ()

    @property
    def key(self) -> str:
        return self.next_hop

    def in_force(self, now: datetime) -> bool:
        """Is the queue suspended at that time?"""
        return self.suspended and (self.until is None or now < self.until)
