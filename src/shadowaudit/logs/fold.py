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
from shadowaudit.logs.groups import NONE_GREATEST, NONE_LEAST, Groups
from shadowaudit.logs.lines import Block
from shadowaudit.logs.steps import Steps, is_any

Long = NDArray[np.int64]

SUMS = (
    "rows", "origins", "received", "recipients", "owed", "ended", "settled", "balance", "residue",
    "redirects", "holds", "holders", "odd", "defers", "bounced",
)  # fmt: skip
LEAST = ("redirect_db", "redirect_at", "accepted_at", "file_from", "origin_db", "held_at")
GREATEST = ("origin_at", "final_at", "discard_at", "hop", "file_to", "origin_node", "exchange")

SCHEMA: Any = pa.schema([pa.field(name, pa.int64()) for name in ("high", "low", *SUMS, *LEAST, *GREATEST)])
"""One row: a message in a block of a file. What a group has none of is null (least, greatest) or 0 (sums)."""


def fold(steps: Steps, block: Block, *, database: str, node: str) -> Any:
    """The partial states of a block, as an Arrow table of ``SCHEMA``."""
    kind, count = steps.kind, steps.count
    groups = Groups(steps.message, len(steps.high))
    origin = np.flatnonzero(is_any(kind, Kind.RECEIVE, Kind.DSN))
    final = np.flatnonzero(is_any(kind, *FINALS))
    redirect = np.flatnonzero(is_any(kind, Kind.HAREDIRECT))
    received = np.flatnonzero(is_any(kind, Kind.RECEIVE))
    enters, leaves = np.flatnonzero(steps.enters), np.flatnonzero(steps.leaves)
    offsets = block.offsets
    columns = {
        "high": steps.high,
        "low": steps.low,
        "rows": np.bincount(groups.of, minlength=groups.size).astype(np.int64, copy=False),
        "origins": groups.count(origin),
        "received": groups.count(received),
        "recipients": groups.total(count, origin),
        "owed": groups.total(steps.print, origin) - groups.total(steps.print, final),
        "ended": groups.total(count, final),
        "settled": groups.total(count, np.flatnonzero(is_any(kind, *DELIVERIES))),
        "balance": groups.total(steps.salted, enters) - groups.total(steps.salted, leaves),
        "residue": groups.total(count, enters) - groups.total(count, leaves),
        "redirects": groups.count(redirect),
        "holds": groups.count(np.flatnonzero(steps.copies < 0)),
        "holders": groups.total(steps.copies, np.flatnonzero(steps.copies)),
        "odd": groups.count(np.flatnonzero(steps.odd)),
        "defers": groups.count(np.flatnonzero(is_any(kind, Kind.DEFER))),
        "bounced": groups.total(count, np.flatnonzero(is_any(kind, Kind.FAIL))),
        "redirect_at": groups.least(steps.sequence, redirect),
        "accepted_at": groups.least(steps.at, origin),
        "file_from": groups.least(offsets[steps.row]),
        "held_at": groups.least(
            steps.at, np.flatnonzero(steps.enters & ~is_any(kind, Kind.RECEIVE, Kind.DSN))
        ),
        "origin_at": groups.greatest(steps.sequence, origin),
        "final_at": groups.greatest(steps.at, final),
        "discard_at": groups.greatest(steps.at, np.flatnonzero(is_any(kind, Kind.HADISCARD))),
        "hop": groups.greatest(steps.hop, np.flatnonzero(steps.hop > 0)),
        "file_to": groups.greatest(offsets[steps.row + 1]),
        "exchange": np.full(groups.size, int(database.startswith("exchange:"))),
    }
    begun, taken = columns["origins"] > 0, columns["redirects"] > 0
    columns["origin_db"] = np.where(begun, digest(database), NONE_LEAST)
    columns["origin_node"] = np.where(begun, digest(node), NONE_GREATEST)
    columns["redirect_db"] = np.where(taken, digest(database), NONE_LEAST)
    about = (steps.high != 0) | (steps.low != 0)
    if not about.all():
        columns = {name: values[about] for name, values in columns.items()}
    return as_table(columns)


def as_table(columns: dict[str, Long]) -> Any:
    """Columns of ``SCHEMA``, with what stands for none as null."""
    arrays = []
    for name in SCHEMA.names:
        values = columns[name]
        none = NONE_LEAST if name in LEAST else NONE_GREATEST if name in GREATEST else None
        mask = None if none is None else values == none
        arrays.append(pa.array(values, pa.int64(), mask=mask if mask is not None and mask.any() else None))
    return pa.table(arrays, schema=SCHEMA)


def as_columns(table: Any) -> dict[str, Long]:
    """The inverse of ``as_table``; columns that are none of ``SCHEMA`` stay as they are."""
    columns: dict[str, Long] = {}
    for name in table.schema.names:
        values = table.column(name)
        if values.null_count:
            values = values.fill_null(NONE_LEAST if name in LEAST else NONE_GREATEST)
        columns[name] = values.to_numpy()
    return columns


def joined(tables: Sequence[Any]) -> Any:
    """Partial states of several blocks, one after the other: they need not be merged."""
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()
