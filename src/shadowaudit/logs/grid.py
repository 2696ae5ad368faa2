"""Rows of our logs taken apart at their commas. Those with quotes, or with anything odd, are parsed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shadowaudit.logs.cells import Cells, Long
from shadowaudit.logs.lines import PART, Block, count, has, places
from shadowaudit.logs.rows import is_text, read


@dataclass(frozen=True, slots=True)
class Grid:
    """Columns of a block that could be read. ``index``: each row's number in the block."""

    columns: dict[str, Cells]
    index: Long
    unreadable: tuple[int, ...]

    def __getitem__(self, name: str) -> Cells:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.index)


def split(block: Block, fields: Sequence[str], wanted: Mapping[str, int]) -> Grid:
    """The wanted columns of a block; columns that ``fields`` does not name are empty.

    ``wanted``: and how many octets of each cell will be looked at, if all cells' are.

    A row must have exactly these fields. Whatever the rows hold, nothing is raised: those that cannot be read
    are named in ``unreadable``.
    """
    sheet = _Sheet(block, fields, wanted)
    plain, doubtful = np.zeros(block.rows, dtype=bool), np.zeros(block.rows, dtype=bool)
    cuts = np.searchsorted(block.starts, np.arange(PART, block.starts[-1], PART)).tolist()
    for first, last in pairwise(sorted({0, *cuts, block.rows})):
        good, doubt, commas = _plain(block, first, last, len(fields))
        plain[first:last], doubtful[first:last] = good, doubt
        starts, ends = block.starts[first:last], block.starts[first + 1 : last + 1] - 2
        sheet.add(starts, commas, ends) if good.all() else sheet.add(starts[good], commas, ends[good])
    found = sheet.grid(np.flatnonzero(plain))
    if len(found) == block.rows:
        return found
    bad = tuple(np.flatnonzero(~plain & ~doubtful).tolist())
    if doubtful.any():
        found = _both(found, _parsed(block, doubtful, fields, wanted))
    return Grid(found.columns, found.index, tuple(sorted(bad + found.unreadable)))


class _Sheet:
    """Where cells are, of one part of a block after the other: as long as its octets are at hand."""

    def __init__(self, block: Block, fields: Sequence[str], wanted: Mapping[str, int]) -> None:
        self._octets, self._rows, self._last = block.octets, 0, len(fields) - 1
        self._places = {name: fields.index(name) if name in fields else None for name in wanted}
        self._begin = {name: np.zeros(block.rows, dtype=np.int64) for name in wanted}
        self._end = {name: np.zeros(block.rows, dtype=np.int64) for name in wanted}
        self._heads = {
            name: np.empty((block.rows, size // 8), dtype=np.uint64) for name, size in wanted.items() if size
        }

    def add(self, starts: Long, commas: Long, ends: Long) -> None:
        rows = slice(self._rows, self._rows + len(commas))
        self._rows = rows.stop
        for name, place in self._places.items():
            if place is None:
                continue
            begin = self._begin[name][rows]
            np.add(commas[:, place - 1], 1, out=begin) if place else np.copyto(begin, starts)
            self._end[name][rows] = commas[:, place] if place < self._last else ends
        for name, head in self._heads.items():
            begin = self._begin[name][rows]
            head[rows] = Cells(self._octets, begin, begin).words(head.shape[1] * 8)

    def grid(self, index: Long) -> Grid:
        rows = slice(0, self._rows)
        columns = {
            name: Cells(
                self._octets,
                self._begin[name][rows],
                self._end[name][rows],
                self._heads[name][rows] if name in self._heads else None,
            )
            for name in self._begin
        }
        return Grid(columns, index, ())


def _plain(
    block: Block, first: int, last: int, fields: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Long]:
    """Which of these rows are nothing but so many cells and CRLF, and where each one's commas are.

    Second: which only a parser can tell of, since they have quotes, or may be no text. The others are none.
    """
    starts, rows, each = block.starts[first : last + 1], last - first, fields - 1
    at = int(starts[0])
    raw, begins, ends = block.octets[at : starts[-1]], starts[:-1], starts[1:]
    doubtful = np.zeros(rows, dtype=bool)
    if not each or not is_text(raw.data):
        return doubtful, ~doubtful, np.zeros((0, max(0, each)), dtype=np.int64)
    plain = (ends - begins >= 2) & (block.octets[ends - 1] == 10) & (block.octets[ends - 2] == 13)
    if has(raw, ord('"')):
        doubtful[np.searchsorted(starts, places(raw, ord('"'), at), "right") - 1] = True
        plain &= ~doubtful
    if count(raw, ord("\r")) != rows or not plain.all():
        returns = places(raw, ord("\r"), at)
        row = np.searchsorted(starts, returns, "right") - 1
        plain[row[returns != ends[row] - 2]] = False
    commas = places(raw, ord(","), at)
    if len(commas) == rows * each and plain.all():
        grid = commas.reshape(rows, each)
        if (grid[:, 0] >= begins).all() and (grid[:, -1] < ends).all():
            return plain, doubtful, grid
    counts = np.diff(np.searchsorted(commas, starts))
    plain &= counts == each
    return plain, doubtful, commas[np.repeat(plain, counts)].reshape(-1, each)


def _parsed(block: Block, which: NDArray[np.bool_], fields: Sequence[str], wanted: Iterable[str]) -> Grid:
    where = np.flatnonzero(which)
    table = read(block.only(which), fields, tuple(wanted), strict=True)
    columns = {name: Cells.of(table[name]) for name in wanted}
    return Grid(columns, where[table.index], tuple(where[list(table.unreadable)].tolist()))


def _both(one: Grid, other: Grid) -> Grid:
    """Rows of two grids in their order."""
    index = np.concatenate([one.index, other.index])
    order = np.argsort(index, kind="stable")
    pieces = [next(iter(one.columns.values())).data, *(cells.data for cells in other.columns.values())]
    data, moved = np.concatenate(pieces), len(pieces[0])
    columns = {}
    for name, more in other.columns.items():
        begin = np.concatenate([one[name].begin, more.begin + moved])[order]
        end = np.concatenate([one[name].end, more.end + moved])[order]
        columns[name] = Cells(data, begin, end)
        moved += len(more.data)
    return Grid(columns, index[order], one.unreadable + other.unreadable)
