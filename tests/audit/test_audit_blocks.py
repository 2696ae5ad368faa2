"""States come out of blocks by bucket as they went in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shadowaudit.core.facts import FileFacts
from shadowaudit.engine.blocks import NAMES, packed, unpacked
from shadowaudit.engine.here import keep_blocks, states_in_blocks
from shadowaudit.engine.merge import renumbered
from shadowaudit.engine.messages import bucket_of
from shadowaudit.logs.fold import GREATEST, LEAST, SCHEMA
from shadowaudit.logs.groups import NONE_GREATEST, NONE_LEAST


def states(seed: int, size: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    columns = {}
    for place, name in enumerate(SCHEMA.names):
        most = (1, 100, 1 << 20, 1 << 40, 1 << 61)[(place + seed) % 5]
        if SCHEMA.field(name).type == pa.int32():
            most = min(most, 1 << 20)
        values = draw.integers(-most if name in ("owed", "balance", "holders") else 0, most, size)
        if name in (*LEAST, *GREATEST):
            values[draw.random(size) < (0, 0.5, 1)[seed % 3]] = NONE_LEAST if name in LEAST else NONE_GREATEST
        columns[name] = values
    return pa.table([pa.array(columns[one.name], one.type) for one in SCHEMA], schema=SCHEMA)


def rows(columns: Mapping[str, Any]) -> list[tuple[int, ...]]:
    return list(zip(*(columns[name].tolist() for name in NAMES), strict=True))


@pytest.mark.parametrize("buckets", [1, 5, 300])
def test_every_state_is_in_its_bucket_with_its_values(tmp_path: Path, buckets: int) -> None:
    tables = [states(seed, 200 + seed) for seed in range(9)]
    written = [
        keep_blocks(tmp_path / str(part), list(enumerate(tables))[part::2], buckets) for part in range(2)
    ]
    logs = tuple("abcdefghi")
    kept = ("i", "c", "a")  # the others were left out since, and these are counted in another order
    found = []
    for bucket in range(buckets):
        columns = states_in_blocks(written, bucket)
        assert (bucket_of(columns["high"], columns["low"], buckets) == bucket).all()
        found += rows(renumbered(columns, logs, [FileFacts(path=name) for name in kept]))
    expected = [
        (*row.values(), kept.index(log))
        for log, table in zip(logs, tables, strict=True)
        if log in kept
        for row in table.to_pylist()
    ]
    assert sorted(found) == sorted(expected)


def test_a_state_takes_no_more_octets_than_its_values_need() -> None:
    columns = {name: np.zeros(1000, dtype=np.int64) for name in NAMES}
    columns["low"] = np.arange(1000) << 40
    columns["accepted_at"] = 1_790_000_000_000 + np.arange(1000)
    ((_, block),) = packed(columns, 1)
    assert len(block) < 1000 * (len(NAMES) + 8 + 1) + 2000
    assert rows(unpacked([block])) == rows(columns)


def test_no_states_make_no_block() -> None:
    columns = {name: np.zeros(0, dtype=np.int64) for name in NAMES}
    assert list(packed(columns, 3)) == []
    assert rows(unpacked([])) == []
