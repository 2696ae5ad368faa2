"""Keep the tables while logs arrive: a stream of new logs, each turn published as a batch is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame

from shadowaudit.spark import places
from shadowaudit.spark.tables import source
from shadowaudit.spark.tables.ingest import Ingest, Told
from shadowaudit.spark.tables.publishing import TakenError

_LOOK = 0.2


def _never(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def follow(
    ingest: Ingest,
    where: Sequence[str],
    told: Callable[[Told], None],
    *,
    seconds: float | None,
    ended: Callable[[float], bool] = _never,
    files: int | None = None,
) -> None:
    """Read what is new below these places every so many ``seconds``, until ``ended(wait)`` says so.

    ``seconds`` None: read what is there, and end. ``files``: logs of a turn, at most. The tables say where
    the stream begins, so its checkpoint is a scratch directory. It ends between two turns. If another run
    publishes meanwhile, it begins again from there. Raises what ``Ingest.fold`` raises.
    """
    while _Following(ingest, where, told, files).run(seconds, ended):
        pass


class _Following:
    def __init__(
        self, ingest: Ingest, where: Sequence[str], told: Callable[[Told], None], files: int | None
    ) -> None:
        self.ingest, self.where, self.told = ingest, [places.absolute(one) for one in where], told
        self.options = {"maxFilesPerTrigger": str(files)} if files else {}
        self.turns = threading.Lock()  # held during a turn
        self.over = False
        self.failure: Exception | None = None

    def run(self, seconds: float | None, ended: Callable[[float], bool]) -> bool:
        """True if it shall begin again."""
        events = source.events_beyond(self.ingest.spark, self.where, self.ingest.place.uri, self.options)
        with TemporaryDirectory(prefix="shadowaudit-", ignore_cleanup_errors=True) as checkpoint:
            sink = events.writeStream.foreachBatch(self._turn).option("checkpointLocation", checkpoint)
            trigger = {"availableNow": True} if seconds is None else {"processingTime": f"{seconds} seconds"}
            query = sink.trigger(**trigger).start()
            try:
                while query.isActive and not ended(_LOOK):
                    pass
                with self.turns:
                    self.over = True
            finally:
                query.stop()
            problem = query.exception()
        if isinstance(self.failure, TakenError) and seconds is not None:
            return True
        if self.failure is not None:
            raise self.failure
        if problem is not None:
            raise problem
        return False

    def _turn(self, events: DataFrame, number: int) -> None:
        del number
        with self.turns:
            if self.over:
                return
            try:
                logs = places.find(self.where)  # before the rows are read: what grows meanwhile is read again
                self.told(self.ingest.fold(events, logs, datetime.now(UTC)))
            except Exception as problem:
                self.failure = problem
                raise
