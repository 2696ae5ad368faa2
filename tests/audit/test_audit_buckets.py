"""Messages are merged bucket by bucket: what is found does not depend on how many there are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from auditing import Auditor
from pyarrow import parquet

from shadowaudit.core.facts import FileFacts
from shadowaudit.engine import merge, pieces, settle
from shadowaudit.engine.messages import Messages, Origins
from shadowaudit.logs.fold import SCHEMA
from shadowaudit.logs.lines import Reading
from shadowlab.generate.cluster import generate
from shadowlab.generate.stories import FAULTS


@pytest.mark.parametrize("state", [None, "state"])
def test_many_buckets_hold_what_one_holds(
    here: Auditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    truth = generate(
        tmp_path / "logs", messages=500, faults=dict.fromkeys(FAULTS, 2), seed=3, file_size=40_000
    )
    with monkeypatch.context() as patch:
        patch.setattr(settle, "_BUCKET", 100)
        patch.setattr(merge, "OCTETS", 100_000)
        patch.setattr(pieces, "_SMALL", 1)
        verdict = here(tmp_path / "logs", out=tmp_path / "many", state=state and tmp_path / state)
    parts = list((tmp_path / "many" / "messages.parquet").iterdir())
    assert len(parts) > 5
    assert dict(verdict.classes) == truth.classes
    messages = parquet.read_table(tmp_path / "many" / "messages.parquet")
    assert len(messages) == len(set(messages["id"].to_pylist())) == truth.messages


def test_messages_whose_ids_end_alike_are_not_taken_for_one() -> None:
    ids = [(1, 7), (2, 7), (1, 7), (2, 7), (3, 8)]
    columns = {name: np.zeros(len(ids), dtype=np.int64) for name in SCHEMA.names}
    columns |= {"high": np.array([high for high, _ in ids]), "low": np.array([low for _, low in ids])}
    columns["rows"] = np.array([1, 10, 2, 20, 5])
    columns["file"] = np.zeros(len(ids), dtype=np.int64)
    merged = Messages(columns, Origins.of([FileFacts(path="one")]))
    found = zip(*(merged[name].tolist() for name in ("high", "low", "rows")), strict=True)
    assert sorted(found) == [(1, 7, 3), (2, 7, 30), (3, 8, 5)]


@pytest.mark.parametrize("size", [64, 200, 1000, 4096])
def test_rows_longer_than_a_block_are_whole(tmp_path: Path, size: int) -> None:
    rows = [b"%d,%s\r\n" % (number, b"x" * (number * 37 % 3000)) for number in range(300)]
    path = tmp_path / "log"
    path.write_bytes(b"\xef\xbb\xbf#Software: shadowrelay\r\n" + b"".join(rows) + b"#between\r\n" + rows[0])
    reading = Reading(path)
    found = []
    for block in reading.blocks(size):
        for number in range(block.rows):
            found.append((block.at + int(block.begins[number]), block.row(number)))
    text = path.read_bytes()
    assert [row for _, row in found] == [*rows, rows[0]]
    assert all(text[at : at + len(row)] == row for at, row in found)
