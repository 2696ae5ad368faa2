"""The verdict on Spark: blocks of states from a data source, merged and judged by ``applyInArrow``.

    logs ─▶ blocks and facts, on the executors' disks ─▶ facts to the driver, which weighs them
         ─▶ groupBy bucket: merge ─▶ groupBy some suspects: judge ─▶ cell by cell to the driver, which writes

Executors and driver share the logs, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from shadowaudit.core.facts import FileFacts
from shadowaudit.engine import port
from shadowaudit.engine.answers import keep_messages, keep_table, keep_tally
from shadowaudit.engine.merge import buckets_for
from shadowaudit.engine.port import EngineError, Job
from shadowaudit.spark.places import Log, Ranges
from shadowaudit.spark.planning import SHUFFLE, merging_tasks
from shadowaudit.spark.states import BLOCK, BUCKET, FACTS, LOG, NAME, States, told
from shadowaudit.spark.verdict import JUDGED, MERGED, judging, merging

_SETTINGS = {
    # A row is a block of states, or a file: some at a time are a batch already, and memory for it is short.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
}
_MOST_A_TASK, _LEAST_A_TASK = 128 << 20, 8 << 20  # octets of logs
_SUSPECTS = 1000  # that one task judges
_TASKS = 4
"""For each core: the last ones of a job keep fewer cores waiting."""


class SparkEngine:
    """Works in a session that somebody else opens and stops."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._tasks = Tasks(spark)
        self._held: _Held | None = None
        spark.dataSource.register(States)

    @property
    def name(self) -> str:
        """With the version: ``spark 4.2``."""
        return f"spark {'.'.join(self._spark.version.split('.')[:2])}"

    def tasks(self) -> tuple[int, int]:
        return self._tasks.now()

    def read(self, logs: Sequence[port.Log]) -> _Held:
        """What was read before is let go."""
        if self._held is not None:
            self._held.forget()
        with _failing(), _settings(self._spark, 0):
            self._held = _Held(self._spark, [_located(one) for one in logs])
        return self._held


class _Held:
    def __init__(self, spark: Any, logs: Sequence[Log]) -> None:
        self._logs, self._spark = logs, spark
        self._size = size = sum(log.size for log in logs)
        frame = (
            spark.read.format(NAME)
            .option("logs", told(logs))
            .option("buckets", buckets_for(size))
            .option("maxPartitionBytes", _part(size, _cores(spark)))
            .load()
        )
        self._states = frame.persist(StorageLevel.DISK_ONLY)
        rows = self._states.where(F.col(FACTS).isNotNull()).select(LOG, FACTS).collect()
        found = {row[LOG]: FileFacts.from_json(row[FACTS]) for row in rows}
        self._facts = [found[number] for number in range(len(logs))]

    @property
    def facts(self) -> Sequence[FileFacts]:
        return self._facts

    def octets(self, name: str, begin: int, end: int) -> bytes:
        with Ranges(self._logs) as ranges:
            return ranges.read(name, begin, end)

    def forget(self) -> None:
        """Free the disks."""
        self._states.unpersist()

    def judge(self, job: Job) -> None:
        asked = job.asked
        counted = {one.path for one in asked.files}
        blocks = self._states.where(F.col(BUCKET).isNotNull()).select(BUCKET, BLOCK)
        merge = merging(asked, [log.uri for log in self._logs], _SUSPECTS)
        judge = judging(asked, [log for log in self._logs if log.uri in counted])
        with _failing(), _settings(self._spark, self._size), ExitStack() as stack:
            merged = stack.enter_context(_kept(blocks.groupBy(BUCKET).applyInArrow(merge, MERGED)))
            suspects = merged.where(F.col("suspects").isNotNull()).select("bucket", "part", "suspects")
            judged = stack.enter_context(
                _kept(suspects.groupBy("bucket", "part").applyInArrow(judge, JUDGED))
            )
            judged.count()  # both are made by all tasks at once: an iterator would ask for one part at a time
            for number, row in enumerate(judged.toLocalIterator(prefetchPartitions=True)):
                keep_table(job, number, _writer(row["findings"]))
            for row in merged.where(F.col("tally").isNotNull()).toLocalIterator(prefetchPartitions=True):
                keep_messages(job, row["bucket"], _writer(row["messages"]))
                keep_tally(job, row["bucket"], row["tally"])


def _writer(octets: bytes) -> Any:
    return lambda target: target.write_bytes(octets)


def _located(log: port.Log) -> Log:
    """Where its octets are; a name that is no URI is a path."""
    return log if isinstance(log, Log) else Log(log.name, log.size, log.modified, log.name, log.name)


def _part(size: int, cores: int) -> int:
    """Octets of logs that a task reads."""
    return max(_LEAST_A_TASK, min(_MOST_A_TASK, size // (cores * _TASKS)))


def _cores(spark: Any) -> int:
    """How many tasks run at a time. A Connect server does not say."""
    return 1 if on_server(spark) else int(spark.sparkContext.defaultParallelism)


@contextmanager
def _settings(spark: Any, octets: int) -> Iterator[None]:
    """What work on so many octets of logs needs, while the context lasts: the session is somebody else's."""
    tasks = merging_tasks(octets, int(spark.conf.get(SHUFFLE)))
    wanted = {**_SETTINGS, SHUFFLE: str(tasks)}
    before = {name: spark.conf.get(name) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@contextmanager
def _kept(frame: Any) -> Iterator[Any]:
    """On the executors' disks once it is made, for as long as the context."""
    frame = frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield frame
    finally:
        frame.unpersist()


@contextmanager
def _failing() -> Iterator[None]:
    """What Spark cannot do is told in a line. Raises EngineError."""
    try:
        yield
    except (PySparkException, Py4JError) as problem:
        raise EngineError(f"Spark failed: {_said(str(problem))}") from problem


def _said(text: str) -> str:
    """What Python in a task said last; or else what Java said."""
    python = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception): .+$", text.partition("\n\tat ")[0], re.MULTILINE)
    java = re.findall(r"^: (?:[\w$]+\.)*([\w$]+: .+)$", text, re.MULTILINE)
    return str((python[-1:] or java[:1] or [text.strip().partition("\n")[0]])[0])[:300]


def on_server(spark: Any) -> bool:
    """Is it a session of a Connect server? Such a one has no SparkContext here."""
    return not hasattr(spark, "sparkContext")


class Tasks:
    """Of the stages that run: done, and all."""

    def __init__(self, spark: Any) -> None:
        self._tracker: Any = None
        self._told = (0, 0)
        if on_server(spark):
            spark.registerProgressHandler(self._hear)
        else:
            self._tracker = spark.sparkContext.statusTracker()

    def now(self) -> tuple[int, int]:
        """(0, 0) when nothing runs, or the session is being closed."""
        if self._tracker is None:
            return self._told
        try:
            found = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        except Exception:  # Java is going
            return 0, 0
        stages = [stage for stage in found if stage]
        return sum(one.numCompletedTasks for one in stages), sum(one.numTasks for one in stages)

    def _hear(
        self, *, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        """As Spark Connect calls it."""
        del inflight_tasks, operation_id
        known = [] if done or stages is None else list(stages)
        self._told = sum(one.num_completed_tasks for one in known), sum(one.num_tasks for one in known)
