"""A file as blocks of whole rows, without comments. Memory is bounded by a block and the longest row."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shadowaudit.core.facts import Flavour
from shadowaudit.logs import loops
from shadowaudit.logs.cells import SLACK, Long, Octets
from shadowaudit.logs.layout import Layout

BLOCK = 12 << 20  # files have 10 MB unless somebody wanted others
_ROOM = 1 << 20  # for the row that a block ends in, and ``SLACK``

_HEAD = 64
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Block:
    """Rows in a piece of a file. ``begins``, ``ends``: where each is in ``octets``, which begin ``at`` there.

    ``marks``: where commas, quotes and carriage returns are, in rows and between them. ``octets`` go on for
    ``SLACK`` after the last row; they and the marks are others when the next block is asked for. ``line``:
    the number in the file, from 1 on, of the line that ``octets`` begin with.
    """

    octets: Octets
    begins: Long
    ends: Long
    at: int
    marks: NDArray[Any]
    line: int = 1

    @property
    def lines(self) -> Long:
        """The number in the file of each row's first line."""
        ends = np.flatnonzero(self.octets[: self.begins[-1]] == ord("\n"))
        return self.line + np.searchsorted(ends, self.begins)

    @property
    def rows(self) -> int:
        return len(self.begins)

    @property
    def data(self) -> memoryview:
        """The rows, one after the other."""
        runs = np.flatnonzero(self.begins[1:] != self.ends[:-1]) + 1
        pieces = [
            self.octets[self.begins[one] : self.ends[other - 1]]
            for one, other in pairwise([0, *runs.tolist(), self.rows])
        ]
        return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces)).data

    def row(self, index: int) -> bytes:
        return self.octets[self.begins[index] : self.ends[index]].tobytes()

    def only(self, keep: NDArray[np.bool_]) -> Block:
        """Some of the rows."""
        return Block(self.octets, self.begins[keep], self.ends[keep], self.at, self.marks, self.line)


class Readable(Protocol):
    """A file that is open for reading."""

    def readinto(self, into: Any, /) -> int | None:
        """Fill it, or its beginning; 0 at the end."""


class Begun:
    """A file whose first octets (``head``) were read already. Reading gives them again."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        head = bytearray(_HEAD)
        self.head = bytes(head[: file.readinto(head) or 0])
        self._left = self.head

    def readinto(self, into: Any, /) -> int:
        begin, self._left = self._left, b""
        into[: len(begin)] = begin
        return len(begin) + (self._file.readinto(into[len(begin) :]) or 0)


class Room:
    """Memory that serves for one block after the other, also of several files: new one costs a tenth more."""

    def __init__(self) -> None:
        self.octets = bytearray(BLOCK + _ROOM)
        self._hits = np.zeros(loops.PART + 8, dtype=np.uint8)
        self._marks: NDArray[Any] = np.empty(0, dtype=np.int32)
        self._ends = self._marks

    def marked(self, raw: Octets) -> tuple[NDArray[Any], NDArray[Any]]:
        """Where commas, quotes and carriage returns are; and where each line ends, the last one anyway."""
        if len(raw) >= len(self._ends):
            # As many as could be: what is not needed takes no memory.
            size, place = len(raw) + 1, np.int32 if len(raw) < 1 << 31 else np.int64
            self._marks, self._ends = np.empty(size, place), np.empty(size, place)
        marks, lines = loops.marked(raw, self._hits, self._hits.view(np.int64), self._marks, self._ends)
        if not lines or self._ends[lines - 1] != len(raw):
            self._ends[lines] = len(raw)
            lines += 1
        return self._marks[:marks], self._ends[:lines]


class Reading:
    """One pass over a file: blocks of rows, and the hash of what its footer covers."""

    def __init__(self, path: Path, room: Room | None = None) -> None:
        self.path = path
        self.layout = Layout()
        self.size = 0
        self._line = 1
        self._room = room or Room()
        self._sum = hashlib.sha256()

    def sha256(self) -> str:
        """Of what was read, without what the footer is and follows it."""
        return self._sum.hexdigest()

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        """Raises OSError."""
        with self.path.open("rb", buffering=0) as file:
            yield from self.blocks_of(file, size)

    def blocks_of(self, file: Readable, size: int = BLOCK) -> Iterator[Block]:
        """Of a file that somebody opened, wherever it is. Raises OSError."""
        buffer = self._room.octets  # with what was there before, beyond what is read
        have = at = 0  # octets in the buffer, and where in the file the first of them is
        while True:
            if have + size + SLACK > len(buffer):  # a row longer than a block
                buffer = buffer[:have] + bytearray(have + size + SLACK)
            count = file.readinto(memoryview(buffer)[have : have + size])
            if not count:
                break
            begin = 0
            if not self.size and buffer.startswith(_BOM, 0, count):
                self._sum.update(_BOM)
                begin = len(_BOM)
            self.size += count
            have += count
            end = max(self._whole(buffer, have), begin)
            if end > begin:
                yield from self._block(np.frombuffer(buffer, np.uint8)[begin:], end - begin, at + begin)
            buffer[: have - end] = buffer[end:have]
            have, at = have - end, at + end
        if have:
            yield from self._block(np.frombuffer(buffer, np.uint8), have, at)

    def _whole(self, data: bytearray, size: int) -> int:
        """Where the last whole row ends. In Exchange's logs a line break in quotes ends no row."""
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

    def _block(self, octets: Octets, size: int, at: int) -> Iterator[Block]:
        raw = octets[:size]
        marks, ends = self._room.marked(raw)
        number, self._line = self._line, self._line + len(ends)
        starts = np.concatenate(([0], ends))
        firsts = raw[starts[:-1]]
        covered = size
        for line in np.flatnonzero(firsts == ord("#")):
            text = raw[starts[line] : starts[line + 1]].tobytes()
            had = self.layout.footer
            self.layout.comment(text)
            if self.layout.footer is not had:
                covered = int(starts[line])
                self.layout.trailing = self.layout.trailing or int(starts[line + 1]) < size
        if self.layout.footer is not None and covered == size:
            self.layout.trailing = True
        self._sum.update(raw[:covered].data)
        if self.layout.flavour is not Flavour.RELAY:
            starts = _joined(marks[raw[marks] == ord('"')], starts)
            firsts = raw[starts[:-1]]
        keep = firsts != ord("#")
        keep[(np.diff(starts) <= 2) & ((firsts == 10) | (firsts == 13))] = False
        if keep.any():
            yield Block(octets, starts[:-1][keep], starts[1:][keep], at, marks, number)


def _joined(quotes: NDArray[Any], starts: Long) -> Long:
    """Row starts without those that are within quotes; all of them if quotes are not in pairs."""
    if not len(quotes) or len(quotes) % 2:
        return starts
    inside = np.searchsorted(quotes, starts) % 2 == 1
    kept: Long = starts[~inside]
    return kept
