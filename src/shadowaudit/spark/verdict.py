"""What Spark's tasks do for a verdict: merge a bucket of blocks, and judge suspects by their rows.

The pure functions of ``engine``, as ``applyInArrow`` wants them. Results are files in cells, which the driver
writes as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from shadowaudit.engine.answers import write_findings, write_messages
from shadowaudit.engine.blocks import unpacked
from shadowaudit.engine.exact import judged
from shadowaudit.engine.merge import Suspect, merge
from shadowaudit.engine.port import Asked
from shadowaudit.spark.places import Log, Ranges
from shadowaudit.spark.states import BLOCK

MERGED = "bucket int, part int, messages binary, tally string, suspects string"
"""For each bucket: a row with its messages and their tally, and rows with some of its suspects each."""

JUDGED = "bucket int, part int, findings binary"

_MERGED = pa.schema(
    [
        ("bucket", pa.int32()),
        ("part", pa.int32()),
        ("messages", pa.binary()),
        ("tally", pa.string()),
        ("suspects", pa.string()),
    ]
)
_JUDGED = pa.schema([("bucket", pa.int32()), ("part", pa.int32()), ("findings", pa.binary())])


def merging(asked: Asked, logs: Sequence[str], together: int) -> Any:
    """For all blocks of a bucket: rows of ``MERGED``, with no more suspects ``together``.

    ``logs``: names, by the numbers that states have.
    """

    def run(key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cells = [cell for batch in batches for cell in batch.column(BLOCK)]
        found = merge(asked, unpacked(memoryview(cell.as_buffer()) for cell in cells), logs)
        if found is None:
            return
        del cells
        sink = pa.BufferOutputStream()
        write_messages(found.messages, sink)
        where = {"bucket": key[0].as_py(), "part": 0}
        yield _row(_MERGED, where, messages=sink.getvalue(), tally=json.dumps(found.tally))
        for part, some in enumerate(_by(together, found.suspects)):
            yield _row(_MERGED, where | {"part": part}, suspects=json.dumps(some))

    return run


def judging(asked: Asked, logs: Sequence[Log]) -> Any:
    """For some suspects of a bucket: a row of ``JUDGED``. ``logs``: where their rows are."""

    def run(key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        texts = [text for batch in batches for text in batch.column("suspects").to_pylist()]
        sink = pa.BufferOutputStream()
        with Ranges(logs) as ranges:
            suspects = (suspect for text in texts for suspect in _heard(text))
            write_findings(judged(suspects, asked, ranges.read), sink)
        yield _row(_JUDGED, {"bucket": key[0].as_py(), "part": key[1].as_py()}, findings=sink.getvalue())

    return run


def _by(many: int, suspects: Iterator[Suspect]) -> Iterator[list[Suspect]]:
    while some := list(islice(suspects, many)):
        yield some


def _heard(text: str) -> Iterator[Suspect]:
    for (high, low), parts in json.loads(text):
        yield (high, low), [(file, begin, end) for file, begin, end in parts]


def _row(shape: Any, where: dict[str, int], **cells: Any) -> Any:
    values = where | cells
    arrays = [
        _cell(values[field.name]) if isinstance(values.get(field.name), pa.Buffer)
        else pa.array([values.get(field.name)], field.type)
        for field in shape
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(arrays, schema=shape)


def _cell(octets: Any) -> Any:
    """One cell of those octets, without a copy."""
    ends = pa.py_buffer(np.array([0, octets.size], dtype=np.int32))
    return pa.BinaryArray.from_buffers(pa.binary(), 1, [None, ends, octets])
