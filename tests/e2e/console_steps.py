"""The steps of the night shift's page that are done in the console, and a browser that does them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LINE = re.compile(
    r"- Console, (?:\*(?P<page>[^*]+)\*|from task (?P<task>\d+))[^:]*: (?P<steps>.+?)\.(?: .*)?$"
)
_STEP = re.compile(r"(link|form) \*([^*]+)\*")
_PLAIN = ("Show what matches", "See what would come back")  # forms of a page, not opened by a button
_GOES_ON = "Send again"  # opened by the step before; its button also says how many messages


@dataclass(frozen=True, slots=True)
class ConsoleTask:
    """``page``: where it begins; '' where the task before it ended. ``steps``: kind and name."""

    page: str
    steps: tuple[tuple[str, str], ...]


def console_tasks(page: Path) -> dict[int, ConsoleTask]:
    """The tasks of the page by their numbers. A line about the console that is not understood is an error."""
    found: dict[int, ConsoleTask] = {}
    number = 0
    for line in page.read_text("utf-8").splitlines():
        if head := re.match(r"## (\d+)\. ", line):
            number = int(head[1])
        if not line.startswith("- Console, "):
            continue
        told = _LINE.match(line)
        assert told, line
        assert not told["task"] or int(told["task"]) == number - 1, line
        steps = tuple(_STEP.fullmatch(one) for one in told["steps"].split("; "))
        assert all(steps), line
        found[number] = ConsoleTask(told["page"] or "", tuple((one[1], one[2]) for one in steps if one))
    return found


class Walker:
    """Does tasks in a browser's page, with what an operator types into the fields."""

    def __init__(self, page: Any, tasks: Mapping[int, ConsoleTask]) -> None:
        self.page, self.tasks = page, tasks

    def begin(self, number: int) -> None:
        if at := self.tasks[number].page:
            self.page.get_by_role("navigation", name="Pages", exact=True).get_by_role(
                "link", name=at, exact=True
            ).click()

    def step(self, number: int, step: int = 0, *, link: str = "", **fields: str) -> Any:
        """Do one step. ``link``: what a link in italics stands for. Returns the form that it opened."""
        kind, name = self.tasks[number].steps[step]
        if kind == "link":
            self.page.locator("main").get_by_role("link", name=link or name, exact=True).first.click()
            return None
        if name == "Find a message":
            self._fill(self.page.get_by_role("search"), {name: fields["text"]})
            self.page.keyboard.press("Enter")
            return None
        opened = self.page.locator("#act")
        if name != _GOES_ON:
            for folded in self.page.locator("main details.filtering:not([open]) > summary").all():
                folded.click()
            button = self.page.locator("main").get_by_role("button", name=name, exact=True).first
            if name in _PLAIN:
                self._fill(button.locator("xpath=ancestor::form"), fields)
            button.click()
        if name not in _PLAIN:
            opened.wait_for()
            self._fill(opened, fields)
        return opened

    def send(self, opened: Any) -> None:
        """Send the form that a step opened."""
        opened.locator("form button").click()

    @staticmethod
    def _fill(place: Any, fields: Mapping[str, str]) -> None:
        for label, text in fields.items():
            place.get_by_label(label.replace("_", " ")).fill(text)
