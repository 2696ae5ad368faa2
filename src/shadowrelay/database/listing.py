"""A snapshot of the tracking log that is being taken in parts, see ``database.snapshot``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from shadowrelay.core.decisions import SaveCopy, Write
from shadowrelay.core.identifiers import FIRST, MessageId
from shadowrelay.core.messages import Copy, Stage
from shadowrelay.core.values import dataclass


@dataclass(slots=True)
class Listing:
    """Begun at that sequence, and come to the id ``place``."""

    id: str
    begun: int
    at: datetime
    place: MessageId = FIRST
    count: int = 0

    def newcomers(self, writes: Iterable[Write]) -> Iterator[Copy]:
        """What comes into a queue of which this has passed the place."""
        for write in writes:
            if isinstance(write, SaveCopy) and write.after.id <= self.place:
                before = write.before
                if _listed(write.after) and not (before and _listed(before)):
                    yield write.after


def _listed(copy: Copy) -> bool:
    """Is it in a queue, or set aside?"""
    return copy.stage not in {Stage.ARRIVING, Stage.SAFETY_NET}
