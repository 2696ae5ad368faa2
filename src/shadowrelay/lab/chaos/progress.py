"""What a run of chaos is doing now: a bar on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from shadowrelay.lab.chaos.history import History, Outcome

_EVERY = 10.0


class Watching:
    """Told what happens; ``refresh`` is cheap and called often."""

    def __init__(self, progress: Progress, history: History, seconds: float) -> None:
        self._progress, self._history, self._seconds = progress, history, seconds
        self._task = progress.add_task("starting", total=seconds)
        self._told = self._began = time.monotonic()
        self._doing = ""
        self._counted = self._acknowledged = 0

    def doing(self, text: str) -> None:
        self._doing = text
        self.refresh()

    def refresh(self) -> None:
        attempts = self._history.attempts
        while self._counted < len(attempts):
            self._acknowledged += attempts[self._counted].outcome is Outcome.ACKNOWLEDGED
            self._counted += 1
        text = (
            f"{self._acknowledged} acknowledged, {len(self._history.arrivals)} delivered, "
            f"{len(self._history.faults)} faults | {self._doing}"
        )
        elapsed = time.monotonic() - self._began
        self._progress.update(self._task, description=text, completed=min(elapsed, self._seconds))
        if not self._progress.console.is_terminal and time.monotonic() - self._told >= _EVERY:
            self._told = time.monotonic()
            self._progress.console.print(f"{elapsed:.0f} s: {text}", highlight=False, soft_wrap=True)


@contextmanager
def watching(history: History, seconds: float) -> Iterator[Watching]:
    console = Console(stderr=True)
    columns = (BarColumn(bar_width=20), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Watching(progress, history, seconds)
