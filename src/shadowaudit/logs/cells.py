"""Cells of a block, left where they are in its octets: a column is where each cell begins and ends."""

from __future__ import annotations

from dataclasses import dataclass
from string import hexdigits
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shadowaudit.core.fingerprint import key_of
from shadowaudit.logs import loops

Long = NDArray[np.int64]
Octets = NDArray[np.uint8]

SLACK = 8
"""Octets that have to follow the last cell: they are read, but never looked at."""

KEEP = np.array([*((1 << 8 * octets) - 1 for octets in range(8)), -1], dtype=np.int64)

_DIGITS = np.array([int(chr(octet), 16) if chr(octet) in hexdigits else -1 for octet in range(256)])
"""Hexadecimal ones."""


@dataclass(frozen=True, slots=True)
class Cells:
    """A column. ``data`` goes on for ``SLACK`` octets after the last cell."""

    data: Octets
    begin: Long
    end: Long

    @classmethod
    def of(cls, texts: Any) -> Cells:
        """Of an Arrow array of strings."""
        offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
        data = np.zeros(int(offsets[-1]) + SLACK, dtype=np.uint8)
        if offsets[-1]:
            data[:-SLACK] = np.frombuffer(texts.buffers()[2], np.uint8, count=int(offsets[-1]))
        places = offsets.astype(np.int64)
        return cls(data, places[:-1], places[1:])

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def lengths(self) -> Long:
        return self.end - self.begin

    @property
    def words(self) -> Long:
        """The octets eight at a time, from each place on."""
        return np.ndarray((len(self.data) - SLACK + 1,), "<i8", buffer=self.data, strides=(1,))

    def at(self, where: NDArray[Any] | slice) -> Cells:
        """Of some rows: which, their numbers, or a truth for each row."""
        return Cells(self.data, self.begin[where], self.end[where])

    def octets(self, row: int) -> bytes:
        return self.data[self.begin[row] : self.end[row]].tobytes()

    def text(self, row: int) -> str:
        return self.octets(row).decode("utf-8", "replace")

    def texts(self) -> list[str]:
        return [self.text(row) for row in range(len(self))]

    def begins(self, prefix: bytes) -> NDArray[np.bool_]:
        """Which cells begin with that."""
        found = np.empty(len(self), dtype=np.bool_)
        loops.beginning(self.begin, self.end, self.words, KEEP, packed(prefix), len(prefix), found)
        return found

    def numbered(self) -> tuple[Cells, Long]:
        """Each distinct cell once, and for each row the number of its own."""
        numbers = Numbers(self)
        numbers.add(slice(None))
        return numbers.distinct, numbers.of


class Numbers:
    """``of`` each row of a column its number: equal cells have equal ones. Rows are added in their order."""

    def __init__(self, column: Cells) -> None:
        rows = len(column)
        self._column = column
        self.of = np.empty(rows, dtype=np.int64)
        self._table = np.full(1 << (2 * rows).bit_length(), -1, dtype=np.int64)
        self._begin, self._end = np.empty((2, rows), dtype=np.int64)
        self._count = 0

    def add(self, rows: slice) -> Cells:
        """Returns the cells that were not there before."""
        column, before = self._column, self._count
        begin, end = column.begin[rows], column.end[rows]
        self._count = loops.numbered(
            begin, end, column.words, KEEP, self._table, self._begin, self._end, before, self.of[rows]
        )
        return self._from(before)

    @property
    def distinct(self) -> Cells:
        """Each cell once, by its number."""
        return self._from(0)

    def _from(self, first: int) -> Cells:
        return Cells(self._column.data, self._begin[first : self._count], self._end[first : self._count])


def packed(octets: bytes) -> Long:
    """The same in words."""
    return np.frombuffer(octets.ljust((len(octets) + 7) // 8 * 8, b"\0"), "<i8").astype(np.int64)


def keys(ids: Cells) -> tuple[Long, Long, NDArray[np.bool_]]:
    """Each id as two words (``core.fingerprint.key_of``), none as 0; and whether it is written as a UUID."""
    halves, good = np.empty((len(ids), 4), dtype=np.int64), np.empty(len(ids), dtype=np.bool_)
    loops.uuids(ids.begin, ids.end, ids.data, _DIGITS, halves, good)
    high, low = halves[:, 0] << 32 | halves[:, 1], halves[:, 2] << 32 | halves[:, 3]
    for row in np.flatnonzero(~good).tolist():
        high[row], low[row] = key_of(text) if (text := ids.text(row)) else (0, 0)
    return high, low, good
