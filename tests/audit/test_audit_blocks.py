"""States come out of the files by bucket as they went in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shadowaudit.engine import blocks
from shadowaudit.engine.blocks import Blocks, Reader, Writer
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


@pytest.mark.parametrize("buckets", [1, 5, 300])
def test_every_state_is_in_its_bucket_with_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buckets: int
) -> None:
    monkeypatch.setattr(blocks, "_FLUSH", 700)
    tables = [states(seed, 200 + seed) for seed in range(9)]
    writer = Writer(str(tmp_path), "part", buckets)
    paths = [path for number, table in enumerate(tables) for path in writer.add(table, number)]
    paths += writer.finish()
    assert len(paths) > 1
    logs = tuple("abcdefghi")
    kept = ("i", "c", "a")  # the others were left out since, and these are counted in another order
    reader = Reader(Blocks(buckets, tuple(paths), logs), kept)
    found = []
    for bucket in range(buckets):
        table = reader.states(bucket)
        assert (bucket_of(table["high"].to_numpy(), table["low"].to_numpy(), buckets) == bucket).all()
        found += [tuple(row.values()) for row in table.to_pylist()]
    expected = [
        (*row.values(), kept.index(log))
        for log, table in zip(logs, tables, strict=True)
        if log in kept
        for row in table.to_pylist()
    ]
    assert sorted(found) == sorted(expected)


def test_nothing_is_written_for_no_states(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path), "part", 3)
    assert writer.add(SCHEMA.empty_table(), 0) == []
    assert writer.finish() == []
    assert len(Reader(Blocks(3, ()), ["a"]).states(0)) == 0
