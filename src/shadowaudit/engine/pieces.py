"""Pieces of a settlement: finished messages as a table, with their fingerprints and what they count for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from shadowaudit.engine.messages import Rows
from shadowaudit.engine.totals import tally
from shadowaudit.logs.fold import SCHEMA
from shadowaudit.logs.settled import KEYS, MESSAGES, STATES, TALLY, Piece, Settlement
from shadowaudit.logs.state import states_in

_SMALL = 50_000  # messages: a piece with fewer is joined with others
_MANY = 8  # small pieces: so a verdict writes few messages again
_MIXING = np.uint64(0x9E3779B97F4A7C15)

Prints = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Table:
    """A Parquet file of partial states: of the file with that number, or with a number for each state."""

    path: str
    rows: int
    file: int | None = None


def finished(store: Settlement, name: str, rows: Rows, width: int) -> Piece:
    """Write messages that are finished. ``width``: of the points of the curve they are counted for."""
    counts = json.dumps(tally(rows, width))
    prints = np.sort(_prints(rows["high"], rows["low"]))
    contents: Mapping[str, Callable[[Path], object]] = {
        MESSAGES: lambda target: _write(rows.table(), target, "snappy"),
        KEYS: prints.tofile,
        TALLY: lambda target: target.write_text(counts, "utf-8"),
    }
    return store.piece(name, len(prints), contents)


def left_open(store: Settlement, name: str, states: Any) -> Piece:
    """Write the partial states of messages that are not finished."""
    table = states.cast(SCHEMA.append(pa.field("file", pa.int32())))
    return store.piece(name, len(states), {STATES: lambda target: _write(table, target, "lz4")})


def without(
    store: Settlement, pieces: Sequence[Piece], new: Sequence[Table], token: str, width: int
) -> tuple[list[Piece], list[Any]]:
    """The pieces less those messages that new states tell more of, and the ids of these (two arrays each)."""
    if not pieces or not new:
        return list(pieces), []
    prints = np.unique(np.concatenate([_prints(*words_of(one)) for one in new]))
    kept, again = [], []
    for place, piece in enumerate(pieces):
        known = np.memmap(store.path(piece.name, KEYS), dtype=np.uint64, mode="r")
        where = np.minimum(np.searchsorted(known, prints), len(known) - 1)
        told = prints[known[where] == prints]
        if not len(told):
            kept.append(piece)
            continue
        rows = _read(store, [piece])
        late = np.isin(_prints(rows["high"], rows["low"]), told)
        again.append((rows["high"][late], rows["low"][late]))
        rows.columns = {name: values[~late] for name, values in rows.columns.items()}
        rows.suspect = rows.suspect[~late]
        if len(rows.suspect):
            kept.append(finished(store, f"{token}-without-{place}", rows, width))
    return kept, again


def looked_up(store: Settlement, tables: Sequence[Table], ids: Sequence[Any], name: str) -> Table:
    """All states of these messages in one table. ``tables``: those of every file that was merged."""
    high, low = (np.concatenate([pair[word] for pair in ids]) for word in (0, 1))
    wanted, prints = set(zip(high.tolist(), low.tolist(), strict=True)), _prints(high, low)
    found = []
    for one in tables:
        words = words_of(one)
        near = np.flatnonzero(np.isin(_prints(*words), prints))
        pairs = zip(*(word[near].tolist() for word in words), strict=True)
        here = near[[pair in wanted for pair in pairs]]
        if len(here):
            table = states_in(one.path).take(pa.array(here))
            number = pa.array(np.full(len(here), one.file, dtype=np.int32))
            found.append(table.append_column("file", number))
    whole, path = pa.concat_tables(found), store.path(name, STATES)
    _write(whole, path, "lz4")
    return Table(str(path), len(whole))


def joined(store: Settlement, pieces: Sequence[Piece], token: str, width: int) -> list[Piece]:
    """The same messages in fewer pieces, when many are small. None gets larger than two small ones."""
    small = [one for one in pieces if one.rows < _SMALL]
    if len(small) <= _MANY:
        return list(pieces)
    found = [one for one in pieces if one.rows >= _SMALL]
    together: list[Piece] = []
    for place, one in enumerate(small):
        together.append(one)
        if sum(part.rows for part in together) >= _SMALL or one is small[-1]:
            found.append(finished(store, f"{token}-joined-{place}", _read(store, together), width))
            together = []
    return found


def words_of(states: Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ids in a table of states."""
    table = states_in(states.path, ["high", "low"])
    return table["high"].to_numpy(), table["low"].to_numpy()


def _read(store: Settlement, pieces: Sequence[Piece]) -> Rows:
    tables = [parquet.read_table(store.path(one.name, MESSAGES), use_threads=False) for one in pieces]
    return Rows.read(pa.concat_tables(tables))


def _prints(high: NDArray[np.int64], low: NDArray[np.int64]) -> Prints:
    """64 bits a message. Where two agree, a message may be opened again for nothing, and no more."""
    found: Prints = high.view(np.uint64) * _MIXING ^ low.view(np.uint64)
    return found


def _write(table: Any, target: Path, compression: str) -> None:
    parquet.write_table(table, target, compression=compression, use_dictionary=False)
