"""Steps summed by message: the partial state that a file adds to a message, of constant size.

Sums, least and greatest only, so partial states of any files merge in any order, and twice the same file is
noticed by its name rather than in here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shadowaudit.core.events import DELIVERIES, FINALS, ORIGINS, Kind
from shadowaudit.logs.groups import NONE_GREATEST, NONE_LEAST, Groups
from shadowaudit.logs.kinds import is_any
from shadowaudit.logs.lines import Block
from shadowaudit.logs.steps import Steps

Long = NDArray[np.int64]

SUMS = (
    "rows", "origins", "received", "recipients", "owed", "ended", "settled", "balance", "residue",
    "redirects", "holds", "holders", "odd", "defers", "bounced", "copied", "reports", "resubmitted",
)  # fmt: skip
LEAST = ("redirect_at", "accepted_at", "file_from", "held_at", "digests_least", "first")
GREATEST = ("origin_at", "final_at", "discard_at", "hop", "file_to", "digests_greatest", "last")
"""``first``: twice the sequence of the first row but HAREDIRECT, and one more if it is none by which the
message enters; ``last``: twice that of the last row, and one more if by that it leaves.
"""

_COUNTS = (
    "rows",
    "origins",
    "received",
    "redirects",
    "holds",
    "odd",
    "defers",
    "resubmitted",
)  # no more than a block's rows

_HELD: int = 0x1E3779B97F4A7C15 >> 20
"""What copies taken count in ``copied`` where copies made count 1: so neither stands for the other."""

SCHEMA: Any = pa.schema(
    [
        pa.field(name, pa.int32() if name in _COUNTS else pa.int64(), nullable=False)
        for name in ("high", "low", *SUMS, *LEAST, *GREATEST)
    ]
)
"""One row: a message in a block of a file. Least and greatest of none are those of ``groups``, not null."""


def fold(steps: Steps, block: Block) -> Any:
    """The partial states of a block, as an Arrow table of ``SCHEMA``."""
    kind, count = steps.kind, steps.count
    digested = np.flatnonzero(steps.digests >= 0)
    groups = Groups(steps.message, len(steps.high))
    origin = np.flatnonzero(is_any(kind, *ORIGINS))
    final = np.flatnonzero(is_any(kind, *FINALS))
    redirect = np.flatnonzero(is_any(kind, Kind.HAREDIRECT))
    received = np.flatnonzero(is_any(kind, Kind.RECEIVE))
    after = np.flatnonzero(~is_any(kind, Kind.HAREDIRECT))
    enters, leaves = np.flatnonzero(steps.enters), np.flatnonzero(steps.leaves)
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
        "copied": groups.total(steps.print, redirect)
        + groups.total(steps.print * _HELD, np.flatnonzero(steps.copies < 0))
        - groups.total(steps.print * (_HELD + 1), origin),
        "reports": groups.total(steps.reports),
        "resubmitted": groups.count(np.flatnonzero(is_any(kind, Kind.RESUBMITTED))),
        "redirect_at": groups.least(steps.sequence, redirect),
        "accepted_at": groups.least(steps.at, origin),
        "file_from": groups.least(block.at + block.begins[steps.row]),
        "held_at": groups.least(steps.at, np.flatnonzero(steps.enters & ~is_any(kind, *ORIGINS))),
        "origin_at": groups.greatest(steps.sequence, origin),
        "final_at": groups.greatest(steps.at, final),
        "discard_at": groups.greatest(steps.at, np.flatnonzero(is_any(kind, Kind.HADISCARD))),
        "hop": groups.greatest(steps.hop, np.flatnonzero(steps.hop > 0)),
        "file_to": groups.greatest(block.at + block.ends[steps.row]),
        "first": groups.least(2 * steps.sequence + ~steps.enters, after),
        "last": groups.greatest(2 * steps.sequence + steps.leaves),
        "digests_least": groups.least(steps.digests, digested),
        "digests_greatest": groups.greatest(steps.digests, digested),
    }
    about = (steps.high != 0) | (steps.low != 0)
    if not about.all():
        columns = {name: values[about] for name, values in columns.items()}
    return joined([_table(columns), *([_told_of(steps, block)] if steps.made else [])])


def _told_of(steps: Steps, block: Block) -> Any:
    """States of messages of which rows of others tell: they were reported on, or given back."""
    made = steps.made
    rows = steps.row[[one.row for one in made]]
    columns = {name: np.zeros(len(made), dtype=np.int64) for name in SCHEMA.names}
    columns |= {name: np.full(len(made), NONE_LEAST) for name in LEAST}
    columns |= {name: np.full(len(made), NONE_GREATEST) for name in GREATEST}
    columns |= {
        "high": np.array([one.high for one in made], dtype=np.int64),
        "low": np.array([one.low for one in made], dtype=np.int64),
        "reports": -np.array([one.print for one in made], dtype=np.int64),
        "odd": np.array([one.odd for one in made], dtype=np.int64),
        "file_from": block.at + block.begins[rows],
        "file_to": block.at + block.ends[rows],
    }
    return _table(columns)


def _table(columns: Mapping[str, Long]) -> Any:
    arrays = [pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names]
    return pa.table(arrays, schema=SCHEMA)


def joined(tables: Sequence[Any]) -> Any:
    """Partial states of several blocks, one after the other: they need not be merged."""
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()
