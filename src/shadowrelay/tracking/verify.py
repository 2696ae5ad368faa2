"""Verifies a closed tracking log file without the code that wrote it: own footer parser, own hash."""

from __future__ import annotations

import hashlib
import os
from enum import StrEnum
from pathlib import Path

from shadowrelay.core.values import dataclass
from shadowrelay.tracking.format import COLUMNS, parse_row, row_identity


class Problem(StrEnum):
    """A problem of a file."""

    NO_FOOTER = "no footer"
    TRAILING_BYTES = "bytes after the footer"
    WRONG_HASH = "wrong hash"
    WRONG_COUNT = "row count differs from the footer"
    WRONG_RANGE = "first or last sequence differs from the footer or the name"
    WRONG_INCARNATION = "a row of another incarnation than the name says"
    UNREADABLE_ROW = "unreadable row"
    SEQUENCE_GAP = "gap in the sequence"
    SEQUENCE_REPEATED = "sequence does not rise"
    WRONG_FIELDS = "#Fields is missing or names other columns"


@dataclass(frozen=True, slots=True)
class FileReport:
    """The rows and problems of a file; ``first`` and ``last`` are None without a readable row."""

    path: Path
    first: int | None
    last: int | None
    rows: int
    problems: tuple[Problem, ...]

    @property
    def sound(self) -> bool:
        return not self.problems


def verify_file(path: Path) -> FileReport:
    """Read a whole file and report. Raises OSError only: wrong content is reported."""
    return _Reading(path).report()


class _Reading:
    """One pass over a file, line by line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._problems: dict[Problem, None] = {}  # in the order found, each once
        self._first: int | None = None
        self._last: int | None = None
        self._rows = 0
        self._fields = False
        self._footer: dict[str, str] | None = None
        self._incarnation, _, self._name_first = path.name.removesuffix(".LOG").rpartition("-")
        self._incarnation = self._incarnation.rpartition("-")[2]

    def report(self) -> FileReport:
        handle = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        covered = hashlib.sha256()
        with os.fdopen(handle, "rb") as file:
            for line in file:
                if self._footer is not None:
                    self._note(Problem.TRAILING_BYTES)
                    break
                self._footer = _footer(line)
                if self._footer is None:
                    covered.update(line)
                    self._line(line)
        self._compare(covered.hexdigest())
        return FileReport(self._path, self._first, self._last, self._rows, tuple(self._problems))

    def _note(self, problem: Problem) -> None:
        self._problems[problem] = None

    def _line(self, line: bytes) -> None:
        if line.startswith(b"#"):
            self._fields = self._fields or line == f"#Fields: {','.join(COLUMNS)}\r\n".encode()
            return
        try:
            if not line.endswith(b"\r\n"):
                raise ValueError("torn line")
            sequence, incarnation = row_identity(parse_row(line.decode("utf-8")))
        except ValueError:
            self._note(Problem.UNREADABLE_ROW)
            return
        if incarnation != self._incarnation:
            self._note(Problem.WRONG_INCARNATION)
        if self._last is not None and sequence <= self._last:
            self._note(Problem.SEQUENCE_REPEATED)
        elif self._last is not None and sequence != self._last + 1:
            self._note(Problem.SEQUENCE_GAP)
        self._first = sequence if self._first is None else self._first
        self._last = sequence
        self._rows += 1

    def _compare(self, digest: str) -> None:
        if not self._fields:
            self._note(Problem.WRONG_FIELDS)
        if str(self._first) != self._name_first:
            self._note(Problem.WRONG_RANGE)
        if self._footer is None:
            self._note(Problem.NO_FOOTER)
            return
        if self._footer.get("sha256") != digest:
            self._note(Problem.WRONG_HASH)
        if self._footer.get("rows") != str(self._rows):
            self._note(Problem.WRONG_COUNT)
        if (self._footer.get("first"), self._footer.get("last")) != (str(self._first), str(self._last)):
            self._note(Problem.WRONG_RANGE)


def _footer(line: bytes) -> dict[str, str] | None:
    """The entries of a footer line; None for any other line, also for a footer cut short."""
    label, _, entries = line.partition(b" ")
    if label != b"#Footer:" or not line.endswith(b"\r\n"):
        return None
    pairs = (entry.partition("=") for entry in entries.decode("utf-8", "replace").split())
    return {name: text for name, _, text in pairs}
