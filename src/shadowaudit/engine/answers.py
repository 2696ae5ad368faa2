"""What a bucket that was merged and judged leaves in a job's directories. Written whole, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from shadowaudit.engine.exact import arrow_schema
from shadowaudit.engine.merge import Merged
from shadowaudit.engine.port import Job
from shadowaudit.logs.publishing import publish

_BATCH = 1000  # findings
_MANY = {
    "high", "low", "id", "redirect_at", "origin_at", "accepted_at", "held_at", "final_at", "discard_at"
}  # fmt: skip
"""Columns of messages.parquet with many values. The others are small by a dictionary, and that is quick."""


def keep_merged(job: Job, bucket: int, merged: Merged) -> None:
    """Its messages, and what they count for. Again changes nothing. Raises OSError."""
    keep_messages(job, bucket, lambda target: write_messages(merged.messages, target))
    keep_tally(job, bucket, json.dumps(merged.tally))


def keep_messages(job: Job, bucket: int, write: Callable[[Path], object]) -> None:
    """``write`` makes the file (``write_messages``). Raises OSError."""
    publish(Path(job.messages, f"part-{bucket:05}.parquet"), write)


def keep_tally(job: Job, bucket: int, text: str) -> None:
    """``text``: a tally as JSON. Raises OSError."""
    publish(Path(job.tallies, f"{bucket:05}.json"), lambda target: target.write_text(text, "utf-8"))


def keep_findings(job: Job, part: int, rows: Iterable[dict[str, Any]]) -> None:
    """Rows of ``exact.SCHEMA``, in a table of their own for each ``part``. Raises OSError."""
    keep_table(job, part, partial(write_findings, rows))


def keep_table(job: Job, part: int, write: Callable[[Path], object]) -> None:
    """``write`` makes the file (``write_findings``). Raises OSError."""
    publish(Path(job.findings, f"part-{part:05}.parquet"), write)


def write_messages(messages: Any, target: Any) -> None:
    """A part of messages.parquet. ``target``: a path, or a file of Arrow's."""
    few = [name for name in messages.column_names if name not in _MANY]
    parquet.write_table(messages, target, compression="none", use_dictionary=few, write_statistics=False)


def write_findings(rows: Iterable[dict[str, Any]], target: Any) -> None:
    """A table of findings. ``target``: a path, or a file of Arrow's."""
    given = iter(rows)
    with parquet.ParquetWriter(target, arrow_schema()) as writer:
        while some := list(islice(given, _BATCH)):
            writer.write_batch(pa.RecordBatch.from_pylist(some, schema=arrow_schema()))
