"""Cells of text as values: times, numbers, lists, maps. An empty cell is null, and so is what is no value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shadowaudit.core.events import listed
from shadowaudit.core.text import restored
from shadowaudit.spark.columns import ARROW, INT, LIST, LONG, MAP, TIME

Array = Any  # of pyarrow, which has no types

_DIGITS = {LONG: r"\A[0-9]{1,18}\z", INT: r"\A[0-9]{1,9}\z"}


def texts(column: Array) -> Array:
    """A column of our logs, without the apostrophes that keep spreadsheets from taking cells for formulas."""
    quoted = pc.starts_with(column, "'")
    if pc.any(quoted).as_py():
        plain = pa.array([restored(text) for text in column.filter(quoted).to_pylist()], pa.string())
        column = pc.replace_with_mask(column, quoted, plain)
    return nothing_as_null(column)


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
    return _split(column, pc.match_substring(column, "'"), listed)


def statuses(column: Array) -> Array:
    """The same, where a member in brackets may hold semicolons: Exchange does not always quote those."""
    odd = pc.or_(pc.match_substring(column, "'"), pc.match_substring(column, "[{"))
    return _split(column, odd, _status)


def _status(text: str) -> Sequence[str]:
    found: list[str] = []
    for part in listed(text):
        if found and found[-1].startswith("[{") and not found[-1].endswith("}]"):
            found[-1] += f";{part}"
        else:
            found.append(part)
    return found


def _split(column: Array, odd: Array, split: Callable[[str], Sequence[str]]) -> Array:
    """What stands between semicolons; of odd cells what ``split`` says."""
    made = pc.cast(pc.split_pattern(column, ";"), ARROW[LIST])
    if not pc.any(odd).as_py():
        return made
    which = pc.fill_null(odd, False).to_numpy(zero_copy_only=False)
    found = [split(text) for text in column.filter(odd).to_pylist()]
    place = np.where(which, len(column) + np.cumsum(which) - 1, np.arange(len(column)))
    return pa.concat_arrays([made, pa.array(found, ARROW[LIST])]).take(pa.array(place))


@dataclass(frozen=True, slots=True)
class Entries:
    """Custom-data, entry by entry, as ``core.events.entries_of`` takes it apart.

    ``row``: which row each entry is of, in order; a row has a name once.
    """

    rows: int
    row: NDArray[np.int64]
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
