"""Tells what happens while it happens: for people on a terminal, else in plain lines."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from rich.console import Console
from rich.markup import escape

from shadowlab.errors import LabError

_PIPE_WIDTH = 120
_POLL = 0.1

T = TypeVar("T")


class Story:
    """Prints numbered steps, each with its result and the seconds since the start."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        if not self._console.is_terminal:
            self._console.width = _PIPE_WIDTH
        self._began = time.monotonic()
        self._steps = 0

    def step(self, text: str) -> None:
        """Print the next step."""
        self._steps += 1
        elapsed = time.monotonic() - self._began
        self._console.print(f"[bold]{self._steps}. {escape(text)}[/] [dim]({elapsed:.0f} s)[/]")

    def tell(self, text: str) -> None:
        """Print a result of the step, as one line."""
        self._console.print(f"   {escape(text)}", soft_wrap=True)

    def verdict(self, text: str, *, held: bool) -> None:
        self._console.print(f"[bold {'green' if held else 'red'}]{escape(text)}[/]", soft_wrap=True)

    def watch(
        self, look: Callable[[], T], until: Callable[[T], bool], tell: Callable[[T], str], *, within: float
    ) -> T:
        """Look until ``until`` is true, telling each change; at most ``within`` seconds.

        Raises LabError with the last text told.
        """
        deadline = time.monotonic() + within
        told = ""
        while True:
            seen = look()
            if (text := tell(seen)) and text != told:
                self.tell(text)
                told = text
            if until(seen):
                return seen
            if time.monotonic() > deadline:
                raise LabError(f"this did not end well within {within:.0f} s; last seen: {told or 'nothing'}")
            time.sleep(_POLL)
