"""One group-by: the partial states of all files to one row a message, and which of them are suspect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shadowaudit.core.judge import LATE_DISCARD
from shadowaudit.logs.fold import GREATEST, LEAST, SUMS


def merged(session: Any, tables: Sequence[str]) -> Any:
    """One row a message: its partial states merged, and ``suspect``.

    A message is not suspect when its state alone proves it: accepted once, after a copy was made in the same
    database; as many copies taken as were said to be; every recipient ended once, and in each database
    whatever came in went out again. Everything else is judged from its rows.
    """
    from pyspark.sql import functions as f

    frame = session.read.parquet(*tables)
    sums = [f.sum(name).alias(name) for name in SUMS]
    least = [f.min(name).alias(name) for name in LEAST if name != "file_from"]
    greatest = [f.max(name).alias(name) for name in GREATEST if name != "file_to"]
    grouped = frame.groupBy("high", "low").agg(*sums, *least, *greatest)
    return grouped.withColumn("suspect", ~f.coalesce(_proven(f), f.lit(False)))


def _proven(f: Any) -> Any:
    accepted = (
        (f.col("received") == 1)
        & (f.col("redirects") >= 1)
        & (f.col("redirect_at") < f.col("origin_at"))
        & (f.col("redirect_db") == f.col("origin_db"))
        & (f.col("redirect_db_last") == f.col("origin_db"))
    )
    made_here = f.col("received") == 0
    weaker = (f.col("received") == 1) & (f.col("redirects") == 0) & (f.col("exchange") == 1)
    settled = (f.col("ended") == f.col("recipients")) & (f.col("owed") == 0)
    closed = (f.col("balance") == 0) & (f.col("residue") == 0)
    held = (f.col("redirects") == f.col("holds")) & (f.col("holders") == 0)
    once = (f.col("origins") == 1) & (f.col("odd") == 0)
    late = f.coalesce(f.col("discard_at") > f.col("final_at") + LATE_DISCARD, f.lit(False))
    return once & (accepted | made_here | weaker) & settled & closed & held & ~late


def pieces(session: Any, tables: Sequence[str], suspects: Any) -> Any:
    """For each suspect, the parts of files in which its rows are: (high, low, pieces)."""
    from pyspark.sql import functions as f

    frame = session.read.parquet(*tables).select("high", "low", "path", "file_from", "file_to")
    found = frame.join(suspects.select("high", "low"), ["high", "low"])
    part = f.struct("path", f.col("file_from").alias("begin"), f.col("file_to").alias("end"))
    return found.groupBy("high", "low").agg(f.collect_list(part).alias("pieces"))
