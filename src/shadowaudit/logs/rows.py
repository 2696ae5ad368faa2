"""Rows as arrays: one place in each array is one row. Names of columns are the log's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from shadowaudit.core.events import listed
from shadowaudit.core.text import moment_in, split_row
from shadowaudit.logs.lines import Block
from shadowaudit.logs.loops import NONE

Text = Any  # a pyarrow StringArray: pyarrow has no types


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

    ``strict``: the row must have exactly these fields. Whatever the rows hold, nothing is raised: those that
    cannot be read are named in ``unreadable``.
    """
    present = [name for name in wanted if name in fields]
    columns = None if strict and not is_text(block.data) else _fast(block, fields, present, strict=strict)
    index = np.arange(block.rows, dtype=np.int64)
    bad: tuple[int, ...] = ()
    if columns is None:
        columns, index, bad = _slow(block, fields, present, strict=strict)
    empty = pa.array([""], pa.string()).take(pa.array(np.zeros(len(index), dtype=np.int32)))
    for name in wanted:
        columns.setdefault(name, empty)
    return Table(columns, index, bad)


def is_text(data: bytes | memoryview) -> bool:
    """Is it UTF-8? Without a copy of it."""
    ends = pa.py_buffer(np.array([0, len(data)], dtype=np.int64))
    text = pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(data)])
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _fast(
    block: Block, fields: Sequence[str], present: Sequence[str], *, strict: bool
) -> dict[str, Text] | None:
    """By Arrow's parser; None when it does not see the rows that the line ends tell of."""
    if len(set(fields)) != len(fields):
        return None
    try:
        table = csv.read_csv(
            pa.BufferReader(block.data),
            read_options=csv.ReadOptions(
                use_threads=False, block_size=max(len(block.data) + 1, 64), column_names=list(fields)
            ),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                include_columns=list(present),
                column_types={name: pa.string() for name in present},
                check_utf8=not strict,  # it was looked at as a whole
                strings_can_be_null=False,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != block.rows:
        return None
    return {name: table.column(name).combine_chunks() for name in present}


def _slow(
    block: Block, fields: Sequence[str], present: Sequence[str], *, strict: bool
) -> tuple[dict[str, Text], NDArray[np.int64], tuple[int, ...]]:
    """Row by row, as forgiving as ``strict`` allows."""
    places = {name: fields.index(name) for name in present}
    found: dict[str, list[str]] = {name: [] for name in present}
    index: list[int] = []
    bad: list[int] = []
    for number in range(block.rows):
        cells = split_row(block.row(number), len(fields), strict=strict)
        if cells is None:
            bad.append(number)
            continue
        index.append(number)
        for name, place in places.items():
            found[name].append(cells[place])
    columns = {name: pa.array(cells, pa.string()) for name, cells in found.items()}
    return columns, np.array(index, dtype=np.int64), tuple(bad)


def moments(texts: Text) -> NDArray[np.int64]:
    """Times as milliseconds since 1970; ``loops.NONE`` for a text that is not a time."""
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
