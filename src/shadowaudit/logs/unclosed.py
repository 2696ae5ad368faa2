"""Logs that nodes still write, read for what a holder was told: that rests on a row of who told it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shadowaudit.core.events import Event, Kind
from shadowaudit.core.evidence import Database, Evidence, Segment
from shadowaudit.core.facts import Fault, FileFacts
from shadowaudit.logs.extract import Key, Piece, Source, rows_of
from shadowaudit.logs.file import digest


@dataclass(frozen=True, slots=True)
class _Rows:
    data: bytes
    facts: FileFacts
    source: Source

    def of(self, key: Key) -> list[Event]:
        return rows_of(key, [Piece(self.source, 0, len(self.data))], lambda *_: self.data)


class Unclosed:
    """Reads each of them once, up to its last whole row."""

    def __init__(self) -> None:
        self._read: dict[Path, _Rows | None] = {}

    def heard(
        self, key: Key, events: Sequence[Event], evidence: Evidence
    ) -> tuple[Sequence[Event], Evidence]:
        """A message's rows, with those of open logs where HADISCARD tells of a row that no closed one has.

        And the evidence, which reaches as far.
        """
        found, databases = list(events), dict(evidence.databases)
        for event in found:  # grows meanwhile
            for name, told in _words(event, databases):
                while (database := databases.get(name)) and database.last < told:
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


def _words(event: Event, databases: Mapping[str, Database]) -> list[tuple[str, int]]:
    """Which databases a holder's word may rest on, and which row each log has to reach for it."""
    if event.kind is not Kind.HADISCARD:
        return []
    if event.teller[0]:
        return [event.teller]
    return [(one.id, one.last + 1) for one in databases.values() if one.node == event.peer and not one.closed]


def _goes_on(database: Database, more: FileFacts) -> bool:
    return more.database == database.id and more.first == database.last + 1


def _longer(database: Database, more: FileFacts) -> Database:
    segments = (*database.segments, Segment(more.boot, more.first, more.last, more.begins))
    whole = database.whole or 0 < database.awaited <= more.last
    return replace(database, segments=segments, whole=whole)


def _whole_rows(path: Path, name: str) -> _Rows | None:
    """None if there is no such log, or rows of it are missing."""
    try:
        data = path.read_bytes() if path.is_file() else b""
    except OSError:
        return None
    data = data[: data.rfind(b"\n") + 1]
    facts, _ = digest(name, lambda: io.BytesIO(data), size=len(data), modified=0)
    if not facts.rows or {*facts.faults} - {Fault.NO_FOOTER}:
        return None
    return _Rows(data, facts, Source.of(facts, lambda _, begin, end: data[begin:end]))
