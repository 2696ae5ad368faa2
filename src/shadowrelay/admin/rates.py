"""Counts of the last minutes, once a second and in memory: what the charts of the console draw."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import cast

from shadowrelay.shown.status import RatesLook

SECONDS = 300
"""How far back the charts reach."""


class Flow(StrEnum):
    """What is counted, by the event-ids of the tracking log."""

    ACCEPTED = "accepted"
    DELIVERED = "delivered"
    DEFERRED = "deferred"
    FAILED = "failed"


_EVENTS = {
    Flow.ACCEPTED: ("RECEIVE",),
    Flow.DELIVERED: ("SEND", "DELIVER", "SENDEXTERNAL"),
    Flow.DEFERRED: ("DEFER",),
    Flow.FAILED: ("FAIL",),
}


@dataclass(slots=True)
class Rates:
    """Those of one process. ``tracked``: how many events of each id there were since the start."""

    tracked: Callable[[], Mapping[str, int]]
    _last: dict[Flow, int] | None = None
    _seen: dict[Flow, deque[int]] = field(
        default_factory=lambda: {flow: deque(maxlen=SECONDS) for flow in Flow}
    )

    def sample(self) -> None:
        """Note what came since the last call; to be called once a second."""
        now = self.tracked()
        totals = {flow: sum(now.get(event, 0) for event in events) for flow, events in _EVENTS.items()}
        if self._last is not None:
            for flow, total in totals.items():
                self._seen[flow].append(total - self._last[flow])
        self._last = totals

    def seen(self) -> RatesLook:
        """Events a second, oldest first; seconds before the start are missing."""
        return cast(RatesLook, {flow.value: list(seen) for flow, seen in self._seen.items()})

    async def run(self) -> None:
        """Sample until cancelled."""
        loop = asyncio.get_running_loop()
        at = loop.time()
        while True:
            self.sample()
            at = max(at + 1.0, loop.time())  # a node that was frozen makes up for nothing
            await asyncio.sleep(at - loop.time())
