"""One job: the partial states of all files by message, one row each, and the suspects judged by their rows.

The engine spreads the work and moves blocks of states, each of one bucket of messages, to where that
bucket is merged; what is done with the numbers in a block is Arrow's and numpy's. So what a task needs of
memory is a bucket, however many messages there are.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shadowaudit.core.evidence import Evidence
from shadowaudit.core.facts import FileFacts
from shadowaudit.engine.exact import SCHEMA, arrow_schema, findings_of
from shadowaudit.engine.spreading import spread

_BUCKET = 150_000  # states: 40 MB
_BATCH = 200  # findings
_MOST = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a task has to know. ``first`` to ``last``: the time that the curves show."""

    files: tuple[FileFacts, ...]  # with no more than their rows' readers need
    evidence: Evidence
    messages: str  # directory: one table a bucket
    tallies: str  # directory: one JSON a bucket
    buckets: int
    first: int
    last: int
    since: int | None = None
    until: int | None = None


def buckets_of(files: Sequence[FileFacts]) -> int:
    """How many buckets the messages of these files are spread over."""
    return min(_MOST, sum(one.messages for one in files) // _BUCKET + 1)


def judged(session: Any, tables: Sequence[tuple[int, str]], job: Job, *, slices: int) -> Any:
    """Findings (``exact.SCHEMA``). ``tables``: number in ``job.files`` and path of the states of each file.

    Each task leaves its messages and their tally in the job's directories: again the same if it is repeated.
    """
    weights = [job.files[number].messages for number, _ in tables]
    frame, parts = spread(session, list(zip(tables, weights, strict=True)), slices)
    split = frame.mapInArrow(_splitting(job.buckets, parts), "bucket int, data binary")
    return split.repartition(job.buckets, "bucket").mapInArrow(_judging(job), SCHEMA)


def _splitting(buckets: int, parts: list[list[tuple[Any, ...]]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import numpy as np
        import pyarrow as pa
        from pyarrow import parquet

        waiting: list[Any] = []
        for batch in batches:
            for number, path in [row for part in batch.column("id").to_pylist() for row in parts[part]]:
                table = parquet.read_table(path, use_threads=False, memory_map=True)
                file = pa.array(np.full(len(table), number, dtype=np.int32))
                waiting.append(table.append_column("file", file))
                if sum(map(len, waiting)) > _BUCKET * 2:
                    yield from _blocks(waiting, buckets)
                    waiting = []
        yield from _blocks(waiting, buckets)

    return run


def _blocks(tables: Sequence[Any], buckets: int) -> Iterator[Any]:
    import numpy as np
    import pyarrow as pa

    from shadowaudit.engine.messages import bucket_of

    if not tables:
        return
    table = pa.concat_tables(tables).combine_chunks()
    bucket = bucket_of(table["high"].to_numpy(), table["low"].to_numpy(), buckets)
    ordered = table.take(pa.array(np.argsort(bucket, kind="stable"))) if buckets > 1 else table
    ends = np.cumsum(np.bincount(bucket, minlength=buckets))
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    begin = 0
    for number, end in enumerate(ends.tolist()):
        if end > begin:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
                writer.write_table(ordered.slice(begin, end - begin))
            row = {"bucket": pa.array([number], pa.int32()), "data": pa.array([sink.getvalue().to_pybytes()])}
            yield pa.RecordBatch.from_pydict(row)
        begin = end


def _judging(job: Job) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        blocks: dict[int, list[bytes]] = defaultdict(list)
        for batch in batches:
            for bucket, data in zip(*(batch.column(n).to_pylist() for n in ("bucket", "data")), strict=True):
                blocks[bucket].append(data)
        sources: dict[int, Any] = {}
        rows: list[dict[str, Any]] = []
        for bucket in sorted(blocks):
            for key, parts in _merged(job, bucket, blocks.pop(bucket)):
                rows += findings_of(key, parts, job.files, sources, job.evidence)
                if len(rows) >= _BATCH:
                    yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema())
                    rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema())

    return run


def _merged(job: Job, bucket: int, blocks: Sequence[bytes]) -> Iterator[Any]:
    """Write a bucket's messages and their tally; returns the suspects."""
    import pyarrow as pa
    from pyarrow import parquet

    from shadowaudit.engine.messages import Messages, Origins
    from shadowaudit.engine.totals import tally

    messages = Messages([pa.ipc.open_stream(block).read_all() for block in blocks], Origins.of(job.files))
    if job.since is not None or job.until is not None:
        messages.within(job.since, job.until)
    if not len(messages.suspect):
        return iter(())
    _publish(
        Path(job.messages, f"part-{bucket:05}.parquet"),
        lambda target: parquet.write_table(
            messages.table(), target, compression="snappy", use_dictionary=False
        ),
    )
    told = json.dumps(tally(messages, job.first, job.last))
    _publish(Path(job.tallies, f"{bucket:05}.json"), lambda target: target.write_text(told, "utf-8"))
    return messages.suspects()


def _publish(target: Path, write: Callable[[Path], object]) -> None:
    import secrets

    hidden = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    write(hidden)
    hidden.replace(target)
