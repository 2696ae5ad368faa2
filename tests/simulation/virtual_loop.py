"""An event loop whose time is virtual: it waits for nothing, and the same work gives the same history.

Nothing outside the loop can wake it: no thread, no socket, no file. The product's stages run on it as they
are; what they would wait for outside (the database's thread, the network) is made of timers (``product.py``).
So it is forty lines of our own: a library for this would patch a selector that this loop does not have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any


class Stuck(Exception):
    """Everything waits, and nothing will ever happen."""


class VirtualLoop(asyncio.BaseEventLoop):
    """``time`` moves when nothing is ready, to the first timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._clock_resolution = 1e-9
        self._selector = self

    def time(self) -> float:
        return self.now

    def select(self, timeout: float | None) -> Sequence[object]:
        """What ``_run_once`` asks its selector: here nothing ever comes, and no time is spent."""
        if timeout is None:
            raise Stuck
        if timeout > 0:
            timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
            self.now = max(self.now, timers[0].when())
        return ()

    def _process_events(self, events: Sequence[object]) -> None:
        del events

    def _write_to_self(self) -> None:
        """There is nothing to wake."""

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        raise RuntimeError(f"{func} would run in a thread, whose end no virtual clock knows")
