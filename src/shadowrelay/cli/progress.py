"""How far something long is: a bar on a terminal, a line every ten seconds elsewhere. On standard error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

EVERY = 10.0
"""Seconds between two lines where nobody watches a bar."""


class Bar:
    """``done`` of ``total`` steps (or seconds); whoever works says what is being done."""

    def __init__(self, progress: Progress, label: str, total: float) -> None:
        self._progress, self._label = progress, label
        self._task = progress.add_task(label, total=total, doing="")
        self._began = self._said = time.monotonic()
        self.total, self.done = total, 0.0

    def expect(self, more: float) -> None:
        """So many more steps than was known."""
        self.total += more
        self._progress.update(self._task, total=self.total)

    def step(self, doing: str = "") -> None:
        """One more is done."""
        self.tell(doing, self.done + 1)

    @contextmanager
    def during(self, doing: str) -> Iterator[None]:
        """One step, while it runs."""
        self.tell(doing)
        yield
        self.step(doing)

    def tell(self, doing: str, done: float | None = None) -> None:
        """Cheap, and to be called often."""
        self.done = self.done if done is None else min(done, self.total)
        self._progress.update(self._task, completed=self.done, doing=doing)
        now = time.monotonic()
        if not self._progress.console.is_terminal and now - self._said >= EVERY:
            self._said = now
            self.say(f"{self.done:.0f} of {self.total:.0f} in {now - self._began:.0f} s {doing}".rstrip())

    def say(self, text: str) -> None:
        """A line that stays, above the bar."""
        line = f"{self._label}: {text}"
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def bar(label: str, total: float = 0) -> Iterator[Bar]:
    """A bar until the block ends."""
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
