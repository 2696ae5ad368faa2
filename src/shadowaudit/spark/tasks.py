"""How far a session's jobs are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


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
