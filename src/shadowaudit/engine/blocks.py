"""Partial states on their way from those who read to those who merge: blocks of octets, each of one bucket.

A column has as many octets a value as its values in that table need.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shadowaudit.engine.messages import bucket_of
from shadowaudit.logs.fold import GREATEST, LEAST, SCHEMA
from shadowaudit.logs.groups import NONE_GREATEST, NONE_LEAST

Long = NDArray[np.int64]
States = Mapping[str, Long]
"""Partial states: the columns of ``fold.SCHEMA`` in 64 bits, and ``file``, the number of each state's log."""

NAMES = (*SCHEMA.names, "file")

_NONE = dict.fromkeys(LEAST, NONE_LEAST) | dict.fromkeys(GREATEST, NONE_GREATEST)
_TYPES = tuple(np.dtype(f"<i{size}") for size in (1, 2, 4, 8))
_HEAD = 4  # octets: how long the head is


def packed(states: Mapping[str, Any], buckets: int) -> Iterator[tuple[int, bytes]]:
    """Each bucket that has states, and a block of them. The order of the states in it is theirs here."""
    bucket = bucket_of(states["high"], states["low"], buckets)
    order = np.argsort(bucket, kind="stable")
    columns, shape = [], []
    for name in NAMES:
        narrow, base = _narrowed(states[name], _NONE.get(name))
        columns.append(narrow.take(order))
        shape.append((narrow.dtype.str, base))
    begin = 0
    for number, size in enumerate(np.bincount(bucket, minlength=buckets).tolist()):
        if size:
            head = json.dumps([size, shape]).encode()
            cells = (column[begin : begin + size].tobytes() for column in columns)
            yield number, b"".join((len(head).to_bytes(_HEAD, "little"), head, *cells))
            begin += size


def unpacked(blocks: Iterable[bytes | memoryview]) -> dict[str, Long]:
    """The states in these blocks, one block after the other."""
    told = [_head(memoryview(block)) for block in blocks]
    found = {name: np.empty(sum(size for size, _, _ in told), dtype=np.int64) for name in NAMES}
    begin = 0
    for size, shape, cells in told:
        at = 0
        for name, (kind, base) in zip(NAMES, shape, strict=True):
            values = np.frombuffer(cells, kind, size, at)
            at += values.nbytes
            part = found[name][begin : begin + size]
            part[:] = values
            if (none := _NONE.get(name)) is not None:
                part += base
                part[values == 0] = none
        begin += size
    return found


def _head(block: memoryview) -> tuple[int, list[tuple[str, int]], memoryview]:
    end = _HEAD + int.from_bytes(block[:_HEAD], "little")
    size, shape = json.loads(bytes(block[_HEAD:end]))
    return size, shape, block[end:]


def _narrowed(values: Any, none: int | None) -> tuple[Any, int]:
    """The same values in fewer octets. Of least and greatest, 0 is none, and others are more than a base."""
    if not len(values):
        return values.astype(_TYPES[0]), 0
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
