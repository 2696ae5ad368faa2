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
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Block:
    """Rows in a piece. ``starts``: where each begins in ``data``, and the end; ``offsets``: in the file."""

    data: bytes
    starts: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @property
    def rows(self) -> int:
        return len(self.starts) - 1

    def row(self, index: int) -> bytes:
        return self.data[self.starts[index] : self.starts[index + 1]]


class Reading:
    """One pass over a file: blocks of rows, and the hash of what its footer covers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.layout = Layout()
        self.covered = hashlib.sha256()
        self.size = 0

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        """Raises OSError."""
        rest = b""
        at = 0  # offset in the file of the first octet of ``rest``
        with self.path.open("rb", buffering=0) as file:
            while piece := file.read(size):
                first = not self.size
                self.size += len(piece)
                data = rest + piece
                end = self._whole(data)
                if first and data.startswith(_BOM):
                    self.covered.update(_BOM)
                    data, at, end = data[len(_BOM) :], at + len(_BOM), end - len(_BOM)
                rest = data[max(end, 0) :]
                if end > 0:
                    yield from self._block(data[:end], at)
                    at += end
            if rest:
                yield from self._block(rest, at)

    def _whole(self, data: bytes) -> int:
        """Where the last whole row ends. A line break in quotes is none, in Exchange's logs."""
        end = data.rfind(b"\n") + 1
        if self.layout.flavour is Flavour.RELAY or b"#Software: shadowrelay" in data[:200]:
            return end
        limit = data.count(b'"', 0, end)
        while end > 0 and limit % 2:
            shorter = data.rfind(b"\n", 0, end - 1) + 1
            limit -= data.count(b'"', shorter, end)
            end = shorter
        return end

    def _block(self, data: bytes, at: int) -> Iterator[Block]:
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10).astype(np.int64) + 1
        if not len(ends) or ends[-1] != len(data):
            ends = np.append(ends, len(data))
        starts = np.concatenate(([0], ends))
        raw = np.frombuffer(data, np.uint8)
        hashes = np.flatnonzero(raw[starts[:-1]] == ord("#"))
        covered = len(data)
        for line in hashes:
            text = data[starts[line] : starts[line + 1]]
            had = self.layout.footer
            self.layout.comment(text)
            if self.layout.footer is not had:
                covered = int(starts[line])
                self.layout.trailing = self.layout.trailing or int(starts[line + 1]) < len(data)
        if self.layout.footer is not None and covered == len(data):
            self.layout.trailing = True
        self.covered.update(data[:covered])
        if self.layout.flavour is not Flavour.RELAY and data.count(b'"') % 2 == 0:
            starts = _joined(data, starts)
        keep = np.ones(len(starts) - 1, dtype=bool)
        keep[raw[starts[:-1]] == ord("#")] = False
        blank = (starts[1:] - starts[:-1] <= 2) & ((raw[starts[:-1]] == 10) | (raw[starts[:-1]] == 13))
        keep[blank] = False
        if keep.all():
            yield Block(data, starts, starts + at)
        elif keep.any():
            yield _kept(data, starts, keep, at)


def _joined(data: bytes, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Row starts without those that are within quotes."""
    if b'"' not in data:
        return starts
    quotes = np.flatnonzero(np.frombuffer(data, np.uint8) == ord('"'))
    inside = np.searchsorted(quotes, starts) % 2 == 1
    kept: NDArray[np.int64] = starts[~inside]
    return kept


def _kept(data: bytes, starts: NDArray[np.int64], keep: NDArray[np.bool_], at: int) -> Block:
    """The rows that are none of the comments, moved together."""
    lengths = (starts[1:] - starts[:-1])[keep]
    begins = starts[:-1][keep]
    runs = np.flatnonzero(np.append(True, begins[1:] != begins[:-1] + lengths[:-1]))
    bounds = np.append(runs, len(begins))
    view = memoryview(data)
    pieces = [view[begins[one] : begins[other - 1] + lengths[other - 1]] for one, other in pairwise(bounds)]
    moved = np.concatenate(([0], np.cumsum(lengths)))
    return Block(b"".join(pieces), moved, np.append(begins + at, begins[-1] + lengths[-1] + at))
