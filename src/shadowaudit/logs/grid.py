"""Rows of our logs taken apart at their commas. Those with quotes, or with anything odd, are parsed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shadowaudit.logs.cells import Cells, Long
from shadowaudit.logs.lines import Block, count, places
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


def split(block: Block, fields: Sequence[str], wanted: Sequence[str]) -> Grid:
    """The wanted columns of a block; columns that ``fields`` does not name are empty.

    A row must have exactly these fields. Whatever the rows hold, nothing is raised: those that cannot be read
    are named in ``unreadable``.
    """
    plain, commas = _plain(block, len(fields))
    found: dict[str, Cells] = {}
    starts, ends = block.starts[:-1], block.starts[1:] - 2
    if not plain.all():
        starts, ends = starts[plain], ends[plain]
    none = np.zeros(len(starts), dtype=np.int64)
    for name in wanted:
        begin, end = none, none
        if name in fields:
            place = fields.index(name)
            begin = commas[:, place - 1] + 1 if place else starts
            end = commas[:, place] if place + 1 < len(fields) else ends
        found[name] = Cells(block.octets, begin, end)
    index = np.flatnonzero(plain)
    if len(index) == block.rows:
        return Grid(found, index, ())
    return _both(Grid(found, index, ()), _parsed(block, np.flatnonzero(~plain), fields, wanted))


def _plain(block: Block, fields: int) -> tuple[NDArray[np.bool_], Long]:
    """Which rows are nothing but so many cells and CRLF, and where the commas of each of these are."""
    raw, starts, rows = block.raw, block.starts, block.rows
    none = np.zeros((0, max(0, fields - 1)), dtype=np.int64)
    if fields < 2 or not is_text(block.data):
        return np.zeros(rows, dtype=bool), none
    begins, ends = starts[:-1], starts[1:]
    plain = (ends - begins >= 2) & (raw[ends - 1] == 10) & (raw[ends - 2] == 13)
    if count(raw, ord("\r")) != rows or not plain.all():
        returns = places(raw, ord("\r"))
        row = np.searchsorted(starts, returns, "right") - 1
        plain[row[returns != ends[row] - 2]] = False
    if count(raw, ord('"')):
        plain[np.searchsorted(starts, places(raw, ord('"')), "right") - 1] = False
    commas, each = places(raw, ord(",")), fields - 1
    if plain.all() and len(commas) == rows * each:
        grid = commas.reshape(rows, each)
        if (grid[:, 0] >= begins).all() and (grid[:, -1] < ends).all():
            return plain, grid
    counts = np.diff(np.searchsorted(commas, starts))
    plain &= counts == each
    return plain, commas[np.repeat(plain, counts)].reshape(-1, each)


def _parsed(block: Block, where: Long, fields: Sequence[str], wanted: Sequence[str]) -> Grid:
    keep = np.zeros(block.rows, dtype=bool)
    keep[where] = True
    table = read(block.only(keep), fields, wanted, strict=True)
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
