"""Rows of our logs taken apart at their commas. Those with quotes, or with anything odd, are parsed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shadowaudit.logs import loops
from shadowaudit.logs.cells import Cells, Long
from shadowaudit.logs.lines import Block
from shadowaudit.logs.rows import not_text, read


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

    def only(self, rows: Long, unreadable: Long) -> Grid:
        """Those rows."""
        columns = {name: cells.at(rows) for name, cells in self.columns.items()}
        return Grid(columns, self.index[rows], tuple(unreadable.tolist()))


def split(block: Block, fields: Sequence[str], wanted: Sequence[str]) -> Grid:
    """The wanted columns of a block; columns that ``fields`` does not name are empty.

    A row must have exactly these fields. Whatever the rows hold, nothing is raised: those that cannot be read
    are named in ``unreadable``.
    """
    columns = np.array([wanted.index(name) if name in wanted else -1 for name in fields], dtype=np.int64)
    begin, end = np.empty((2, len(wanted), block.rows), dtype=np.int64)
    for place, name in enumerate(wanted):
        if name not in fields:
            begin[place] = end[place] = 0
    state = np.empty(block.rows, dtype=np.uint8)
    loops.cut(block.begins, block.ends, block.octets, block.marks, columns, begin, end, state)
    state[not_text(block)] = loops.DOUBTFUL
    found = Grid(
        {name: Cells(block.octets, begin[place], end[place]) for place, name in enumerate(wanted)},
        np.arange(block.rows),
        (),
    )
    if (state == loops.PLAIN).all():
        return found
    found = found.only(np.flatnonzero(state == loops.PLAIN), np.flatnonzero(state == loops.ODD))
    doubtful = state == loops.DOUBTFUL
    return _both(found, _parsed(block, doubtful, fields, wanted)) if doubtful.any() else found


def _parsed(block: Block, which: NDArray[np.bool_], fields: Sequence[str], wanted: Sequence[str]) -> Grid:
    where = np.flatnonzero(which)
    table = read(block.only(which), fields, wanted, strict=True)
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
    return Grid(columns, index[order], tuple(sorted(one.unreadable + other.unreadable)))
