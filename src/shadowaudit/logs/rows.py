"""Rows as arrays: one place in each array is one row. Names of columns are the log's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from shadowaudit.core.events import listed
from shadowaudit.core.text import moment_in, split_row
from shadowaudit.logs.layout import BOM
from shadowaudit.logs.lines import BLOCK, Block

Text = Any  # a pyarrow StringArray: pyarrow has no types

NONE: int = np.iinfo(np.int64).min
"""In place of a moment that was not understood."""

_QUOTE, _COMMA, _LF, _CR = b'",\n\r'


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of a block that could be read. ``index``: each row's number in the block."""

    columns: dict[str, Text]
    index: NDArray[np.int64]
    unreadable: tuple[int, ...]

    def __getitem__(self, name: str) -> Text:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.index)

    def only(self, keep: NDArray[np.bool_]) -> Table:
        """Those rows; the others are unreadable, too."""
        columns = {name: text.filter(pa.array(keep)) for name, text in self.columns.items()}
        unreadable = sorted((*self.unreadable, *self.index[~keep].tolist()))
        return Table(columns, self.index[keep], tuple(unreadable))


def read(block: Block, fields: Sequence[str], wanted: Sequence[str], *, strict: bool) -> Table:
    """The wanted columns of a block; columns that ``fields`` does not name are empty.

    Each row has the cells that ``core.text.split_row`` finds in it. Whatever the rows hold, nothing is
    raised: those that cannot be read are named in ``unreadable``.
    """
    places = {name: fields.index(name) for name in wanted if name in fields}
    odd = _odd(block, strict=strict)
    columns, index = _fast(block, ~odd, len(fields), places)
    if odd.any():
        more, others = _slow(block, odd, len(fields), places, strict=strict)
        index = np.concatenate([index, others])
        order = pa.array(np.argsort(index, kind="stable"))
        columns = {name: pa.concat_arrays([columns[name], more[name]]).take(order) for name in places}
        index.sort()
    empty = pa.repeat(pa.scalar("", pa.string()), len(index))
    unreadable = np.delete(np.arange(block.rows), index)
    return Table({name: columns.get(name, empty) for name in wanted}, index, tuple(unreadable.tolist()))


def _odd(block: Block, *, strict: bool) -> NDArray[np.bool_]:
    """Rows that the parser may take for others: quotes or line ends are not where they belong, octets are no
    text, or they are too many.
    """
    data = np.frombuffer(block.data, np.uint8)
    lengths = block.ends - block.begins
    ends = np.cumsum(lengths)
    odd: NDArray[np.bool_] = data[ends - 1] != _LF
    odd |= (block.octets[block.begins] == BOM[0]) | (lengths > BLOCK)
    if strict:
        odd |= data[ends - 2] != _CR
    for octet, before_end in ((_CR, 2), (_LF, 1)):
        found = data == octet
        found[ends - before_end] = False
        odd[np.searchsorted(ends, np.flatnonzero(found), "right")] = True
    quotes = np.flatnonzero(data == _QUOTE)
    if len(quotes):
        rows = np.searchsorted(ends, quotes, "right")
        first = np.searchsorted(quotes, ends - lengths)
        opens = (np.arange(len(quotes)) - first[rows]) % 2 == 0
        beside = data[np.where(opens, quotes - 1, np.minimum(quotes + 1, len(data) - 1))]
        odd[rows[~np.isin(beside, (_COMMA, _QUOTE, _CR, _LF))]] = True
        odd |= np.bincount(rows, minlength=block.rows) % 2 == 1
    odd[not_text(block)] = True
    return odd


def not_text(block: Block) -> list[int]:
    """The rows that are not UTF-8."""
    data = np.frombuffer(block.data, np.uint8)
    if _is_text(data.data):
        return []
    ends = np.cumsum(block.ends - block.begins)
    rows = np.unique(np.searchsorted(ends, np.flatnonzero(data > 127), "right"))
    return [row for row in rows.tolist() if not _is_text(block.row(row))]


def _is_text(data: bytes | memoryview) -> bool:
    """Is it UTF-8? Without a copy of it."""
    ends = pa.py_buffer(np.array([0, len(data)], dtype=np.int64))
    text = pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(data)])
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _fast(
    block: Block, which: NDArray[np.bool_], count: int, places: Mapping[str, int]
) -> tuple[dict[str, Text], NDArray[np.int64]]:
    """By Arrow's parser; and which of these rows have so many fields."""
    index = np.flatnonzero(which)
    if not len(index):
        return dict.fromkeys(places, pa.array([], pa.string())), index
    data = block.only(which).data
    short: list[int] = []

    def skip(row: csv.InvalidRow) -> str:
        short.append(row.number - 1)
        return "skip"

    table = csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(
            use_threads=False, block_size=max(len(data) + 1, 64), column_names=[*map(str, range(count))]
        ),
        parse_options=csv.ParseOptions(invalid_row_handler=skip),
        convert_options=csv.ConvertOptions(
            include_columns=[*map(str, places.values())],
            column_types={str(place): pa.string() for place in places.values()},
            check_utf8=False,  # it was looked at as a whole
            strings_can_be_null=False,
            quoted_strings_can_be_null=False,
        ),
    )
    columns = {name: table.column(str(place)).combine_chunks() for name, place in places.items()}
    return columns, np.delete(index, short)


def _slow(
    block: Block, which: NDArray[np.bool_], count: int, places: Mapping[str, int], *, strict: bool
) -> tuple[dict[str, Text], NDArray[np.int64]]:
    """The same row by row, as forgiving as ``strict`` allows."""
    rows = ((row, split_row(block.row(row), count, strict=strict)) for row in np.flatnonzero(which).tolist())
    found = {row: cells for row, cells in rows if cells is not None}
    columns = {
        name: pa.array([cells[place] for cells in found.values()], pa.string())
        for name, place in places.items()
    }
    return columns, np.array([*found], dtype=np.int64)


def moments(texts: Text) -> NDArray[np.int64]:
    """Times as milliseconds since 1970; ``NONE`` for a text that is not a time."""
    try:
        found = pc.cast(texts, pa.timestamp("ms", "UTC"))
    except pa.ArrowInvalid:
        return np.array([_moment(text) for text in texts.to_pylist()], dtype=np.int64)
    whole: NDArray[np.int64] = pc.cast(found, pa.int64()).to_numpy(zero_copy_only=False)
    return whole


def _moment(text: str) -> int:
    found = moment_in(text)
    return NONE if found is None else found


def uniques(texts: Text) -> tuple[list[str], NDArray[np.int64]]:
    """Each distinct text once, and for each row the number of its own."""
    encoded = texts.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def members(text: str) -> tuple[str, ...]:
    """A list column's members, as they may be compared: addresses differ by case between servers."""
    return tuple(member.lower() for member in listed(text))
