"""The screen of ``shadowrelay top``. Only that command imports this module: textual is slow to import."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Static

from shadowrelay.cli.top_figures import NodesWatch, Sorted, TopFrame, draw


class TopApp(App[None]):
    """Draws a frame again and again until ``q``."""

    CSS = "#frame { height: 1fr; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("p", "pause", "pause"),
        Binding("s", "sort", "sort"),
    ]

    def __init__(self, watch: NodesWatch, interval: float) -> None:
        super().__init__()
        self._watch = watch
        self._interval = interval
        self._paused = False
        self._sorted_by = Sorted.MESSAGES
        self._frame = self._look()

    def compose(self) -> ComposeResult:
        yield Static(id="frame")
        yield Footer()

    def on_mount(self) -> None:
        self._watch.start()
        self.set_interval(min(self._interval, 1.0), self._again)
        self._show()

    def on_resize(self) -> None:
        self._show()

    def action_pause(self) -> None:
        self._paused = not self._paused
        self._again()
        self._show()

    def action_sort(self) -> None:
        self._sorted_by = self._sorted_by.next()
        self._show()

    def _look(self) -> TopFrame:
        return self._watch.frame(datetime.now(UTC))

    def _again(self) -> None:
        if not self._paused:
            self._frame = self._look()
            self._show()

    def _show(self) -> None:
        frame = replace(self._frame, sorted_by=self._sorted_by, paused=self._paused)
        text = Text(no_wrap=True)
        for line in draw(frame, self.size.width, max(1, self.size.height - 1)):
            text.append(line.text + "\n", "bold" if line.head else "red" if line.bad else "")
        self.query_one("#frame", Static).update(text)
