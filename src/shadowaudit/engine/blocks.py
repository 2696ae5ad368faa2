"""Partial states on their way from the tasks that read to those that merge: Arrow files, a batch a bucket.

A column has as many octets a value as its values in that file need.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shadowaudit.engine.messages import bucket_of
from shadowaudit.logs.fold import GREATEST, LEAST, SCHEMA
from shadowaudit.logs.groups import NONE_GREATEST, NONE_LEAST

Long = NDArray[np.int64]

_FLUSH = 300_000  # states that are written at once
_NONE = dict.fromkeys(LEAST, NONE_LEAST) | dict.fromkeys(GREATEST, NONE_GREATEST)
_TYPES = tuple(np.dtype(f"i{size}") for size in (1, 2, 4, 8))
_NAMES = (*SCHEMA.names, "file")
_BASES = b"bases"


@dataclass(frozen=True, slots=True)
class Blocks:
    """``paths``: of the Arrow files. ``files``: the logs as their states number them, if not as the job."""

    buckets: int
    paths: tuple[str, ...]
    files: tuple[str, ...] = ()


class Writer:
    """Takes states file by file. Each Arrow file is written once enough are there; again changes nothing."""

    def __init__(self, directory: str, name: str, buckets: int) -> None:
        self._directory, self._name, self._buckets = Path(directory), name, buckets
        self._waiting: list[Any] = []
        self._written = 0

    def add(self, table: Any, number: int | None = None) -> list[str]:
        """States (``fold.SCHEMA``) of the file with that number, or with a column ``file``; paths written."""
        if number is not None:
            table = table.append_column("file", pa.array(np.full(len(table), number, dtype=np.int32)))
        self._waiting.append(table)
        return self.finish() if sum(map(len, self._waiting)) >= _FLUSH else []

    def finish(self) -> list[str]:
        """Write what waits."""
        tables, self._waiting = [one for one in self._waiting if len(one)], []
        if not tables:
            return []
        path = self._directory / f"{self._name}-{self._written:05}.arrow"
        self._written += 1
        table = pa.concat_tables(tables)
        publish(path, lambda target: self._write(table, target))
        return [str(path)]

    def _write(self, table: Any, target: Path) -> None:
        given = {name: table.column(name).to_numpy() for name in _NAMES}
        bucket = bucket_of(given["high"], given["low"], self._buckets)
        order = np.argsort(bucket, kind="stable")
        arrays, bases = [], {}
        for name in _NAMES:
            narrow, bases[name] = _narrowed(given.pop(name), _NONE.get(name))
            arrays.append(pa.array(narrow.take(order)))
        shape = pa.schema(
            [pa.field(name, array.type) for name, array in zip(_NAMES, arrays, strict=True)],
            metadata={_BASES: json.dumps(bases)},
        )
        batch = pa.record_batch(arrays, schema=shape)
        ends = np.cumsum(np.bincount(bucket, minlength=self._buckets)).tolist()
        with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, shape) as writer:
            for begin, end in zip([0, *ends[:-1]], ends, strict=True):
                writer.write_batch(batch.slice(begin, end - begin))


class Reader:
    """States by bucket, from all files."""

    def __init__(self, blocks: Blocks, files: Sequence[str]) -> None:
        """``files``: the logs that count, by the numbers that states shall have."""
        self._files = [pa.ipc.open_file(pa.OSFile(path)) for path in blocks.paths]
        self._bases = [json.loads(one.schema.metadata[_BASES]) for one in self._files]
        numbers = {path: number for number, path in enumerate(files)}
        self._numbers = np.array([numbers.get(path, -1) for path in blocks.files or files], dtype=np.int64)

    def states(self, bucket: int) -> Any:
        """All states of the messages in that bucket: ``fold.SCHEMA`` in 64 bits, and ``file``."""
        batches = [one.get_batch(bucket) for one in self._files]
        found = {name: self._column(batches, place, name) for place, name in enumerate(_NAMES)}
        found["file"] = self._numbers[found["file"]]
        keep = found["file"] >= 0
        if not keep.all():
            found = {name: values[keep] for name, values in found.items()}
        return pa.table(found)

    def _column(self, batches: Sequence[Any], place: int, name: str) -> Long:
        found = np.empty(sum(map(len, batches)), dtype=np.int64)
        none, begin = _NONE.get(name), 0
        for batch, bases in zip(batches, self._bases, strict=True):
            part = found[begin : begin + len(batch)]
            part[:] = batch.column(place).to_numpy()
            begin += len(batch)
            if none is not None:
                missing = part == 0
                part += bases[name]
                part[missing] = none
        return found


def _narrowed(values: Any, none: int | None) -> tuple[Any, int]:
    """The same values in fewer octets. Of least and greatest, 0 is none, and others are more than a base."""
    if none is None:
        low, high = int(values.min()), int(values.max())
        return values.astype(_type(low, high), copy=False), 0
    some = values != none
    if not some.any():
        return np.zeros(len(values), dtype=_TYPES[0]), 0
    filled = np.where(some, values, values[np.argmax(some)])
    base = int(filled.min()) - 1
    filled -= base
    filled *= some
    return filled.astype(_type(0, int(filled.max()))), base


def _type(low: int, high: int) -> np.dtype[Any]:
    return next(one for one in _TYPES if np.iinfo(one).min <= low and high <= np.iinfo(one).max)


def publish(target: Path, write: Callable[[Path], object]) -> None:
    """Written whole or not at all, and again if it is there."""
    hidden = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    write(hidden)
    hidden.replace(target)
