"""The records that every member has, on SQLite.

What decides is one column of JSON. A damaged row counts as none: a member has the record, and gives it
again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TypeVar, assert_never

from shadowrelay.core.identifiers import RequestId
from shadowrelay.core.jobs import Job, JobProgress
from shadowrelay.core.records import P, R, Record, RecordPart
from shadowrelay.core.requests import Progress, Request
from shadowrelay.core.retirements import RetiredMember
from shadowrelay.core.shared_records import ForgetRecord, ForgetTold, RecordLedger, RecordWrite
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.switches import Switch
from shadowrelay.core.values import replace
from shadowrelay.database import sums
from shadowrelay.database.queries import load
from shadowrelay.database.records import micros, moment
from shadowrelay.database.sums import SqlRow
from shadowrelay.wire.records import record_from, record_told

SQL = load("queries.sql")

T = TypeVar("T")

_KINDS: dict[str, type[Record]] = {one.kind: one for one in (Request, Job, Suspension, Switch, RetiredMember)}
_PARTS: dict[str, type[RecordPart]] = {one.kind.kind: one for one in (Progress, JobProgress)}
_MICROSECOND = timedelta(microseconds=1)


class RecordRows(RecordLedger):
    """The part of a ledger that reads and writes records, on the ledger's ``connection``."""

    connection: sqlite3.Connection
    _records: dict[type[Record], dict[str, Record]] | None = None  # as stored; stages read them every second
    _parts: dict[tuple[type[RecordPart], RequestId], list[RecordPart]] | None = None

    def forget_records(self) -> None:
        """Read again what is kept in memory: after a rollback."""
        self._records = self._parts = None

    def records(self, kind: type[R]) -> Sequence[R]:
        return tuple(self._by_key(kind).values())

    def record(self, kind: type[R], key: str) -> R | None:
        return self._by_key(kind).get(key)

    def parts(self, kind: type[P], record: RequestId) -> Sequence[P]:
        if self._parts is None:
            self._parts = {}
            for one in self._sound("record_parts", _part_of):
                self._parts.setdefault((type(one), one.key[0]), []).append(one)
        return tuple(self._parts.get((kind, record), ()))  # type: ignore[arg-type]

    def _by_key(self, kind: type[R]) -> dict[str, R]:
        if self._records is None:
            self._records = {}
            for one in self._sound("records", _record_of):
                self._records.setdefault(type(one), {})[one.key] = one
        return self._records.get(kind, {})  # type: ignore[return-value]

    def _sound(self, query: str, make: Callable[[SqlRow], T]) -> Iterator[T]:
        for row in self.connection.execute(SQL[query]).fetchall():
            if (found := sums.sound(make, row)) is not None:
                yield found

    def _write_record(self, write: RecordWrite) -> None:
        self.forget_records()
        run = self.connection.execute
        match write:
            case Record():
                told = json.dumps(record_told(write))
                row = write.kind, write.key, told, micros(write.since), write.age // _MICROSECOND
                run(SQL["put_record"], row)
            case RecordPart():
                run(SQL["put_record_part"], (write.kind.kind, *write.key, json.dumps(record_told(write))))
            case ForgetRecord(kind, key):
                run(SQL["drop_record_parts"], (kind.kind, key))
                run(SQL["drop_record"], (kind.kind, key))
            case ForgetTold(member):
                run(SQL["drop_record_parts_of"], (member,))
            case _:
                assert_never(write)


def _record_of(row: SqlRow) -> Record:
    """Raises ValueError for a row that cannot be read."""
    kind, _, told, kept_at, age = row
    if kind not in _KINDS:
        raise ValueError(f"no kind: {kind!r}")
    found = record_from(_KINDS[kind], json.loads(told))
    return replace(found, kept_at=moment(kept_at), age=age * _MICROSECOND)


def _part_of(row: SqlRow) -> RecordPart:
    """Raises ValueError for a row that cannot be read."""
    if row[0] not in _PARTS:
        raise ValueError(f"no kind: {row[0]!r}")
    return record_from(_PARTS[row[0]], json.loads(row[4]))
