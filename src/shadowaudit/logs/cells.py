"""Cells of a block, left where they are in its octets: a column is where each of its cells begins and ends.

What is asked of them (equal ones, a beginning, a number) is answered for all rows at once, eight octets at a
time.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shadowaudit.core.fingerprint import key_of

Long = NDArray[np.int64]
Octets = NDArray[np.uint8]
Words = NDArray[np.uint64]

SLACK = 128
"""Octets that have to follow the last cell: they are read, but never looked at."""

_SHORT = 96  # octets of a cell that are compared eight at a time
_KEEP = np.array([(1 << 8 * octets) - 1 for octets in range(9)], dtype=np.uint64)
_MIXING = np.uint64(0x9E3779B97F4A7C15)
_FOLDING = np.uint64(29)
_DASHES = [8, 13, 18, 23]
_PLACES = [place for place in range(36) if place not in _DASHES]


@dataclass(frozen=True, slots=True)
class Cells:
    """A column. ``data`` goes on for ``SLACK`` octets after the last cell; ``head``: what ``words`` finds."""

    data: Octets
    begin: Long
    end: Long
    head: Words | None = None

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

    def at(self, where: NDArray[Any]) -> Cells:
        """Of some rows: their numbers, or a truth for each row."""
        return Cells(self.data, self.begin[where], self.end[where])

    def after(self, size: int) -> Cells:
        """Each cell without its first octets."""
        head = None
        if self.head is not None and (left := self.head.shape[1] * 8 - size) >= 8:
            octets = self.head.view(np.uint8)[:, size : size + left // 8 * 8]
            head = np.ascontiguousarray(octets).view("<u8")
        return Cells(self.data, self.begin + size, self.end, head)

    def octets(self, row: int) -> bytes:
        return self.data[self.begin[row] : self.end[row]].tobytes()

    def text(self, row: int) -> str:
        return self.octets(row).decode("utf-8", "replace")

    def words(self, size: int) -> Words:
        """What stands from where each cell begins, in words; also what is beyond its end."""
        width = (size + 7) // 8 * 8
        if self.head is not None and width // 8 <= self.head.shape[1]:
            return self.head[:, : width // 8]
        shape = (max(0, len(self.data) - width + 1),)
        at_any = np.ndarray(shape, f"V{width}", buffer=self.data, strides=(1,))
        found: Words = at_any[self.begin].view("<u8").reshape(len(self), width // 8)
        return found

    def begins(self, prefix: bytes) -> NDArray[np.bool_]:
        """Which cells begin with that. Not for long ones."""
        found: NDArray[np.bool_] = self.lengths >= len(prefix)
        wanted, masks = template(prefix, b"\xff" * len(prefix))
        here = self.words(len(prefix))
        for place, (word, mask) in enumerate(zip(wanted, masks, strict=True)):
            found &= (here[:, place] & mask) == word
        return found

    def number(self) -> tuple[Long, Long]:
        """Equal cells have equal numbers: the row in which each was first, and each row's number."""
        lengths = self.lengths
        short = lengths <= _SHORT
        if short.all():
            return self._compared(lengths)
        first, which = self.at(short)._compared(lengths[short])
        rows, numbers = np.flatnonzero(short), np.empty(len(self), dtype=np.int64)
        numbers[rows] = which
        known: dict[bytes, int] = {}
        firsts = rows[first].tolist()
        for row in np.flatnonzero(~short).tolist():
            numbers[row] = place = known.setdefault(self.octets(row), len(firsts))
            if place == len(firsts):
                firsts.append(row)
        return np.array(firsts, dtype=np.int64), numbers

    def _compared(self, lengths: Long) -> tuple[Long, Long]:
        words = self.words(max(8, int(lengths.max(initial=0)))).copy()
        shortest = int(lengths.min(initial=0))
        mixed = lengths.view(np.uint64) * _MIXING
        for place in range(words.shape[1]):
            column = words[:, place]
            if shortest < 8 * place + 8:
                column &= _KEEP[np.minimum(np.maximum(lengths - 8 * place, 0), 8)]
            mixed = (mixed ^ column) * _MIXING
            mixed ^= mixed >> _FOLDING
        first, which = numbered(mixed)
        if (words[first].take(which, 0) == words).all() and (lengths[first][which] == lengths).all():
            return first, which
        # Two cells of one hash: as good as never, unless somebody searched for them.
        both = np.column_stack([words, lengths.view(np.uint64)])
        _, first, which = np.unique(both, axis=0, return_index=True, return_inverse=True)
        return first.astype(np.int64), which.reshape(-1).astype(np.int64)

    def arrow(self) -> Any:
        """As an Arrow array of strings."""
        size, lengths = len(self), self.lengths
        length = int(lengths[0]) if size else 0
        if not 0 < length <= _SHORT or (lengths != length).any():
            return pa.array([self.text(row) for row in range(size)], pa.string())
        text = np.ascontiguousarray(self.words(length).view(np.uint8).reshape(size, -1)[:, :length])
        ends = np.arange(size + 1, dtype=np.int32) * length
        return pa.StringArray.from_buffers(size, pa.py_buffer(ends), pa.py_buffer(text))

    def texts(self) -> tuple[list[str], Long]:
        """Each distinct text once, and for each row the number of its own."""
        first, which = self.number()
        return [self.text(row) for row in first.tolist()], which


def template(wanted: bytes, mask: bytes) -> tuple[Words, Words]:
    """Octets that are looked for, and those of them that count, in words."""
    size = (len(wanted) + 7) // 8 * 8
    masks = np.frombuffer(mask.ljust(size, b"\0"), "<u8")
    return np.frombuffer(wanted.ljust(size, b"\0"), "<u8") & masks, masks


def numbered(values: Words) -> tuple[Long, Long]:
    """Equal values have equal numbers: the row in which each was first, and each row's number."""
    encoded = pa.array(values.view(np.int64)).dictionary_encode()
    which = encoded.indices.to_numpy().astype(np.int64)
    first = np.empty(len(encoded.dictionary), dtype=np.int64)
    first[which[::-1]] = np.arange(len(values) - 1, -1, -1)  # where rows share a number, the last one stays
    return first, which


def keys(ids: Cells) -> tuple[Long, Long, Long]:
    """Each row's message by number, and each message's id as two words (``core.fingerprint.key_of``)."""
    first, message = ids.number()
    return message, *_identities(ids.at(first))


def _identities(ids: Cells) -> tuple[Long, Long]:
    both = np.zeros((len(ids), 2), dtype=np.int64)
    uuids = ids.lengths == 36
    octets = ids.at(uuids).words(36).view(np.uint8).reshape(-1, 40)
    try:
        if (octets[:, _DASHES] != ord("-")).any():
            raise ValueError
        digits = np.ascontiguousarray(octets[:, _PLACES])
        both[uuids] = np.frombuffer(binascii.unhexlify(digits.tobytes()), ">i8").reshape(-1, 2)
    except ValueError:  # one of them is none: slowly
        uuids[:] = False
    for place in np.flatnonzero(~uuids).tolist():
        if text := ids.text(place):
            both[place] = key_of(text)
    return both[:, 0].copy(), both[:, 1].copy()
