"""Sums of groups of rows.

Arrow's own ``Table.group_by`` imports pandas, and that takes longer than a whole summary of a year.
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
        return table.select([*keys, *measures, *([greatest] if greatest else [])])
    groups, size = _numbered(table, keys)
    rows = np.full(size, -1, np.int64)
    rows[groups] = np.arange(len(table))
    used = rows >= 0
    made = {name: _plain(table[name].take(pa.array(rows[used]))) for name in keys}
    for name in measures:
        sums = np.zeros(size, np.int64)
        np.add.at(sums, groups, _numbers(table[name]))
        made[name] = pa.array(sums[used])
    if greatest:
        order = np.asarray(compute.array_sort_indices(table[greatest], null_placement="at_start"), np.int64)
        last = np.zeros(size, np.int64)
        last[groups[order]] = order  # of several rows of a group, the last one stays
        made[greatest] = table[greatest].take(pa.array(last[used]))
    return pa.table(made)


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
    whole = encoded.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks)
    values = len(whole.dictionary)
    return np.asarray(whole.indices.fill_null(values), np.int64), values + 1


def _numbers(column: Any) -> Any:
    return np.asarray(compute.cast(column, pa.int64()).fill_null(0))


def _plain(column: Any) -> Any:
    return compute.cast(column, column.type.value_type) if pa.types.is_dictionary(column.type) else column
