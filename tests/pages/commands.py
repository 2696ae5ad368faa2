"""Reads the commands of a Markdown page.

Two kinds of fenced blocks hold commands: ``console``, where each line after ``$ `` is one (continued on lines
after ``> ``) and what follows is what it prints; and ``sh``, which is one script as a whole. A block is not
run if the line before its fence says why::

    <!-- not run here: needs a Kubernetes cluster -->
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent> {0,3})(?P<fence>`{3,}|~{3,})\s*\{?(?P<language>[\w+-]*)\}?.*$")
_NOT_RUN = re.compile(r"^\s*<!--\s*not run here\b:?\s*(?P<reason>.*?)\s*-->\s*$")


class BadPage(Exception):
    """The page cannot be read as commands; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a page, and the lines that the page shows as its output (none: anything may come)."""

    page: Path
    line: int  # counted from 1, of the command itself
    text: str
    shown: tuple[str, ...] = ()
    not_run: str = ""  # why; empty: it is run

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}: {self.text}"


def commands(page: Path) -> list[Command]:
    """All commands of a page, in its order, those that are not run too. Raises BadPage."""
    found: list[Command] = []
    for start, language, reason, lines in _blocks(page):
        if language == "console":
            found += _console(page, start, reason, lines)
        elif language == "sh" and any(line.strip() for line in lines):
            found.append(Command(page, start, "\n".join(lines), not_run=reason))
        elif reason:
            raise BadPage(f"{page}:{start}: only sh and console blocks are run, so only they can be exempt")
    return found


def _blocks(page: Path) -> Iterator[tuple[int, str, str, list[str]]]:
    """First line, language, reason not to run it, and lines of each fenced block."""
    fence, indent, language, reason, start = "", 0, "", "", 0
    block: list[str] = []
    before = ""
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if fence:
            closing = line.strip()
            if closing.startswith(fence) and not closing.strip(fence[0]):
                yield start, language, reason, block
                fence, before = "", ""
            else:
                block.append(line[indent:] if not line[:indent].strip() else line)
        elif opened := _FENCE.match(line):
            marked = _NOT_RUN.match(before)
            reason = marked["reason"] if marked else ""
            if marked and not reason:
                raise BadPage(f"{page}:{number - 1}: 'not run here' needs a reason")
            fence, indent, language = opened["fence"], len(opened["indent"]), opened["language"]
            start, block = number + 1, []
        elif line.strip():
            if _NOT_RUN.match(before):
                raise BadPage(f"{page}:{number}: 'not run here' stands before no block")
            before = line
    if fence:
        raise BadPage(f"{page}:{start}: the block is not closed")
    if _NOT_RUN.match(before):
        raise BadPage(f"{page}: 'not run here' stands before no block")


def _console(page: Path, start: int, reason: str, lines: list[str]) -> Iterator[Command]:
    typed: list[str] = []
    shown: list[str] = []
    at = start
    for number, line in enumerate([*lines, "$ "], start):
        if line.startswith("$ "):
            if typed:
                yield Command(page, at, "\n".join(typed), tuple(shown), reason)
            elif any(text.strip() for text in shown):
                raise BadPage(f"{page}:{start}: a console block begins with '$ '")
            typed, shown, at = [line[2:]], [], number
        elif line.startswith("> ") and typed and not shown:
            typed.append(line[2:])
        else:
            shown.append(line)
