"""Saves the readable part of a corrupt transport database into a new file that takes its place.

An unreadable page costs the rows on it and no others. The new file is the same database, with its id and its
lineage. If messages are missing, members treat it as a database that was rolled back.
"""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from contextlib import closing
from datetime import datetime
from pathlib import Path

from shadowrelay.database import opening
from shadowrelay.database.opening import Salvaged
from shadowrelay.database.queries import migrations
from shadowrelay.database.sums import know_sums, tolerant

_NEEDED = ("meta", "incarnation", "member", "chore", "sqlite_sequence")
"""Tables of which every row is needed: whose database it is, and what it told which member."""

_OF_MESSAGES = ("message", "recipient", "holder", "shared_content", "content")
"""Tables with the same ids: an id that one table lost may be in another. An old schema lacks some of them."""

_SHARES = "SELECT 1 FROM sqlite_master WHERE name = 'shared_content'"

_MOST_SPLITS = 4000  # splits of a range of numbers, to get past unreadable pages


def salvage(file: Path, now: datetime) -> Salvaged | None:
    """Replace a corrupt database by a sound copy of its readable part, durably. Returns None if too much is
    gone. Raises OSError, and sqlite3.Error if there is no room: then nothing has changed.

    The caller holds the lock. A rename puts the new file in place, so a crash leaves one or the other.
    """
    made = file.with_name(f"{file.name}.salvage")
    kept = file.with_name(f"{file.name}.corrupt-{now:%Y%m%dT%H%M%S.%fZ}")
    made.unlink(missing_ok=True)
    try:
        lost = _copied(file, made)
        if lost is None:
            return None
        log = Path(f"{file}-wal")
        if log.exists() and log.stat().st_size:  # the new file must not get the old log
            return None
        log.unlink(missing_ok=True)
        _sync(made)
        os.link(file, kept)
        made.rename(file)
        opening.sync_directory(file.parent)
    finally:
        made.unlink(missing_ok=True)
    opening.unsuspect(file)
    return Salvaged(kept, lost)


def _copied(file: Path, made: Path) -> dict[str, int] | None:
    with closing(sqlite3.connect(file, isolation_level=None)) as source:
        source.text_factory = tolerant
        try:
            source.execute("PRAGMA locking_mode=exclusive")
            if source.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                return None
            version = source.execute("PRAGMA user_version").fetchone()[0]
            tables = {row[0] for row in source.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except sqlite3.DatabaseError as error:
            if not opening.is_corrupt(error):
                raise
            return None
        steps = migrations()
        if not 0 < version <= len(steps):
            return None
        made.touch(mode=0o600)
        with closing(sqlite3.connect(made, isolation_level=None)) as target:
            target.execute("PRAGMA auto_vacuum=incremental")
            know_sums(target)
            target.execute("PRAGMA synchronous=off")  # the whole file is flushed before it is used
            for number, script in enumerate(steps[:version], start=1):
                target.executescript(f"BEGIN;\n{script}\nPRAGMA user_version={number};\nCOMMIT;")
            return _filled(source, target, tables)


def _filled(source: sqlite3.Connection, target: sqlite3.Connection, there: set[str]) -> dict[str, int] | None:
    wanted = [row[0] for row in target.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    if not set(wanted) <= there:
        return None
    target.execute("CREATE TEMP TABLE found (key TEXT PRIMARY KEY) WITHOUT ROWID")
    target.execute("BEGIN")
    lost: dict[str, int] = {}
    for name in _NEEDED:
        if name in wanted and not _Table(source, target, name).copy():
            return None
    if not all(isinstance(last, int) for (last,) in target.execute("SELECT seq FROM sqlite_sequence")):
        return None
    target.execute("DELETE FROM temp.found")
    of_messages = [_Table(source, target, name) for name in _OF_MESSAGES if name in wanted]
    whole = [table.note_keys() for table in of_messages]
    for table, all_read in zip(of_messages, whole, strict=True):
        table.copy()
        lost[table.name] = max(table.missing(), not all_read)
    for name in set(wanted) - {*_NEEDED, *_OF_MESSAGES}:
        target.execute("DELETE FROM temp.found")
        lost[name] = not _Table(source, target, name).copy()
    meta = dict(target.execute("SELECT key, value FROM meta").fetchall())
    if not {"database_id", "node"} <= meta.keys():
        return None
    if lost["message"]:
        target.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, '1')", (opening.LINEAGE_BROKEN,))
    target.execute("COMMIT")
    return {name: count for name, count in lost.items() if count}


class _Table:
    """Copies one table, row by row, around unreadable pages: by row numbers if it has them, and by keys."""

    def __init__(self, source: sqlite3.Connection, target: sqlite3.Connection, name: str) -> None:
        self.name = name
        self._source = source
        self._target = target
        self._rows_lost = 0
        columns = target.execute(f"PRAGMA table_xinfo({name})").fetchall()
        listed = ", ".join(f'"{column[1]}"' for column in columns)
        sql = target.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()[0]
        self._numbered = "WITHOUT ROWID" not in sql
        key = next((column for column in columns if column[5] == 1), None)
        self._key = key[1] if key and key[2] == "TEXT" else None
        self._get = f"SELECT {listed} FROM {name} WHERE"
        self._put = f"INSERT OR IGNORE INTO {name} ({listed}) VALUES ({', '.join('?' * len(columns))})"
        target.execute(f"DELETE FROM {name}")  # a migration may have put something there

    def note_keys(self) -> bool:
        """Collect every readable key: in the table, from both ends, and in its indexes. Returns whether the
        table alone had them all.
        """
        every = f"SELECT DISTINCT {self._key} FROM {self.name} NOT INDEXED ORDER BY {self._key}"
        whole = self._noted(every) or self._noted(f"{every} DESC")
        indexes = self._source.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ?", (self.name,)
        )
        for index, sql in indexes.fetchall():
            _, partial, condition = (sql or "").partition(" WHERE ")
            self._noted(f"SELECT {self._key} FROM {self.name} INDEXED BY {index} {partial}{condition}")
        return whole

    def _noted(self, query: str) -> bool:
        try:
            for (key,) in self._source.execute(query):
                self._target.execute("INSERT OR IGNORE INTO temp.found VALUES (?)", (key,))
        except sqlite3.DatabaseError:
            return False
        return True

    def copy(self) -> bool:
        """Copy the rows. Returns whether all could be read, as far as this table shows."""
        whole = self._by_numbers() if self._numbered else self.name in _OF_MESSAGES or self.note_keys()
        if self._key:
            for (key,) in self._target.execute("SELECT key FROM temp.found"):
                whole = self._row(f"{self._key} = ?", key) and whole
        return whole

    def missing(self) -> int:
        """How many messages have no row here; 0 for rows that a message need not have."""
        if self.name in {"holder", "shared_content"}:
            return 0
        of = "temp.found" if self.name == "message" else "(SELECT id AS key FROM message)"
        here = f"SELECT {self._key} FROM {self.name}"
        if self.name == "content" and self._target.execute(_SHARES).fetchone():
            here += " UNION ALL SELECT message_id FROM shared_content"
        found = f"SELECT COUNT(*) FROM {of} WHERE key NOT IN ({here})"
        return int(self._target.execute(found).fetchone()[0])

    def _row(self, condition: str, *values: object) -> bool:
        try:
            rows = self._source.execute(f"{self._get} {condition}", values).fetchall()
            self._target.executemany(self._put, rows)
        except sqlite3.DatabaseError:  # or the values break a constraint
            return False
        return True

    def _by_numbers(self) -> bool:
        """Read a range of row numbers from both ends, then halve the rest, widest first, so that a half soon
        begins on a sound page. Returns whether all rows were read.
        """
        ranges = deque([(-(1 << 63), (1 << 63) - 1)])
        sound = True
        splits = 0
        while ranges:
            low, high = ranges.popleft()
            low, whole = self._walk(low, high, "ASC")
            if not whole:
                high, whole = self._walk(low, high, "DESC")
            if not whole:
                sound = False
                middle = (low + high) // 2
                if low < middle < high and splits < _MOST_SPLITS:
                    splits += 1
                    ranges += [(low, middle), (middle, high)]
        return sound and not self._rows_lost

    def _walk(self, low: int, high: int, order: str) -> tuple[int, bool]:
        """Copy rows after ``low`` up to ``high``, from one end. Returns how far, and whether to the end."""
        last = low if order == "ASC" else high
        query = (
            f"SELECT rowid FROM {self.name} NOT INDEXED WHERE rowid > ? AND rowid <= ? ORDER BY rowid {order}"
        )
        try:
            for (number,) in self._source.execute(query, (low, high)):
                self._rows_lost += not self._row("rowid = ?", number)
                last = number
        except sqlite3.DatabaseError:
            return last, False
        return last, True


def _sync(file: Path) -> None:
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
