"""One job: the partial states of all files by message, one row each, and the suspects judged by their rows.

The engine spreads the work; states are in files, by bucket of messages (``engine.blocks``), and what is done
with them is numpy's. So what a task needs of memory is a bucket, however many messages there are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from shadowaudit.core.evidence import Evidence
from shadowaudit.core.facts import FileFacts
from shadowaudit.engine.blocks import Blocks
from shadowaudit.engine.exact import arrow_schema, findings_of
from shadowaudit.engine.spreading import spread
from shadowaudit.logs.state import State, states_in

_BUCKET = 150_000  # states: 40 MB
_BATCH = 1000  # findings
_MOST = 1 << 16
_MANY = {
    "high", "low", "id", "redirect_at", "origin_at", "accepted_at", "held_at", "final_at", "discard_at"
}  # fmt: skip
"""Columns of messages.parquet with many values. The others are small by a dictionary, and that is quick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a task has to know."""

    files: tuple[FileFacts, ...]  # by number: ``plain``
    evidence: Evidence
    messages: str  # directory: one table a bucket
    tallies: str  # directory: one JSON a bucket
    findings: str  # directory: one table a task
    width: int  # of the points of the curves, in milliseconds
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class States:
    """A Parquet file of partial states: of the file with that number, or with a number for each state."""

    path: str
    rows: int
    file: int | None = None


def buckets_of(states: int) -> int:
    """How many buckets so many partial states are spread over."""
    return min(_MOST, states // _BUCKET + 1)


def states_of(state: State, files: Sequence[FileFacts]) -> list[States]:
    """The tables of all these files, which are numbered by their order."""
    return [
        States(str(state.table_of(one.path).absolute()), one.messages, number)
        for number, one in enumerate(files)
        if one.messages
    ]


def plain(files: Sequence[FileFacts]) -> tuple[FileFacts, ...]:
    """With no more than their rows' readers need."""
    return tuple(
        FileFacts(
            path=one.path,
            node=one.node,
            database=one.database,
            boot=one.boot,
            flavour=one.flavour,
            messages=one.messages,
        )
        for one in files
    )


def split(session: Any, tables: Sequence[States], directory: Path, *, slices: int) -> Blocks:
    """The states in these tables by bucket, in Arrow files in that directory."""
    buckets = buckets_of(sum(one.rows for one in tables))
    frame, parts = spread(session, [((one.file, one.path), one.rows) for one in tables], slices)
    found = frame.mapInArrow(_splitting(buckets, parts, str(directory)), "path string").collect()
    return Blocks(buckets, tuple(sorted(row["path"] for row in found)))


def judge(session: Any, blocks: Blocks, job: Job, *, slices: int) -> None:
    """Merge and judge every message.

    Each task leaves messages, their tally and findings (``exact.SCHEMA``) in the job's directories: again the
    same if it is repeated.
    """
    frame, parts = spread(session, [((bucket,), 1) for bucket in range(blocks.buckets)], slices)
    frame.mapInArrow(_judging(job, blocks, parts), "part long").collect()


def _splitting(
    buckets: int, parts: list[list[tuple[Any, ...]]], directory: str
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from shadowaudit.engine.blocks import Writer

        for part in [number for batch in batches for number in batch.column("id").to_pylist()]:
            writer = Writer(directory, f"{part:05}", buckets)
            paths: list[str] = []
            for number, path in parts[part]:
                paths += writer.add(states_in(path), number)
            yield pa.RecordBatch.from_pydict({"path": pa.array([*paths, *writer.finish()], pa.string())})

    return run


def _judging(
    job: Job, blocks: Blocks, parts: list[list[tuple[Any, ...]]]
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from shadowaudit.engine.blocks import Reader, publish

        reader = Reader(blocks, [one.path for one in job.files])
        sources: dict[int, Any] = {}
        for batch in batches:
            for part in batch.column("id").to_pylist():
                suspects = (
                    suspect
                    for (bucket,) in parts[part]
                    for suspect in _merged(job, bucket, reader.states(bucket))
                )
                rows = (
                    row
                    for key, places in suspects
                    for row in findings_of(key, places, job.files, sources, job.evidence)
                )
                publish(Path(job.findings, f"part-{part:05}.parquet"), partial(_write, rows))
            yield pa.RecordBatch.from_pydict({"part": batch.column("id")})

    return run


def _write(rows: Iterator[dict[str, Any]], target: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetWriter(target, arrow_schema()) as writer:
        while some := list(islice(rows, _BATCH)):
            writer.write_batch(pa.RecordBatch.from_pylist(some, schema=arrow_schema()))


def _merged(job: Job, bucket: int, states: Any) -> Iterator[Any]:
    """Write a bucket's messages and their tally; returns the suspects."""
    from pyarrow import parquet

    from shadowaudit.engine.blocks import publish
    from shadowaudit.engine.messages import Messages, Origins
    from shadowaudit.engine.totals import tally

    if not len(states):
        return iter(())
    messages = Messages([states], Origins.of(job.files))
    if job.since is not None or job.until is not None:
        messages.within(job.since, job.until)
    if not len(messages.suspect):
        return iter(())
    table = messages.table()
    few = [name for name in table.column_names if name not in _MANY]
    publish(
        Path(job.messages, f"part-{bucket:05}.parquet"),
        lambda target: parquet.write_table(
            table, target, compression="none", use_dictionary=few, write_statistics=False
        ),
    )
    told = json.dumps(tally(messages, job.width))
    publish(Path(job.tallies, f"{bucket:05}.json"), lambda target: target.write_text(told, "utf-8"))
    return messages.suspects()
