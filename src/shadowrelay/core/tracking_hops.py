"""The tracking events of shadow queues of hops beyond the boundary (docs/reference/tracking-log.md)."""

from __future__ import annotations

from typing import ClassVar

from shadowrelay.core.identifiers import DatabaseId, MessageId, ServerName
from shadowrelay.core.tracking_row import Columns, TrackingEvent
from shadowrelay.core.values import dataclass


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
