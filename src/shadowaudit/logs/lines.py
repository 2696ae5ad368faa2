"""A file as blocks of whole rows, without comments. Memory is bounded by a block and the longest row."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shadowaudit.core.facts import Flavour
from shadowaudit.logs.layout import Layout

BLOCK = 8 << 20
_ROOM = 1 << 20  # for the row that a block ends in
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Block:
    """Rows in a piece. ``starts``: where each begins in ``data``, and the end; ``offsets``: in the file.

    ``data`` holds other rows as soon as the next block is asked for.
    """

    data: bytes | memoryview
    starts: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @property
    def rows(self) -> int:
        return len(self.starts) - 1

    def row(self, index: int) -> bytes:
        return bytes(self.data[self.starts[index] : self.starts[index + 1]])


class Reading:
    """One pass over a file: blocks of rows, and the hash of what its footer covers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.layout = Layout()
        self.covered = hashlib.sha256()
        self.size = 0

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        """Raises OSError. One buffer serves for all: memory that is new costs more than the reading."""
        buffer = bytearray(size + _ROOM)
        have = at = 0  # octets in the buffer, and where in the file the first of them is
        with self.path.open("rb", buffering=0) as file:
            while True:
                if have + size > len(buffer):  # a row longer than a block
                    buffer = buffer[:have] + bytearray(have + size)
                count = file.readinto(memoryview(buffer)[have : have + size])
                if not count:
                    break
                begin = 0
                if not self.size and buffer.startswith(_BOM):
                    self.covered.update(_BOM)
                    begin = len(_BOM)
                self.size += count
                have += count
                end = max(self._whole(buffer, have), begin)
                if end > begin:
                    yield from self._block(memoryview(buffer)[begin:end], at + begin)
                buffer[: have - end] = buffer[end:have]
                have, at = have - end, at + end
            if have:
                yield from self._block(memoryview(buffer)[:have], at)

    def _whole(self, data: bytearray, size: int) -> int:
        """Where the last whole row ends. A line break in quotes is none, in Exchange's logs."""
        end = data.rfind(b"\n", 0, size) + 1
        if (
            self.layout.flavour is Flavour.RELAY
            or data.find(b"#Software: shadowrelay", 0, min(size, 200)) >= 0
        ):
            return end
        limit = data.count(b'"', 0, end)
        while end > 0 and limit % 2:
            shorter = data.rfind(b"\n", 0, end - 1) + 1
            limit -= data.count(b'"', shorter, end)
            end = shorter
        return end

    def _block(self, data: memoryview, at: int) -> Iterator[Block]:
        raw = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(raw == 10) + 1
        if not len(ends) or ends[-1] != len(data):
            ends = np.append(ends, len(data))
        starts = np.concatenate(([0], ends))
        hashes = np.flatnonzero(raw[starts[:-1]] == ord("#"))
        covered = len(data)
        for line in hashes:
            text = bytes(data[starts[line] : starts[line + 1]])
            had = self.layout.footer
            self.layout.comment(text)
            if self.layout.footer is not had:
                covered = int(starts[line])
                self.layout.trailing = self.layout.trailing or int(starts[line + 1]) < len(data)
        if self.layout.footer is not None and covered == len(data):
            self.layout.trailing = True
        self.covered.update(data[:covered])
        if self.layout.flavour is not Flavour.RELAY:
            starts = _joined(np.flatnonzero(raw == ord('"')), starts)
        keep = np.ones(len(starts) - 1, dtype=bool)
        keep[raw[starts[:-1]] == ord("#")] = False
        blank = (starts[1:] - starts[:-1] <= 2) & ((raw[starts[:-1]] == 10) | (raw[starts[:-1]] == 13))
        keep[blank] = False
        rows = np.flatnonzero(keep)
        if len(rows) and rows[-1] - rows[0] + 1 == len(rows):  # comments at the edges only
            inner = starts[rows[0] : rows[-1] + 2]
            yield Block(data[inner[0] : inner[-1]], inner - inner[0], inner + at)
        elif len(rows):
            yield _kept(data, starts, keep, at)


def _joined(quotes: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Row starts without those that are within quotes; all of them if quotes are not in pairs."""
    if not len(quotes) or len(quotes) % 2:
        return starts
    inside = np.searchsorted(quotes, starts) % 2 == 1
    kept: NDArray[np.int64] = starts[~inside]
    return kept


def _kept(data: memoryview, starts: NDArray[np.int64], keep: NDArray[np.bool_], at: int) -> Block:
    """The rows that are none of the comments, moved together."""
    lengths = (starts[1:] - starts[:-1])[keep]
    begins = starts[:-1][keep]
    runs = np.flatnonzero(np.append(True, begins[1:] != begins[:-1] + lengths[:-1]))
    bounds = np.append(runs, len(begins))
    pieces = [data[begins[one] : begins[other - 1] + lengths[other - 1]] for one, other in pairwise(bounds)]
    moved = np.concatenate(([0], np.cumsum(lengths)))
    return Block(b"".join(pieces), moved, np.append(begins + at, begins[-1] + lengths[-1] + at))
