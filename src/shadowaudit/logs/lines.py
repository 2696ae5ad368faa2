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
from shadowaudit.logs.layout import BOM, Layout

BLOCK = 12 << 20  # files have 10 MB unless somebody wanted others
_ROOM = 1 << 20  # for the row that a block ends in, and ``SLACK``

_HEAD = 64


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
        self.headers: list[int] = []  # where the lines are that name other columns than those above
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
            if not self.size and buffer.startswith(BOM, 0, count):
                self._sum.update(BOM)
                begin = len(BOM)
            self.size += count
            have += count
            end = max(self._whole(buffer, have, at), begin)
            if end > begin:
                yield from self._block(np.frombuffer(buffer, np.uint8)[begin:], end - begin, at + begin)
            buffer[: have - end] = buffer[end:have]
            have, at = have - end, at + end
        if have:
            yield from self._block(np.frombuffer(buffer, np.uint8), have, at)

    def _whole(self, data: bytearray, size: int, at: int) -> int:
        """Where the last whole row ends. In Exchange's logs a line break in quotes ends no row."""
        end = data.rfind(b"\n", 0, size) + 1
        head = data[: min(size, 200)].partition(b'"')[0] if not at else b""  # no header was read yet
        if self.layout.flavour is Flavour.RELAY or b"#Software: shadowrelay" in head:
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
        lines = _Lines(raw, marks, np.concatenate(([0], ends)))
        covered, above = size, 0  # ``above``: the first line of the rows whose columns are known
        for line in self._comments(lines):
            text = raw[lines.texts[line] : lines.starts[line + 1]].tobytes()
            if self.layout.renames(text):
                yield from self._rows(octets, lines, above, line, at, number)
                self.headers.append(at + int(lines.texts[line]))
                above = line
            had = self.layout.footer
            self.layout.comment(text)
            if self.layout.footer is not had:
                covered = int(lines.starts[line])
                self.layout.trailing = self.layout.trailing or int(lines.starts[line + 1]) < size
        if self.layout.footer is not None and covered == size:
            self.layout.trailing = True
        self._sum.update(raw[:covered].data)
        yield from self._rows(octets, lines, above, len(lines.texts), at, number)

    def _comments(self, lines: _Lines) -> Iterator[int]:
        """The comment lines, by number. In Exchange's logs a line within quotes is none."""
        for line in np.flatnonzero(lines.firsts == ord("#")).tolist():
            if self.layout.flavour is Flavour.RELAY or not lines.within(line):
                yield line

    def _rows(
        self, octets: Octets, lines: _Lines, above: int, below: int, at: int, number: int
    ) -> Iterator[Block]:
        """The rows of those lines."""
        starts, texts, firsts = (
            lines.starts[above : below + 1],
            lines.texts[above:below],
            lines.firsts[above:below],
        )
        if self.layout.flavour is not Flavour.RELAY and len(lines.quotes):
            whole = lines.whole(above, below)
            starts, texts, firsts = np.append(starts[:-1][whole], starts[-1]), texts[whole], firsts[whole]
        keep = firsts != ord("#")
        keep[(starts[1:] - texts <= 2) & ((firsts == 10) | (firsts == 13) | (starts[1:] == texts))] = False
        if keep.any():
            yield Block(octets, texts[keep], starts[1:][keep], at, lines.marks, number)


class _Lines:
    """The lines of a block: where each begins (``starts``, and the end of the last), where its text does
    (``texts``: behind a byte order mark), and the first octet of that. ``quotes``: where they are.
    """

    def __init__(self, raw: Octets, marks: NDArray[Any], starts: Long) -> None:
        self.marks, self.starts, self.texts = marks, starts, starts[:-1]
        self.firsts = raw[self.texts]
        marked = [one for one in np.flatnonzero(self.firsts == BOM[0]) if _marked(raw, int(starts[one]))]
        if marked:
            self.texts = self.texts.copy()
            self.texts[marked] += len(BOM)
            self.firsts = raw[np.minimum(self.texts, len(raw) - 1)]
        self.quotes = marks[raw[marks] == ord('"')]
        self._paired = len(self.quotes) % 2 == 0

    def within(self, line: int) -> bool:
        """Does that line begin within quotes? None does, if quotes are not in pairs."""
        return self._paired and bool(np.searchsorted(self.quotes, self.starts[line]) % 2)

    def whole(self, above: int, below: int) -> NDArray[np.bool_]:
        """Which of those lines do not begin within quotes. All, if quotes are not in pairs."""
        before = np.searchsorted(self.quotes, self.starts[above : below + 1])
        found: NDArray[np.bool_] = (before[:-1] - before[0]) % 2 == 0
        return found | bool((before[-1] - before[0]) % 2)


def _marked(raw: Octets, at: int) -> bool:
    return raw[at : at + len(BOM)].tobytes() == BOM
