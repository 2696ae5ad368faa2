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
from shadowaudit.logs.cells import SLACK, Long, Octets
from shadowaudit.logs.hashing import Hashed, sha256_of
from shadowaudit.logs.layout import Layout

BLOCK = 12 << 20  # files have 10 MB unless somebody wanted others
_ROOM = 1 << 20  # for the row that a block ends in, and ``SLACK``

PART = 1 << 18
"""Octets that are searched in a step: they stay in the processor's cache."""

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Block:
    """Rows in a piece. ``starts``: where each begins in ``octets``, and the end; ``offsets``: in the file.

    ``octets`` go on for ``SLACK`` after the last row, and hold others when the next block is asked for.
    """

    octets: Octets
    starts: Long
    offsets: Long

    @property
    def rows(self) -> int:
        return len(self.starts) - 1

    @property
    def raw(self) -> Octets:
        return self.octets[: self.starts[-1]]

    @property
    def data(self) -> memoryview:
        return self.raw.data

    def row(self, index: int) -> bytes:
        return self.octets[self.starts[index] : self.starts[index + 1]].tobytes()

    def only(self, keep: NDArray[np.bool_]) -> Block:
        """Some of the rows, moved together."""
        lengths = np.diff(self.starts)[keep]
        begins = self.starts[:-1][keep]
        runs = np.flatnonzero(np.append(True, begins[1:] != begins[:-1] + lengths[:-1]))
        bounds = np.append(runs, len(begins))
        pieces = [
            self.octets[begins[one] : begins[other - 1] + lengths[other - 1]]
            for one, other in pairwise(bounds)
        ]
        offsets, size = self.offsets[:-1][keep], lengths[-1]
        return Block(
            np.concatenate([*pieces, np.zeros(SLACK, dtype=np.uint8)]),
            np.concatenate(([0], np.cumsum(lengths))),
            np.append(offsets, offsets[-1] + size),
        )


class Reading:
    """One pass over a file: blocks of rows, and the hash of what its footer covers.

    ``known``: that hash, made before of this very file. One that covers something else is made again.
    """

    def __init__(self, path: Path, known: Hashed | None = None) -> None:
        self.path = path
        self.layout = Layout()
        self.size = 0
        self._known = known
        self._covered, self._sum = 0, hashlib.sha256()

    def sha256(self) -> str:
        """Of what was read, without what the footer is and follows it. Raises OSError."""
        if self._known is None:
            return self._sum.hexdigest()
        if self._known.covered == self._covered:
            return self._known.sha256
        return sha256_of(self.path, self._covered)

    def _cover(self, octets: bytes | memoryview) -> None:
        self._covered += len(octets)
        if self._known is None:
            self._sum.update(octets)

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        """Raises OSError. One buffer serves for all: memory that is new costs more than the reading."""
        buffer = bytearray(size + _ROOM)
        have = at = 0  # octets in the buffer, and where in the file the first of them is
        with self.path.open("rb", buffering=0) as file:
            while True:
                if have + size + SLACK > len(buffer):  # a row longer than a block
                    buffer = buffer[:have] + bytearray(have + size + SLACK)
                count = file.readinto(memoryview(buffer)[have : have + size])
                if not count:
                    break
                begin = 0
                if not self.size and buffer.startswith(_BOM):
                    self._cover(_BOM)
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

    def _block(self, octets: Octets, size: int, at: int) -> Iterator[Block]:
        raw = octets[:size]
        ends = places(raw, ord("\n")) + 1
        if not len(ends) or ends[-1] != size:
            ends = np.append(ends, size)
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
        self._cover(raw[:covered].data)
        if self.layout.flavour is not Flavour.RELAY:
            starts = _joined(places(raw, ord('"')), starts)
            firsts = raw[starts[:-1]]
        keep = firsts != ord("#")
        keep[(np.diff(starts) <= 2) & ((firsts == 10) | (firsts == 13))] = False
        rows = np.flatnonzero(keep)
        if not len(rows):
            return
        if rows[-1] - rows[0] + 1 == len(rows):  # comments at the edges only
            inner = starts[rows[0] : rows[-1] + 2]
            yield Block(octets[inner[0] :], inner - inner[0], inner + at)
        else:
            yield Block(octets, starts, starts + at).only(keep)


def _joined(quotes: Long, starts: Long) -> Long:
    """Row starts without those that are within quotes; all of them if quotes are not in pairs."""
    if not len(quotes) or len(quotes) % 2:
        return starts
    inside = np.searchsorted(quotes, starts) % 2 == 1
    kept: Long = starts[~inside]
    return kept


def places(raw: Octets, octet: int, at: int = 0) -> Long:
    """Where that octet is, if ``raw`` begins at that place."""
    hits = np.empty(min(PART, len(raw)), dtype=bool)
    found = []
    for begin in range(0, len(raw), PART):
        part = raw[begin : begin + PART]
        some = np.flatnonzero(np.equal(part, octet, out=hits[: len(part)]))
        some += at + begin
        found.append(some)
    return np.concatenate(found) if len(found) != 1 else found[0]


def has(raw: Octets, octet: int) -> bool:
    """Is that octet there?"""
    hits = np.empty(min(PART, len(raw)), dtype=bool)
    parts = (raw[at : at + PART] for at in range(0, len(raw), PART))
    return any(bool(np.equal(part, octet, out=hits[: len(part)]).any()) for part in parts)


def count(raw: Octets, octet: int) -> int:
    """How often that octet is there."""
    hits = np.empty(min(PART, len(raw)), dtype=bool)
    parts = (raw[at : at + PART] for at in range(0, len(raw), PART))
    return sum(int(np.count_nonzero(np.equal(part, octet, out=hits[: len(part)]))) for part in parts)
