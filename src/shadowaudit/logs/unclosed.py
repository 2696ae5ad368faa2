"""Logs that nodes still write, read for what a holder was told: that rests on a row of who told it."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shadowaudit.core.events import Event, Kind
from shadowaudit.core.evidence import Database, Evidence, Segment
from shadowaudit.core.facts import Fault, FileFacts
from shadowaudit.logs.extract import Key, Piece, Source, rows_of
from shadowaudit.logs.file import digest

_LAST = 1 << 16  # octets from the end in which the last whole row is looked for at a time


class _Opened:
    """A log up to its last whole row at this moment, whatever becomes of its name. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self.size = self._file.seek(0, io.SEEK_END)
        while self.size:
            begin = max(0, self.size - _LAST)
            found = self.octets("", begin, self.size).rfind(b"\n") + 1
            self.size = begin + found
            if found:
                break
        self._file.seek(0)

    def octets(self, _: str, begin: int, end: int) -> bytes:
        return os.pread(self._file.fileno(), min(end, self.size) - begin, begin)

    def readinto(self, into: Any, /) -> int | None:
        return self._file.readinto(memoryview(into)[: self.size - self._file.tell()])

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        """It stays open for the messages that ask."""

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


class _Rows:
    """What it is worth, and where the rows of each message are in it."""

    def __init__(self, file: _Opened, facts: FileFacts, states: Any) -> None:
        self.facts, self._file = facts, file
        self._source = Source.of(facts, file.octets)
        order = np.argsort(states.column("high").to_numpy(), kind="stable")
        self._high, self._low, self._begins, self._ends = (
            states.column(name).to_numpy()[order] for name in ("high", "low", "file_from", "file_to")
        )

    def of(self, key: Key) -> list[Event]:
        first, last = (int(np.searchsorted(self._high, key[0], side)) for side in ("left", "right"))
        pieces = [
            Piece(self._source, int(self._begins[place]), int(self._ends[place]))
            for place in range(first, last)
            if self._low[place] == key[1]
        ]
        return rows_of(key, pieces, self._file.octets)


class Unclosed:
    """Reads each of them once, up to its last whole row, and keeps where the rows of each message are."""

    def __init__(self) -> None:
        self._read: dict[Path, _Rows | None] = {}

    def heard(
        self, key: Key, events: Sequence[Event], evidence: Evidence
    ) -> tuple[Sequence[Event], Evidence]:
        """A message's rows, with those of open logs where HADISCARD tells of a row that no closed one has.

        And the evidence, which reaches as far. Raises OSError.
        """
        found, databases = list(events), dict(evidence.databases)
        for event in found:  # grows meanwhile
            for name, mark in _words(event, databases):
                while (database := databases.get(name)) and not database.reaches(*mark):
                    rows = self._behind(database)
                    if rows is None:
                        break
                    databases[name] = _longer(database, rows.facts)
                    found += rows.of(key)
        reached = evidence if databases == evidence.databases else replace(evidence, databases=databases)
        return found, reached

    def _behind(self, database: Database) -> _Rows | None:
        """The log that begins with the row behind its last one, open or closed meanwhile."""
        opened = database.opened
        if opened is None:
            return None
        name = f"MSGTRK-{opened.node}-{opened.boot}-{database.last + 1}.LOG"
        for path in (Path(opened.place, f".{name}.open"), Path(opened.place, name)):
            if path not in self._read:
                self._read[path] = _whole_rows(path, name)
            rows = self._read[path]
            if rows is not None and _goes_on(database, rows.facts):
                return rows
        return None


def _words(event: Event, databases: Mapping[str, Database]) -> list[tuple[str, tuple[str, int]]]:
    """Which databases a holder's word may rest on, and which mark each log has to reach for it."""
    if event.kind is not Kind.HADISCARD:
        return []
    if event.teller[0]:
        return [event.teller]
    return [
        (one.id, ("", one.last + 1))
        for one in databases.values()
        if one.node == event.peer and not one.closed
    ]


def _goes_on(database: Database, more: FileFacts) -> bool:
    return more.database == database.id and more.first == database.last + 1


def _longer(database: Database, more: FileFacts) -> Database:
    segments = (*database.segments, Segment(more.boot, more.first, more.last, more.begins))
    whole = database.whole or 0 < database.awaited <= more.last
    return replace(database, segments=segments, whole=whole)


def _whole_rows(path: Path, name: str) -> _Rows | None:
    """None if there is no such log, or rows of it are missing."""
    if not path.is_file():
        return None
    try:
        file = _Opened(path)
        facts, states = digest(name, lambda: file, size=file.size, modified=0)
        if not facts.rows or {*facts.faults} - {Fault.NO_FOOTER}:
            return None
        return _Rows(file, facts, states)
    except OSError:
        return None
