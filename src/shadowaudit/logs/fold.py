"""Steps summed by message: the partial state that a file adds to a message, of constant size.

Sums, least and greatest only, so partial states of any files merge in any order, and twice the same file is
noticed by its name rather than in here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shadowaudit.core.events import DELIVERIES, FINALS, Kind
from shadowaudit.core.fingerprint import digest
from shadowaudit.logs.lines import Block
from shadowaudit.logs.steps import Steps, is_any

Long = NDArray[np.int64]
_MAX = np.iinfo(np.int64).max

SUMS = (
    "rows", "origins", "received", "recipients", "owed", "ended", "settled", "balance", "residue",
    "redirects", "holds", "holders", "odd", "defers", "bounced", "resubmits",
)  # fmt: skip
LEAST = ("redirect_db", "redirect_at", "accepted_at", "file_from", "origin_db", "held_at")
GREATEST = (
    "redirect_db_last",
    "origin_at",
    "final_at",
    "discard_at",
    "hop",
    "file_to",
    "origin_node",
    "exchange",
)

SCHEMA: Any = pa.schema(
    [pa.field(name, pa.int64()) for name in ("high", "low", *SUMS, *LEAST, *GREATEST)]
    + [pa.field("path", pa.string())]
)
"""One row: a message in a block of a file. What a group has none of is null (least, greatest) or 0 (sums)."""


def fold(steps: Steps, block: Block, *, path: str, database: str, node: str) -> Any:
    """The partial states of a block, as an Arrow table of ``SCHEMA``."""
    keep = np.flatnonzero((steps.high != 0) | (steps.low != 0))
    order = keep[np.lexsort((steps.low[keep], steps.high[keep]))]
    high, low = steps.high[order], steps.low[order]
    if not len(order):
        return SCHEMA.empty_table()
    begins = np.flatnonzero(np.append(True, (high[1:] != high[:-1]) | (low[1:] != low[:-1])))
    kind = steps.kind[order]
    count, print_, salted = steps.count[order], steps.print[order], steps.salted[order]
    origin, final = is_any(kind, Kind.RECEIVE, Kind.DSN), is_any(kind, *FINALS)
    redirect, enters, leaves = is_any(kind, Kind.HAREDIRECT), steps.enters[order], steps.leaves[order]
    signs = enters.astype(np.int64) - leaves
    sequence, at, row = steps.sequence[order], steps.at[order], steps.row[order]
    columns: dict[str, Any] = {"high": high[begins], "low": low[begins]}
    sums = {
        "rows": np.ones(len(order), dtype=np.int64),
        "origins": origin,
        "received": is_any(kind, Kind.RECEIVE),
        "recipients": origin * count,
        "owed": origin * print_ - final * print_,
        "ended": final * count,
        "settled": is_any(kind, *DELIVERIES) * count,
        "balance": signs * salted,
        "residue": signs * count,
        "redirects": redirect,
        "holds": steps.copies[order] < 0,
        "holders": steps.copies[order],
        "odd": steps.odd[order],
        "defers": is_any(kind, Kind.DEFER),
        "bounced": is_any(kind, Kind.FAIL) * count,
        "resubmits": is_any(kind, Kind.RESUBMIT),
    }
    for name, values in sums.items():
        columns[name] = np.add.reduceat(values.astype(np.int64), begins)
    here, server = digest(database), digest(node)
    least: dict[str, tuple[Any, Any]] = {
        "redirect_db": (redirect, here),
        "redirect_at": (redirect, sequence),
        "accepted_at": (origin, at),
        "file_from": (None, block.offsets[row]),
        "origin_db": (origin, here),
        "held_at": (enters & ~origin, at),
    }
    greatest: dict[str, tuple[Any, Any]] = {
        "redirect_db_last": (redirect, here),
        "origin_at": (origin, sequence),
        "final_at": (final, at),
        "discard_at": (is_any(kind, Kind.HADISCARD), at),
        "hop": (steps.hop[order] > 0, steps.hop[order]),
        "file_to": (None, block.offsets[row + 1]),
        "origin_node": (origin, server),
        "exchange": (None, int(database.startswith("exchange:"))),
    }
    for name, (where, values) in least.items():
        columns[name] = _reduced(np.minimum, where, values, begins, _MAX, len(order))
    for name, (where, values) in greatest.items():
        columns[name] = _reduced(np.maximum, where, values, begins, -_MAX, len(order))
    columns["path"] = pa.array([path]).take(pa.array(np.zeros(len(begins), dtype=np.int32)))
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _reduced(
    function: np.ufunc, where: NDArray[np.bool_] | None, values: Any, begins: Long, none: int, size: int
) -> Any:
    """Least or greatest of a group's values; null where the group has none."""
    full = np.broadcast_to(np.asarray(values, dtype=np.int64), (size,))
    found = function.reduceat(full if where is None else np.where(where, full, none), begins)
    return pa.array(found, pa.int64(), mask=found == none)


def joined(tables: Sequence[Any]) -> Any:
    """Partial states of several blocks, one after the other: they need not be merged."""
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()
