"""How far it is: a bar on a terminal, a line now and then elsewhere; always on standard error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_QUIET = 10.0  # seconds between two lines where nobody watches a bar


class Steps:
    """Counts steps and shows the one under way."""

    def __init__(self, console: Console, bar: Progress | None) -> None:
        self._console, self._bar = console, bar
        self._task = bar.add_task("", total=0) if bar else None
        self._said = time.monotonic() - _QUIET
        self._total = self._done = 0

    def expect(self, steps: int) -> None:
        """So many more."""
        self._total += steps
        if self._bar and self._task is not None:
            self._bar.update(self._task, total=self._total)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """One step, while it runs."""
        if self._bar and self._task is not None:
            self._bar.update(self._task, description=text)
        elif time.monotonic() - self._said >= _QUIET:
            self._said = time.monotonic()
            self._console.print(f"bench: {self._done}/{self._total} {text}", highlight=False, soft_wrap=True)
        yield
        self._done += 1
        if self._bar and self._task is not None:
            self._bar.advance(self._task)


@contextmanager
def steps() -> Iterator[Steps]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Steps(console, None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield Steps(console, bar)
