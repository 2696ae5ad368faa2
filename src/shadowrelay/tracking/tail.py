"""Reads this node's rows from the tracking log files in order, from any row on, also where a file grows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from shadowrelay.core.identifiers import DatabaseId, Lineage
from shadowrelay.tracking.files import LogName, closed_files, log_name
from shadowrelay.tracking.format import LINE_END, custom_entries, parse_row, row_identity

_END = LINE_END.encode()


@dataclass(frozen=True, slots=True)
class WrittenRow:
    """A row of the tracking log, as its file has it."""

    sequence: int
    incarnation: str
    event_id: str
    text: str

    @property
    def id(self) -> str:
        """What tells it from every other row: its column log-id."""
        return f"{self.incarnation}-{self.sequence}"

    def columns(self) -> dict[str, str]:
        """The columns that are not empty, by name."""
        return {name: text for name, text in parse_row(self.text).items() if text}


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """The files of one node. ``lineage``: that of its database as it is now. Its methods block."""

    directory: Path
    node: str
    lineage: Callable[[], Lineage]

    def names(self) -> list[LogName]:
        """This node's files, in the order of their first rows, also the one that is being written."""
        try:
            names = {name for name, _ in closed_files(self.directory, self.node)}
        except FileNotFoundError:  # the writer makes the directory
            return []
        for path in self.directory.glob(".MSGTRK-*.LOG.open"):
            name = log_name(path.name.removeprefix(".").removesuffix(".open"))
            if name is not None and name.node == self.node:
                names.add(name)
        return sorted(names, key=lambda name: name.first)

    def open(self, name: LogName) -> BinaryIO:
        """Open a file for reading, whether it is still written or not. Raises OSError."""
        try:
            return (self.directory / name.open).open("rb")
        except FileNotFoundError:  # it is closed
            return (self.directory / name.closed).open("rb")

    def has(self, incarnation: str) -> bool:
        """Whether this database had that incarnation, as its files say: the lineage forgets old ones."""
        for name in self.names():
            if name.incarnation == incarnation:
                with contextlib.suppress(OSError), self.open(name) as file:
                    return any(_row(line, self.lineage().database_id) for line in file)
        return False

    def following(self, place: int) -> list[LogName]:
        """The files of this database that may have rows after the sequence ``place``, oldest first."""
        begun = self.lineage().beginnings
        ours = {one.incarnation for one in begun}
        # The lineage forgets old incarnations. Files of another database may be here too: see ``_row``.
        found = [name for name in self.names() if name.incarnation in ours or name.first <= begun[0].sequence]
        before = [at for at, name in enumerate(found) if name.first <= place + 1]
        return found[before[-1] if before else 0 :]


class LogTail:
    """Goes through the rows in order, and remembers where it is in which file."""

    def __init__(self, log: LogDirectory) -> None:
        self._log = log
        self._at: tuple[LogName, int] | None = None

    def after(self, place: int, most: int) -> list[WrittenRow]:
        """The next rows after ``place``, without a gap between them; none if there are none yet. Blocks."""
        found: list[WrittenRow] = []
        for name in self._log.following(place):
            begin = self._at[1] if self._at and self._at[0] == name else 0
            with contextlib.suppress(FileNotFoundError), self._log.open(name) as file:
                file.seek(begin)
                while (line := file.readline()).endswith(_END):
                    row = self._wanted(line, found[-1].sequence if found else place)
                    if row is not None:
                        if len(found) == most or (found and row.sequence != found[-1].sequence + 1):
                            return found
                        found.append(row)
                    begin += len(line)
                    self._at = (name, begin)
        return found

    def _wanted(self, line: bytes, place: int) -> WrittenRow | None:
        log_id = line.rsplit(b",", 2)[-2:-1]
        digits = log_id[0].rpartition(b"-")[2] if log_id else b""
        if not digits.isdigit() or int(digits) <= place:  # most lines: it is not worth to parse them
            return None
        return _row(line, self._log.lineage().database_id)


def _row(line: bytes, database_id: DatabaseId) -> WrittenRow | None:
    """The row of a line; None for a line that is none, that is damaged, or is of another database."""
    if line.startswith(b"#"):
        return None
    text = line.decode("utf-8", "replace")
    try:
        columns = parse_row(text)
        sequence, incarnation = row_identity(columns)
    except ValueError:
        return None
    if custom_entries(columns["custom-data"]).get("Db") != database_id:
        return None
    return WrittenRow(sequence, incarnation, columns["event-id"], text)
