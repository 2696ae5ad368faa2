"""The fast parser finds in each row what a careful reader of single rows finds, whatever stands beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shadowaudit.core.text import split_row
from shadowaudit.logs import rows
from shadowaudit.logs.lines import Block, Reading

FIELDS = ("date-time", "event-id", "message-subject", "event-id")
WANTED = ("message-subject", "event-id", "custom-data")
OURS, THEIRS = b"#Software: shadowrelay\r\n", b"#Software: Microsoft Exchange Server\r\n"
BOM = "\ufeff".encode()

PIECES = st.sampled_from(
    [
        b"a",
        b",",
        b'"',
        b'""',
        b'","',
        b"\r",
        b"\n",
        b"\r\n",
        b"\0",
        b"\xff",
        b"\xc3",
        "ß".encode(),
        BOM,
        b"#",
        b" ",
    ]
)
WILD = st.lists(PIECES, max_size=8).map(b"".join)
PLAIN = st.sampled_from(
    [b"", b"a", b"two words", "grüße".encode(), b'"one, two"', b'"he said ""no"""', b"'=1"]
)
CELLS = st.lists(st.one_of(PLAIN, PLAIN, PLAIN, WILD), min_size=3, max_size=5)
ROWS = st.tuples(CELLS.map(b",".join), st.sampled_from([b"\r\n"] * 8 + [b"\n", b"\r\r\n", b""])).map(b"".join)


def blocks(path: Path, head: bytes, lines: list[bytes]) -> Iterator[Block]:
    path.write_bytes(head + b"#Fields: " + ",".join(FIELDS).encode() + b"\r\n" + b"".join(lines))
    yield from Reading(path).blocks()


def carefully(block: Block, *, strict: bool) -> dict[int, list[str]]:
    found = {}
    for row in range(block.rows):
        if (cells := split_row(block.row(row), len(FIELDS), strict=strict)) is not None:
            found[row] = [cells[2], cells[1], ""]
    return found


@given(lines=st.lists(ROWS, min_size=1, max_size=12))
@example(lines=[BOM + BOM + b"a,b,c,d\r\n", BOM + b"a,b,c,d\r\n"])
@example(lines=[b"a,b,c,d\r\r\n", b"a,b,c,d\r\n"])
@example(lines=[b'a,b,"c"d,e\r\n', b'a,b,c"d,e\r\n', b'a,b,"c" ,e\r\n', b'a,b,"c\r\n', b'd",e\r\n'])
@example(lines=[b"a,b,\xff,d\r\n", "a,b,ß,d\r\n".encode(), b"a,b,c\r\n", b"a,b,c,d,e\r\n", b"a,b,c,d"])
@example(lines=[b"a,b,c,d\r\n", b"a,b,c,d\rx"])
@pytest.mark.parametrize("head", [OURS, THEIRS], ids=["ours", "Exchange's"])
@settings(deadline=None)
def test_each_row_has_the_cells_that_it_has_by_itself(
    head: bytes, lines: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    strict = head is OURS
    for block in blocks(tmp_path_factory.mktemp("rows") / "log", head, lines):
        found, expected = rows.read(block, FIELDS, WANTED, strict=strict), carefully(block, strict=strict)
        assert found.index.tolist() == list(expected)
        assert [*found.unreadable] == [row for row in range(block.rows) if row not in expected]
        cells = zip(*(found[name].to_pylist() for name in WANTED), strict=True)
        assert [list(row) for row in cells] == list(expected.values())


@pytest.mark.parametrize("head", [OURS, THEIRS], ids=["ours", "Exchange's"])
@pytest.mark.parametrize(
    "odd", [b"a,b,\xff,d\r\n", b"a,b,c\rc,d\r\n", b'a,b,c"c"c,d\r\n', b'a,b,"c"c,d\r\n', b"a,b,c,d\r\r\n"]
)
def test_an_odd_row_costs_only_itself(
    tmp_path: Path, head: bytes, odd: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bytes] = []

    def split(line: bytes, count: int, *, strict: bool) -> list[str] | None:
        taken.append(line)
        return split_row(line, count, strict=strict)

    monkeypatch.setattr(rows, "split_row", split)
    lines = ["a,ß,c,d\r\n".encode(), b'a,b,"c, ""c""",d\r\n', odd, b"a,b,c\r\n", b"a,b,c,d,e\r\n"] * 50
    (block,) = blocks(tmp_path / "log", head, lines)
    found = rows.read(block, FIELDS, WANTED, strict=head is OURS)
    assert found.index.tolist() == list(carefully(block, strict=head is OURS))
    assert taken == [odd] * 50
