"""New logs into the tables: events as they are, the messages that they are about, sums of their days.

One function does it for a batch and for a turn of a stream, so both give the same tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from shadowaudit.core.events import DELIVERIES
from shadowaudit.spark import planning
from shadowaudit.spark.places import Log
from shadowaudit.spark.tables import gold, silver, source, tasks
from shadowaudit.spark.tables.data import Written, write
from shadowaudit.spark.tables.logs import Known
from shadowaudit.spark.tables.publishing import SWEPT, Run, sweep
from shadowaudit.spark.tables.schemas import EVENTS, LATENCIES, MESSAGES, TABLES
from shadowaudit.spark.tables.store import DataFile, Place, TablesError, state
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
        base = state(self.place)
        new = sorted(Known.of(base).new(logs), key=lambda log: (log.modified, log.uri))
        if not new:
            yield Told(base.version)
        for some in planning.parts(new, TURN):
            yield self.fold(source.events_of(self.spark, some), some, now(), listed=True)

    def fold(self, events: DataFrame, logs: Sequence[Log], now: datetime, *, listed: bool = False) -> Told:
        """Publish tables with these events, which take the place of what was there of their logs.

        ``logs``: looked for before the events are read; ``listed``: the events are of just these. Whatever is
        raised, what was current stays so: TakenError if another run was faster, OSError, what Spark raises.
        """
        run = Run.begun(self.place, now)
        told = _Turn(self.spark, run, self.step).made(events, {log.uri: log for log in logs}, listed=listed)
        if told.version % SWEPT == 0 and told.version > run.base.version:
            with suppress(TablesError, OSError):  # what stays is swept later
                sweep(self.place)
        return told


class _Turn:
    """What it writes is committed table by table; ``run`` makes all of it current at once."""

    def __init__(self, spark: SparkSession, run: Run, step: Step) -> None:
        self.spark, self.run, self.step = spark, run, step
        self.base, self.place = run.base, run.base.place
        self.known = Known.of(run.base)
        self.doubtful: list[str] = []

    def made(self, events: DataFrame, logs: Mapping[str, Log], *, listed: bool) -> Told:
        with self.step("Reading logs"):
            new = self._written(events.withColumn("day", f.to_date("date_time")), EVENTS)
        fresh = [one.file for one in new]
        facts = self.spark.sql(_FACTS, events=self._frame(EVENTS, fresh)).toArrow().to_pylist()
        read = {row["file"] for row in facts} | (set(logs) if listed else set())
        if not read:
            return Told(self.base.version)
        old, changed = self._replaced(read)
        self.run.commit(EVENTS, new)
        current = self.run.files(EVENTS)
        self.known = self.known.following(facts, {uri: log for uri, log in logs.items() if uri in read})
        self.doubtful = self.known.doubtful()
        days = {one.day for one in (*fresh, *old) if one.day}
        with self.step("Writing messages"):
            changed = changed.unionByName(self._frame(EVENTS, fresh, silver.COLUMNS))
            many, further = self._messages(changed, current, days, {one.path for one in fresh})
        with self.step("Writing sums"):
            self._sums(current, days, days | further)
        version = self.run.publish(self.known.write(self.place))
        unread = {row["file"]: row["problems"] for row in facts if row["problems"]}
        return Told(version, len(read), sum(one.rows for one in fresh), many, unread)

    def _replaced(self, read: set[str]) -> tuple[list[DataFile], DataFrame]:
        """Take away older events of logs that were read again: data files that had them, and these events."""
        again = sorted(read & self.known.rows.keys())
        of_days = self.known.days_of(again)
        old = [one for one in self.base.files(EVENTS) if one.day in of_days]
        gone = self._frame(EVENTS, old, silver.COLUMNS).where(f.col("file").isin(again))
        if again:
            names = ", ".join("'{}'".format(one.replace("'", "''")) for one in again)
            when = f"day BETWEEN '{min(of_days)}' AND '{max(of_days)}' OR " if of_days else ""
            self.run.delete(EVENTS, f"({when}day IS NULL) AND file IN ({names})")
        return old, gone

    def _messages(
        self, changed: DataFrame, current: Sequence[DataFile], days: set[str], new_events: set[str]
    ) -> tuple[int, set[str]]:
        """Write the table of messages: how many were made anew, and other days whose latencies change."""
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
        new = self._written(made.hint("rebalance", "day"), MESSAGES)
        self.run.commit(MESSAGES, new, of_days)
        many = (
            sum(one.file.rows for one in new)
            - sum(one.rows for one in of_days)
            + sum(row[2] for row in spans)
        )
        further: set[str] = set()
        if concerned - days:
            began = with_id.where(BEGINS).select("id").distinct()
            sent = rows.where(f.col("event_id").isin(*_DELIVERIES)).withColumn("id", f.expr(silver.ID))
            found = sent.join(began, "id", "left_semi").select("day").distinct().collect()
            further = {row.day.isoformat() for row in found}
        touched.unpersist()
        return many, further

    def _sums(self, current: Sequence[DataFile], days: set[str], passed: set[str]) -> None:
        """Gold: of ``days``, and latencies of the days ``passed``."""
        begun = [
            one
            for one in self.run.files(MESSAGES)
            if one.day and (one.last or "") >= min(passed, default="9999")
        ]
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
        anew = {name: passed if name == LATENCIES else days for name in frames}
        with ThreadPoolExecutor(_AT_ONCE) as pool:  # they are small: Spark has room for several
            list(pool.map(self._summed, frames, frames.values(), anew.values()))

    def _summed(self, name: str, rows: DataFrame, days: set[str]) -> None:
        """A table of sums, which is as small as its days are few: this process writes it."""
        told = rows.select(*TABLES[name].names).toArrow()
        gone = [one for one in self.base.files(name) if one.day in days]
        self.run.commit(name, write(self.place, name, told.to_batches()), gone)

    def _frame(self, table: str, files: Sequence[DataFile], columns: Sequence[str] = ()) -> DataFrame:
        return tasks.frame(self.spark, self.place, table, files, columns)

    def _written(self, rows: DataFrame, table: str) -> list[Written]:
        return tasks.written(rows.select(*TABLES[table].names), self.place, table)


def _days(first: date, last: date) -> list[str]:
    return [(first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1)]
