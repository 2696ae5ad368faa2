"""What is going on, on standard error: a bar in a terminal, else a line at each step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_EVERY = 10.0  # seconds between two lines where there is no terminal
_LOOK = 0.3


class Shown:
    """Tells of each step, and of the ``tasks`` that the engine has done of it: how many, and of how many."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self.console = console or Console(stderr=True)
        self.quiet = quiet
        self.tasks: Callable[[], tuple[int, int]] = lambda: (0, 0)

    def tell(self, sentence: str) -> None:
        """Something to know besides the verdict."""
        self.console.print(escape(sentence), highlight=False, soft_wrap=True)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        if self.quiet:
            yield
            return
        began = time.monotonic()
        if self.console.is_terminal:
            with self._bar(text):
                yield
        else:
            self.console.print(f"{text} …", highlight=False)
            with self._lines(text, began):
                yield
        seconds = time.monotonic() - began
        if self.console.is_terminal or seconds > _EVERY:
            self.console.print(f"[green]✓[/] {text} [dim]{seconds:.1f} s[/]", highlight=False)

    @contextmanager
    def _bar(self, text: str) -> Iterator[None]:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task(text, total=None)

            def look() -> None:
                done, total = self.tasks()
                if total:
                    bar.update(task, completed=done, total=total)

            with _repeated(look, _LOOK):
                yield

    @contextmanager
    def _lines(self, text: str, began: float) -> Iterator[None]:
        def look() -> None:
            done, total = self.tasks()
            so_far = f"{done} of {total} tasks, " if total else ""
            self.console.print(f"{text}: {so_far}{time.monotonic() - began:.0f} s", highlight=False)

        with _repeated(look, _EVERY):
            yield


@contextmanager
def _repeated(look: Any, seconds: float) -> Iterator[None]:
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(seconds):
            look()

    watcher = threading.Thread(target=run, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
