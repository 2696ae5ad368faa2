"""Rows taken apart at their commas have the cells that a careful reader finds, whatever stands in them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from shadowaudit.core.text import split_row
from shadowaudit.logs import cells, lines
from shadowaudit.logs.cells import Cells, keys
from shadowaudit.logs.grid import split
from shadowaudit.logs.lines import Block, Reading

FIELDS = ("date-time", "event-id", "message-subject", "custom-data", "log-id")
WANTED = {"date-time": 24, "message-subject": 0, "custom-data": 16, "log-id": 0, "network-message-id": 0}
CELLS = (
    b"", b"a", b"plain text", b"x" * 200, "grüße".encode(), b'"one, two"', b'"he said ""no"""', b'"open',
    b"two,cells", b"lone\rreturn", b"\xff\xfe", b"nul\0", b"nul\0\0", b"nul",
)  # fmt: skip


def blocks(path: Path, rows: list[bytes]) -> list[Block]:
    path.write_bytes(
        b"#Software: shadowrelay\r\n#Fields: " + ",".join(FIELDS).encode() + b"\r\n" + b"".join(rows)
    )
    return list(Reading(path).blocks())


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("odd", [0, 0.02, 0.5])
def test_a_row_has_the_cells_that_a_careful_reader_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, odd: float
) -> None:
    monkeypatch.setattr("shadowaudit.logs.grid.PART", 500)  # so parts with and without odd rows meet
    draw = random.Random(seed)
    rows = [
        b",".join(draw.choice(CELLS if draw.random() < odd else CELLS[:5]) for _ in FIELDS)
        + (b"\n" if draw.random() < odd / 10 else b"\r\n")
        for _ in range(300)
    ]
    for block in blocks(tmp_path / "log", rows):
        found = split(block, FIELDS, WANTED)
        expected = {}
        for number in range(block.rows):
            if parts := split_row(block.row(number), len(FIELDS), strict=True):
                cell = dict(zip(FIELDS, parts, strict=True))
                expected[number] = [cell.get(name, "") for name in WANTED]
        assert found.index.tolist() == list(expected)
        assert sorted(found.unreadable) == sorted(set(range(block.rows)) - set(expected))
        texts = zip(*([found[name].text(row) for row in range(len(found))] for name in WANTED), strict=True)
        assert [list(row) for row in texts] == list(expected.values())


def column(texts: list[bytes]) -> Cells:
    data = np.frombuffer(b"".join(texts) + bytes(cells.SLACK), np.uint8)
    ends = np.cumsum([len(text) for text in texts])
    return Cells(data, ends - [len(text) for text in texts], ends)


def test_equal_cells_have_equal_numbers_and_others_have_not() -> None:
    draw = random.Random(1)
    texts = [draw.choice(CELLS) + draw.choice((b"", b"y" * 90, b"\0")) for _ in range(2000)]
    first, which = column(texts).number()
    assert [texts[row] for row in first[which]] == texts
    assert len(first) == len(set(texts))


@pytest.mark.parametrize("texts", [[b"one", b"two", b"two", b"one"], [b"one", b"one\0", b"one"]])
def test_cells_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch, texts: list[bytes]) -> None:
    monkeypatch.setattr(cells, "_MIXING", np.uint64(0))
    first, which = column(texts).number()
    assert [texts[row] for row in first[which]] == texts
    assert len(first) == 2


def test_an_id_that_is_no_uuid_has_a_key_as_well() -> None:
    texts = [b"01a1f0be-24e4-766c-be62-dc047c6895f0", b"", b"01a1f0be-24e4-766c-be62-dc047c6895fx", b"<a@b>"]
    message, high, low = keys(column([*texts, texts[0]]))
    assert message.tolist() == [0, 1, 2, 3, 0]
    assert (int(high[0]), int(low[0])) == (0x01A1F0BE24E4766C, 0xBE62DC047C6895F0 - (1 << 64))
    assert (high[1], low[1]) == (0, 0)
    assert len(set(high.tolist())) == 4


@pytest.mark.parametrize("size", [1, 7, 100])
def test_places_are_found_over_the_edge_of_a_part(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(lines, "PART", size)
    raw = np.frombuffer(b",a,,bc," * 9, np.uint8)
    assert lines.places(raw, ord(","), 5).tolist() == [5 + at for at in np.flatnonzero(raw == ord(","))]
    assert lines.count(raw, ord(",")) == 36
    assert lines.has(raw, ord("c"))
    assert not lines.has(raw, ord("d"))
