"""New logs into the tables: events as they are, the messages that they are about, sums of their days.

One function does it for a batch and for a turn of a stream, so both give the same tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from shadowaudit.core.events import DELIVERIES
from shadowaudit.spark import planning
from shadowaudit.spark.places import Log
from shadowaudit.spark.tables import gold, parts, silver, source, writer
from shadowaudit.spark.tables.logs import Known
from shadowaudit.spark.tables.parts import Written
from shadowaudit.spark.tables.publishing import Run
from shadowaudit.spark.tables.schemas import EVENTS, FILES, GOLD, LATENCIES, MESSAGES, TABLES
from shadowaudit.spark.tables.store import DataFile, Manifest, Place
from shadowaudit.spark.views import BEGINS

TURN = 4 << 30
"""Octets of logs that a batch publishes at a time: what an interruption costs, and how much is summed up."""

_AT_ONCE = 3
_DELIVERIES = [str(one) for one in sorted(DELIVERIES)]

_FACTS = """
    SELECT file, max(software) AS software, max(node) AS node, max(database) AS database,
        max(incarnation) AS incarnation, count(line) AS events, count(problem) AS problems,
        min(sequence) AS first_sequence, max(sequence) AS last_sequence,
        min(date_time) AS first_at, max(date_time) AS last_at
    FROM {events} GROUP BY file
"""
"""The table ``files``, but for what is known before a log is read."""


_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",  # days and hours are those of the logs
    # What Spark concludes from conditions on nested CASE expressions doubles with each level, without end.
    "spark.sql.constraintPropagation.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class Told:
    """What a turn did. ``version``: of the tables afterwards."""

    version: int
    logs: int = 0
    events: int = 0
    messages: int = 0
    unread: Mapping[str, int] = field(default_factory=dict)  # rows that could not be read, by log

    @property
    def counts(self) -> tuple[int, int, int]:
        """Logs, events and messages."""
        return self.logs, self.events, self.messages


Step = Callable[[str], AbstractContextManager[Any]]


@dataclass(slots=True)
class Ingest:
    """Keeps the tables at a place. ``spark``: a session that is used for this alone (``opened``)."""

    spark: SparkSession
    place: Place
    step: Step = field(default=lambda _: nullcontext())

    @classmethod
    def opened(cls, spark: SparkSession, uri: str, step: Step | None = None) -> Ingest:
        """In that session, whose settings are changed. Raises OSError, ValueError."""
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        source.register(spark)
        return cls(spark, Place.of(uri), step or (lambda _: nullcontext()))

    def batch(self, logs: Sequence[Log], now: Callable[[], datetime]) -> Iterator[Told]:
        """Read those of these logs that the tables lack, the oldest first, and tell of each turn.

        If there is nothing to read, it is one turn with nothing in it. Raises what ``fold`` raises.
        """
        base = self.place.manifest()
        new = sorted(Known.of(self.place, base).new(logs), key=lambda log: (log.modified, log.uri))
        if not new:
            yield Told(base.version)
        for some in planning.parts(new, TURN):
            yield self.fold(source.events_of(self.spark, some), some, now(), listed=True)

    def fold(self, events: DataFrame, logs: Sequence[Log], now: datetime, *, listed: bool = False) -> Told:
        """Publish tables with these events, which take the place of what was there of their logs.

        ``logs``: looked for before the events are read; ``listed``: the events are of just these. Whatever is
        raised, what was current stays so: TakenError if another run was faster, OSError, what Spark raises.
        """
        base = self.place.manifest()
        run = Run(self.place, base, now)
        turn = _Turn(self.spark, run, Known.of(self.place, base), self.step)
        try:
            tables, told = turn.made(events, {log.uri: log for log in logs}, listed=listed)
            if not tables:
                return Told(base.version)
            run.publish(base.following(tables, now))
        except BaseException:
            run.discard(turn.written)
            raise
        return told


class _Turn:
    def __init__(self, spark: SparkSession, run: Run, known: Known, step: Step) -> None:
        self.spark, self.run, self.known, self.step = spark, run, known, step
        self.base: Manifest = run.base
        self.written: list[str] = []
        self.doubtful: list[str] = []

    def made(
        self, events: DataFrame, logs: Mapping[str, Log], *, listed: bool
    ) -> tuple[dict[str, Sequence[DataFile]], Told]:
        """All tables that change."""
        with self.step("Reading logs"):
            new = self._write(events.withColumn("day", f.to_date("date_time")), EVENTS)
        read = {uri for one in new for uri in one.logs} | (set(logs) if listed else set())
        if not read:
            return {}, Told(self.base.version)
        gone, rewritten, removed = self._rewritten(read)
        current = [one for one in self.base.files(EVENTS) if one.path not in gone]
        current += [one.file for one in (*rewritten, *new)]
        fresh = [one.file for one in new]
        facts = self.spark.sql(_FACTS, events=self._frame(EVENTS, fresh)).toArrow().to_pylist()
        self.known = self.known.following(
            facts,
            {uri: log for uri, log in logs.items() if uri in read},
            new,
            rewritten,
            gone,
        )
        self.doubtful = self.known.doubtful()
        days = {one.day for one in (*fresh, *removed) if one.day}
        with self.step("Writing messages"):
            changed = self._frame(EVENTS, fresh, silver.COLUMNS)
            if removed:
                old = self._frame(EVENTS, removed, silver.COLUMNS)
                changed = changed.unionByName(old.where(f.col("file").isin(sorted(read))))
            messages, many, further = self._messages(changed, current, days, {one.path for one in fresh})
        tables: dict[str, Sequence[DataFile]] = {EVENTS: current, MESSAGES: messages}
        with self.step("Writing sums"):
            tables |= self._sums(current, messages, days, days | further)
        tables[FILES] = self.known.write(self.run)
        self.written += [one.path for one in tables[FILES]]
        unread = {row["file"]: row["problems"] for row in facts if row["problems"]}
        return tables, Told(self.base.version + 1, len(read), sum(one.file.rows for one in new), many, unread)

    def _rewritten(self, read: set[str]) -> tuple[set[str], list[Written], list[DataFile]]:
        """Data files with older events of logs that were read again, and what takes their place."""
        again = read & self.known.rows.keys()
        gone = self.known.parts_of(again)
        old = [one for one in self.base.files(EVENTS) if one.path in gone]
        if not old:
            return set(), [], []
        kept = self._frame(EVENTS, old).where(~f.col("file").isin(sorted(again)))
        return gone, self._write(kept, EVENTS), old

    def _messages(
        self, changed: DataFrame, current: Sequence[DataFile], days: set[str], new_events: set[str]
    ) -> tuple[list[DataFile], int, set[str]]:
        """The table of messages, how many were made anew, and other days whose latencies change."""
        with_id = changed.withColumn("id", f.expr(silver.ID)).where("id IS NOT NULL")
        touched = with_id.select("id").distinct()
        base = self.base.files(MESSAGES)
        was = self._frame(MESSAGES, base)
        spans = []
        if base:
            touched = touched.persist()
            known = was.withColumnRenamed("network_message_id", "id").join(touched, "id", "left_semi")
            spans = known.groupBy("day", f.to_date("last_at").alias("last")).count().collect()
        replaced = {row.day.isoformat() for row in spans}
        concerned = days | {day for row in spans for day in _days(row.day, row.last)}
        files = [one for one in current if one.day in concerned]
        rows = self._frame(EVENTS, files, silver.COLUMNS)
        if {one.path for one in files} - new_events:  # else there are no other messages in them
            rows = rows.withColumn("id", f.expr(silver.ID)).join(touched, "id", "left_semi").drop("id")
        made = silver.messages(silver.once(rows, self.doubtful)).select(*TABLES[MESSAGES].names)
        of_days = [one for one in base if one.day in replaced]
        if of_days:
            others = touched.withColumnRenamed("id", "network_message_id")
            kept = self._frame(MESSAGES, of_days).join(others, "network_message_id", "left_anti")
            made = made.unionByName(kept.select(made.columns))
        new = [one.file for one in self._write(made.hint("rebalance", "day"), MESSAGES)]
        many = sum(one.rows for one in new) - sum(one.rows for one in of_days) + sum(row[2] for row in spans)
        further: set[str] = set()
        if concerned - days:
            began = with_id.where(BEGINS).select("id").distinct()
            sent = rows.where(f.col("event_id").isin(*_DELIVERIES)).withColumn("id", f.expr(silver.ID))
            found = sent.join(began, "id", "left_semi").select("day").distinct().collect()
            further = {row.day.isoformat() for row in found}
        touched.unpersist()
        return [one for one in base if one.day not in replaced] + new, many, further

    def _sums(
        self, current: Sequence[DataFile], messages: Sequence[DataFile], days: set[str], passed: set[str]
    ) -> dict[str, Sequence[DataFile]]:
        """Gold: of ``days``, and latencies of the days ``passed``."""
        begun = [one for one in messages if one.day and (one.last or "") >= min(passed, default="9999")]
        first = min((one.day or "" for one in begun), default="")
        last = max((one.last or "" for one in begun), default="")
        with_origins = [one for one in current if one.day and first <= one.day <= last]
        wide = self._frame(EVENTS, with_origins, silver.COLUMNS).where(
            f.expr(BEGINS)
            | (f.col("event_id").isin(*_DELIVERIES) & f.col("day").isin(*map(date.fromisoformat, passed)))
        )
        silver.once(wide, self.doubtful).createOrReplaceTempView("events")
        self.spark.sql(gold.DELIVERIES).createOrReplaceTempView("deliveries")
        frames = {name: self.spark.sql(query) for name, query in gold.PASSED.items()}
        of_days = self._frame(EVENTS, [one for one in current if one.day in days], silver.COLUMNS)
        silver.once(of_days, self.doubtful).createOrReplaceTempView("events")
        frames |= {name: self.spark.sql(query) for name, query in gold.SUMS.items()}
        with ThreadPoolExecutor(_AT_ONCE) as pool:  # they are small: Spark has room for several
            made = dict(zip(frames, pool.map(self._summed, frames, frames.values()), strict=True))
        found: dict[str, Sequence[DataFile]] = {}
        for name in GOLD:
            anew = passed if name == LATENCIES else days
            found[name] = [one for one in self.base.files(name) if one.day not in anew] + made[name]
        return found

    def _summed(self, name: str, rows: DataFrame) -> list[DataFile]:
        """A table of sums, which is as small as its days are few: this process writes it."""
        told = rows.select(*TABLES[name].names).toArrow()
        found = [one.file for one in parts.write(self.run.place, name, self.run.prefix, told.to_batches())]
        self.written += [one.path for one in found]
        return found

    def _frame(self, table: str, files: Sequence[DataFile], columns: Sequence[str] = ()) -> DataFrame:
        return source.frame(self.spark, self.run.place, table, files, columns)

    def _write(self, rows: DataFrame, table: str) -> list[Written]:
        found = writer.write(rows.select(*TABLES[table].names), self.run, table)
        self.written += [one.file.path for one in found]
        return found


def _days(first: date, last: date) -> list[str]:
    return [(first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1)]
