"""Shows what a run of chaos is doing now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from shadowlab.chaos.history import History, SendOutcome
from shadowrelay.cli.progress import Bar, bar


class Watching:
    """Shows what is being done. ``refresh`` is cheap: call it often."""

    def __init__(self, shown: Bar, history: History) -> None:
        self._shown, self._history = shown, history
        self._began = time.monotonic()
        self._doing = ""
        self._counted = self._acknowledged = 0

    def doing(self, text: str) -> None:
        self._doing = text
        self.refresh()

    def refresh(self) -> None:
        attempts = self._history.attempts
        while self._counted < len(attempts):
            self._acknowledged += attempts[self._counted].outcome is SendOutcome.ACKNOWLEDGED
            self._counted += 1
        text = (
            f"{self._acknowledged} acknowledged, {len(self._history.arrivals)} delivered, "
            f"{len(self._history.faults)} faults | {self._doing}"
        )
        self._shown.tell(text, time.monotonic() - self._began)


@contextmanager
def watching(history: History, seconds: float) -> Iterator[Watching]:
    with bar("chaos", seconds) as shown:
        yield Watching(shown, history)
