"""Shows progress on standard error: a bar on a terminal, else a line every ten seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

EVERY = 10.0
"""Seconds between two lines where there is no bar."""


class Bar:
    """Shows ``done`` of ``total`` steps (or seconds), and what is being done."""

    def __init__(self, progress: Progress, label: str, total: float) -> None:
        self._progress, self._label = progress, label
        self._task = progress.add_task(label, total=total, doing="")
        self._began = self._said = time.monotonic()
        self.total, self.done = total, 0.0

    def expect(self, more: float) -> None:
        """Add ``more`` steps to the total."""
        self.total += more
        self._progress.update(self._task, total=self.total)

    def step(self, doing: str = "") -> None:
        """Count one more step as done."""
        self.tell(doing, self.done + 1)

    @contextmanager
    def during(self, doing: str) -> Iterator[None]:
        """Show one step while it runs, and count it."""
        self.tell(doing)
        yield
        self.step(doing)

    def tell(self, doing: str, done: float | None = None) -> None:
        """Show what is being done, and how far it is. Cheap: call it often."""
        self.done = self.done if done is None else min(done, self.total)
        self._progress.update(self._task, completed=self.done, doing=doing)
        now = time.monotonic()
        if not self._progress.console.is_terminal and now - self._said >= EVERY:
            self._said = now
            self.say(f"{self.done:.0f} of {self.total:.0f} in {now - self._began:.0f} s {doing}".rstrip())

    def say(self, text: str) -> None:
        """Print a line that stays, above the bar."""
        line = f"{self._label}: {text}"
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def bar(label: str, total: float = 0) -> Iterator[Bar]:
    """Show a bar until the block ends."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[doing]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Bar(progress, label, total)
