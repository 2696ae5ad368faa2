"""Cells of text as values: times, numbers, lists, maps. An empty cell is null, and so is what is no value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shadowaudit.core.events import listed
from shadowaudit.core.text import restored
from shadowaudit.logs import loops
from shadowaudit.logs.cells import Cells, Long
from shadowaudit.spark.columns import ARROW, INT, LIST, LONG, MAP, TEXT, TIME

Array = Any  # of pyarrow, which has no types

_APOSTROPHE = ord("'")
_DIGITS = {LONG: r"\A[0-9]{1,18}\z", INT: r"\A[0-9]{1,9}\z"}


def texts(cells: Cells) -> Array:
    """A column of our logs, without the apostrophes that keep spreadsheets from taking cells for formulas."""
    begin, end = _without_apostrophes(cells), cells.end
    offsets = np.zeros(len(cells) + 1, dtype=np.int64)
    np.cumsum(end - begin, out=offsets[1:])
    total = int(offsets[-1])
    if not total:
        return pa.nulls(len(cells), ARROW[TEXT])
    data = np.empty(total, dtype=np.uint8)
    loops.gathered(begin, end, cells.data, data)
    ends = pa.py_buffer(offsets.astype(np.int32))
    return nothing_as_null(pa.StringArray.from_buffers(len(cells), ends, pa.py_buffer(data)))


def _without_apostrophes(cells: Cells) -> Long:
    quoted = (cells.lengths > 0) & (cells.data[np.minimum(cells.begin, len(cells.data) - 1)] == _APOSTROPHE)
    if not quoted.any():
        return cells.begin
    begin = cells.begin.copy()
    for row in np.flatnonzero(quoted).tolist():
        text = cells.text(row)
        begin[row] += len(text) - len(restored(text))
    return begin


def nothing_as_null(column: Array) -> Array:
    """Empty cells as null."""
    empty = pc.equal(pc.binary_length(column), 0)
    if not pc.any(empty).as_py():
        return column
    return pc.if_else(empty, pa.scalar(None, pa.string()), column)


def times(column: Array) -> Array:
    """ISO 8601 with a zone."""
    try:
        return pc.cast(column, ARROW[TIME])
    except pa.ArrowInvalid:
        return pa.array([_time(text) for text in column.to_pylist()], ARROW[TIME])


def _time(text: str | None) -> Any:
    try:
        return pc.cast(pa.scalar(text, pa.string()), ARROW[TIME]).as_py()
    except (pa.ArrowInvalid, ValueError, OverflowError):
        return None


def numbers(column: Array, kind: str) -> Array:
    """Whole ones, without a sign. ``kind``: LONG or INT."""
    good = pc.match_substring_regex(column, _DIGITS[kind])
    return pc.cast(pc.if_else(good, column, pa.scalar(None, pa.string())), ARROW[kind])


def lists(column: Array) -> Array:
    """Members as ``core.events.listed`` takes them apart."""
    if _holds(column, "'"):
        return _each(column, listed)
    return pc.cast(pc.split_pattern(column, ";"), ARROW[LIST])


def statuses(column: Array) -> Array:
    """The same, where a member in brackets may hold semicolons: Exchange does not always quote those."""
    return _each(column, _status) if _holds(column, "'") or _holds(column, "[{") else lists(column)


def _status(text: str) -> Sequence[str]:
    found: list[str] = []
    for part in listed(text):
        if found and found[-1].startswith("[{") and not found[-1].endswith("}]"):
            found[-1] += f";{part}"
        else:
            found.append(part)
    return found


def _holds(column: Array, text: str) -> bool:
    return bool(pc.any(pc.match_substring(column, text)).as_py())


def _each(column: Array, split: Callable[[str], Sequence[str]]) -> Array:
    encoded = column.dictionary_encode()
    distinct = pa.array([split(text) for text in encoded.dictionary.to_pylist()], ARROW[LIST])
    return distinct.take(encoded.indices)


@dataclass(frozen=True, slots=True)
class Entries:
    """Custom-data, entry by entry, as ``core.events.entries_of`` takes it apart.

    ``row``: which row each entry is of, in order; a row has a name once.
    """

    rows: int
    row: Long
    names: Array
    texts: Array

    @classmethod
    def of(cls, column: Array) -> Self:
        entries = pc.split_pattern(column, ";")
        lengths = pc.fill_null(pc.list_value_length(entries), 0).to_numpy(zero_copy_only=False)
        row = np.repeat(np.arange(len(column)), lengths)
        parts = pc.split_pattern(pc.list_flatten(entries), "=", max_splits=1)
        whole = pc.equal(pc.list_value_length(parts), 2)
        parts, row = parts.filter(whole), row[whole.to_numpy(zero_copy_only=False)]
        if not len(parts):
            return cls(len(column), row, pa.nulls(0, pa.string()), pa.nulls(0, pa.string()))
        names = pc.replace_substring_regex(pc.list_element(parts, 0), r"(?s)\A[^:]*:(.+)\z", r"\1")
        found = pc.list_element(parts, 1)
        codes = names.dictionary_encode()
        place = row * len(codes.dictionary) + codes.indices.to_numpy(zero_copy_only=False)
        _, first = np.unique(place, return_index=True)
        if len(first) < len(place):
            first.sort()
            names, found, row = names.take(pa.array(first)), found.take(pa.array(first)), row[first]
        return cls(len(column), row, names, found)

    def maps(self) -> Array:
        """A map for each row; null for one without entries."""
        counts = np.bincount(self.row, minlength=self.rows)
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        none = np.append(counts == 0, False)
        return pa.MapArray.from_arrays(pa.array(offsets, mask=none), self.names, self.texts, type=ARROW[MAP])

    def named(self, name: str) -> Array:
        """The text of the entry of that name, for each row."""
        which = pc.equal(self.names, name).to_numpy(zero_copy_only=False)
        where = np.full(self.rows, -1)
        where[self.row[which]] = np.flatnonzero(which)
        return self.texts.take(pa.array(where, mask=where < 0))
