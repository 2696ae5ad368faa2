"""The tracking events of aliases and distribution lists (docs/reference/tracking-log.md)."""

from __future__ import annotations

from typing import ClassVar

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.tracking_row import Columns, TrackingEvent, listed
from shadowrelay.core.values import dataclass


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
