"""What this process knows of its filters: whether they answer, how long they take, what was taken without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from shadowrelay.core.tracking_row import timestamp
from shadowrelay.measures import Histogram


@dataclass(slots=True)
class FilterWatch:
    """One filter of a connector, since the start. ``failures``: messages that it failed; ``unfiltered``: of
    these, those that were taken and are durable. ``seconds``: what it took of each transaction. It is down
    from the first failure on until it decides on a message. Only mail asks a filter: without any, this
    process knows no more than that it failed at ``asked_at``.
    """

    connector: str
    name: str
    clock: Callable[[], datetime]
    failures: int = 0
    unfiltered: int = 0
    seconds: Histogram = field(default_factory=Histogram)
    down_since: datetime | None = None
    asked_at: datetime | None = None
    _error: str = ""
    _taken: bool = False

    def failed(self, error: str, *, taken: bool) -> None:
        """It failed a message, which may be taken without it."""
        self.failures += 1
        self.asked_at = self.clock()
        self.down_since = self.down_since or self.asked_at
        self._error, self._taken = error, taken

    def decided(self) -> None:
        self.down_since = None

    @property
    def told(self) -> str:
        """That it is down, in words; empty if it is not."""
        if self.down_since is None or self.asked_at is None:
            return ""
        meanwhile = "taken without it" if self._taken else "put off"
        since, asked = timestamp(self.down_since), timestamp(self.asked_at)
        named = f"filter {self.name} of {self.connector}"
        return f"{named} is down since {since}, asked last at {asked}, mail is {meanwhile}: {self._error}"
