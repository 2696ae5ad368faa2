"""Sums of groups of rows.

``Table.group_by``, and whatever makes Arrow's values of Python's, import pandas, which takes longer than a
summary of a year. Nothing here may; a test looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

_MANY = 1 << 22
"""So many numbers of groups at most, before only those in use are numbered."""


def summed(table: Any, keys: Sequence[str], measures: Sequence[str], *, greatest: str | None = None) -> Any:
    """One row for each combination of keys that there is, with the sums of the measures.

    Null is a key like any other, and counts 0 in a sum. ``greatest``: a column of which each group has the
    greatest value; null if it has none. The order of rows is not defined.
    """
    if not len(table):
        plain = [(name, _plain(table[name]).type) for name in (*keys, *([greatest] if greatest else []))]
        return empty(pa.schema([*plain, *((name, pa.int64()) for name in measures)]))
    groups, size = _numbered(table, keys)
    rows = np.full(size, -1, np.int64)
    rows[groups] = np.arange(len(table))
    used = rows >= 0
    made = {name: _plain(table[name].take(integers(rows[used]))) for name in keys}
    for name in measures:
        sums = np.zeros(size, np.int64)
        np.add.at(sums, groups, _numbers(table[name], 0))
        made[name] = integers(sums[used])
    if greatest:
        order = compute.array_sort_indices(table[greatest].combine_chunks(), null_placement="at_start")
        order = np.from_dlpack(order).astype(np.int64)
        last = np.zeros(size, np.int64)
        last[groups[order]] = order  # of several rows of a group, the last one stays
        made[greatest] = table[greatest].take(integers(last[used]))
    return pa.Table.from_arrays(list(made.values()), list(made))


def having(table: Any, name: str, value: str) -> Any:
    """The rows with that value in a column of strings."""
    column = table[name].combine_chunks()
    column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    known = column.dictionary.to_pylist()
    if value not in known:
        return table.slice(0, 0)
    return table.filter(compute.equal(column, column.dictionary[known.index(value)]))


def integers(values: Any) -> Any:
    """An array of NumPy, of 64 bits, as one of Arrow."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def empty(schema: Any) -> Any:
    """A table without a row."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _numbered(table: Any, keys: Sequence[str]) -> tuple[Any, int]:
    """The number of each row's group, and how many numbers there may be."""
    groups, size = np.zeros(len(table), np.int64), 1
    for name in keys:
        codes, values = _coded(table[name])
        if size * values > _MANY:
            used, groups = np.unique(groups, return_inverse=True)
            size = len(used)
        groups, size = groups * values + codes, size * values
    if size > _MANY:
        used, groups = np.unique(groups, return_inverse=True)
        size = len(used)
    return groups, size


def _coded(column: Any) -> tuple[Any, int]:
    """Numbers that stand for the values, null among them, and how many there may be."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    whole = encoded.combine_chunks()
    values = len(whole.dictionary)
    return _numbers(whole.indices, values), values + 1


def _numbers(column: Any, null: int) -> Any:
    """The integers of a column, and ``null`` where it has none."""
    whole = compute.cast(column, pa.int64())
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    if whole.null_count:
        whole = whole.fill_null(integers(np.array([null], np.int64))[0])
    return np.from_dlpack(whole)


def _plain(column: Any) -> Any:
    return compute.cast(column, column.type.value_type) if pa.types.is_dictionary(column.type) else column
