"""Remembers how far a snapshot of the tracking log has come (``database.snapshot``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from shadowrelay.core.decisions import SaveCopy, Write
from shadowrelay.core.identifiers import FIRST, MessageId
from shadowrelay.core.messages import Copy, Stage
from shadowrelay.core.values import dataclass


@dataclass(slots=True)
class Listing:
    """A snapshot that began at the sequence ``begun`` and has listed the ids up to ``place``."""

    id: str
    begun: int
    at: datetime
    place: MessageId = FIRST
    count: int = 0

    def newcomers(self, writes: Iterable[Write]) -> Iterator[Copy]:
        """Copies that enter a queue at an id that was passed already."""
        for write in writes:
            if isinstance(write, SaveCopy) and write.after.id <= self.place:
                before = write.before
                if _listed(write.after) and not (before and _listed(before)):
                    yield write.after


def _listed(copy: Copy) -> bool:
    """Whether the copy is queued or set aside."""
    return copy.stage not in {Stage.ARRIVING, Stage.SAFETY_NET}
