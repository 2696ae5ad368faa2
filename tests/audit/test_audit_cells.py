"""Rows taken apart at their commas have the cells that a careful reader finds, whatever stands in them."""

from __future__ import annotations

import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from shadowaudit.core.events import listed
from shadowaudit.core.fingerprint import key_of, weights
from shadowaudit.core.text import split_row
from shadowaudit.logs import cells, loops
from shadowaudit.logs.cells import Cells, keys
from shadowaudit.logs.compiled import LITTLE, compiled
from shadowaudit.logs.grid import split
from shadowaudit.logs.lines import Block, Reading

FIELDS = ("date-time", "event-id", "message-subject", "custom-data", "log-id")
WANTED = ("date-time", "message-subject", "custom-data", "log-id", "network-message-id")
CELLS = (
    b"", b"a", b"plain text", b"x" * 200, "grüße".encode(), b'"one, two"', b'"he said ""no"""', b'"open',
    b"two,cells", b"lone\rreturn", b"\xff\xfe", b"nul\0", b"nul\0\0", b"nul",
)  # fmt: skip


@pytest.fixture(params=["as it stands", "compiled"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here has to be so in both ways in which the loops run."""
    monkeypatch.setattr(compiled, "left", -1 if request.param == "compiled" else 1000 * LITTLE)


def blocks(path: Path, rows: list[bytes]) -> list[Block]:
    path.write_bytes(
        b"#Software: shadowrelay\r\n#Fields: " + ",".join(FIELDS).encode() + b"\r\n" + b"".join(rows)
    )
    return list(Reading(path).blocks())


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("odd", [0, 0.02, 0.5])
def test_a_row_has_the_cells_that_a_careful_reader_finds(tmp_path: Path, seed: int, odd: float) -> None:
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
    data = np.frombuffer(bytearray(b"".join(texts) + bytes(cells.SLACK)), np.uint8)
    ends = np.cumsum([len(text) for text in texts])
    return Cells(data, ends - [len(text) for text in texts], ends)


def test_equal_cells_have_equal_numbers_and_others_have_not() -> None:
    draw = random.Random(1)
    texts = [draw.choice(CELLS) + draw.choice((b"", b"y" * 90, b"\0")) for _ in range(2000)]
    distinct, which = column(texts).numbered()
    assert [distinct.octets(number) for number in which] == texts
    assert len(distinct) == len(set(texts))


def test_cells_whose_hash_leads_to_the_same_place_are_told_apart() -> None:
    texts = [b"%d" % (number % 700) for number in range(2100)]
    given = column(texts)
    begin, end, of = (np.empty(2100, dtype=np.int64) for _ in range(3))
    table = np.full(1024, -1, dtype=np.int64)  # so few that many have to look for another
    count = loops.numbered(given.begin, given.end, given.words, cells.KEEP, table, begin, end, 0, of)
    assert count == 700
    assert of.tolist() == [*range(700)] * 3


def test_an_id_that_is_no_uuid_has_a_key_as_well() -> None:
    texts = [
        "01a1f0be-24e4-766c-be62-dc047c6895f0", "", "01a1f0be-24e4-766c-be62-dc047c6895fx", "<a@b>",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "8a1f0be-24e4-766c-be62-dc047c6895f00", "-" * 36,
        "01a1f0be-24e4-766c-be62-dc047c6895-0", "01a1f0be024e4-766c-be62-dc047c6895f0", "é" * 18,
    ]  # fmt: skip
    high, low, uuid = keys(column([text.encode() for text in texts]))
    assert np.flatnonzero(uuid).tolist() == [0, 4]
    expected = [key_of(text) if text else (0, 0) for text in texts]
    assert list(zip(high.tolist(), low.tolist(), strict=True)) == expected


def test_a_time_is_what_the_calendar_says() -> None:
    draw = random.Random(3)
    days = [
        datetime(draw.randint(1, 9999), draw.randint(1, 12), draw.randint(1, 28), tzinfo=UTC)
        for _ in range(900)
    ]
    days += [datetime(year, 3, 1, tzinfo=UTC) - timedelta(days=1) for year in (1900, 2000, 2023, 2024, 2100)]
    days += [datetime(2026, month, 1, tzinfo=UTC) - timedelta(days=1) for month in range(1, 13)]
    times = [day + timedelta(milliseconds=draw.randrange(86_400_000)) for day in days]
    texts = [time.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode() for time in times]
    found = _looked_at(texts)
    assert found == [(time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) for time in times]


@pytest.mark.parametrize("place", range(24))
def test_a_time_with_another_octet_is_none_of_ours(place: int) -> None:
    good = b"2026-10-29T16:07:42.220Z"
    for octet in {*range(256)} - {*b"0123456789"} - {good[place]}:
        assert _looked_at([good[:place] + bytes([octet]) + good[place + 1 :]]) == [loops.NONE]


@pytest.mark.parametrize(
    "text",
    [
        b"2026-02-29T00:00:00.000Z", b"2026-04-31T00:00:00.000Z", b"2026-13-01T00:00:00.000Z",
        b"2026-00-01T00:00:00.000Z", b"2026-01-00T00:00:00.000Z", b"2026-01-32T00:00:00.000Z",
        b"2026-01-01T24:00:00.000Z", b"2026-01-01T00:60:00.000Z", b"2026-01-01T00:00:60.000Z",
        b"1900-02-29T00:00:00.000Z", b"2026-01-01T00:00:00.00Z", b"",
    ],
)  # fmt: skip
def test_what_is_no_time_is_left_to_the_parser(text: bytes) -> None:
    assert _looked_at([text]) == [loops.NONE]


def _looked_at(texts: list[bytes]) -> list[int]:
    given, found = column(texts), np.empty(len(texts), dtype=np.int64)
    loops.moments(given.begin, given.end, given.words, found)
    return found.tolist()


@pytest.mark.parametrize(
    "text", [b"S:Seq=1;S:Boot=b;S:Db=d", b"S:Seq=123456789012345678;S:Boot=b;S:Db=d;S:Epoch=1"]
)
def test_a_sequence_is_read_with_what_follows(text: bytes) -> None:
    assert _sequences(text) == (int(text[6:].partition(b";")[0]), text.partition(b"S:Db=d")[2])


@pytest.mark.parametrize(
    "text",
    [
        b"", b"S:Se", b"S:Seq=", b"S:Seq=;S:Boot=b;S:Db=d", b"S:Seq=1234567890123456789;S:Boot=b;S:Db=d",
        b"S:Seq=1;S:Boot=b;S:Db=", b"S:Seq=1;S:Boot=b;S:Db=e", b"S:Seq=-1;S:Boot=b;S:Db=d",
        b"s:Seq=1;S:Boot=b;S:Db=d",
    ],
)  # fmt: skip
def test_what_has_no_sequence_of_this_log_is_left_as_it_is(text: bytes) -> None:
    assert _sequences(text) == (-1, text)


def _sequences(text: bytes) -> tuple[int, bytes]:
    own = b";S:Boot=b;S:Db=d"
    given, number, rest = column([text]), *np.empty((2, 1), dtype=np.int64)
    loops.sequences(
        given.begin, given.end, given.data, given.words, cells.KEEP, cells.packed(own), len(own), number, rest
    )
    return int(number[0]), text[rest[0] :]


@pytest.mark.parametrize(
    ("text", "digests"),
    [
        (b";S:Epoch=1;S:Rank=1", b""),
        (b";S:Epoch=1", b";S:Content=xxh3-128:00;S:Envelope=xxh3-128:11"),
        (b";S:Epoch=1", b";S:Content=sha-512:00"),
        (b"", b";S:Envelope=xxh3-128:11"),
        (b";S:Content=xxh3-128:00;S:Epoch=1", b""),
        (b"S:Content=xxh3-128:00", b""),
        (b";", b""),
        (b"", b""),
    ],
)
def test_digests_at_the_end_are_cut_off(text: bytes, digests: bytes) -> None:
    ((rest, number),) = _digests([text + digests])
    assert (rest, number >= 0) == (text, bool(digests))


def test_equal_digests_have_equal_numbers_and_others_have_not() -> None:
    texts = [b";S:Epoch=%d;S:Content=a:%d;S:Envelope=b:%d" % (n % 3, n % 50, n % 7) for n in range(2000)]
    numbers = [number for _, number in _digests(texts)]
    same = {text.partition(b";S:Content")[2]: number for text, number in zip(texts, numbers, strict=True)}
    assert [same[text.partition(b";S:Content")[2]] for text in texts] == numbers
    assert len(set(numbers)) == 50 * 7


def _digests(texts: list[bytes]) -> list[tuple[bytes, int]]:
    given, (rest, number) = column(texts), np.empty((2, len(texts)), dtype=np.int64)
    loops.digests(given.begin, given.end, given.data, given.words, cells.KEEP, rest, number)
    return [(texts[row][: rest[row] - given.begin[row]], int(number[row])) for row in range(len(texts))]


LISTS = ("a@x", "", "a@x;b@x", "grüße@x;a@x;b@x", "o'brien@x", "'odd;one'@x;'two;parts';a@x", ";", "b@x;a@x")


@pytest.mark.parametrize("salt", [0, 12345, (1 << 62) - 1])
def test_recipients_weigh_what_a_careful_reader_finds(salt: int) -> None:
    """By their own numbers, or by 1, 2, and so on. What may be in single quotes is left to the parser."""
    numbers = [(), (3, 1 << 30), (2, 1, 7)]
    given = column([text.encode() for text in LISTS for _ in numbers])
    of = np.array([*range(len(numbers))] * len(LISTS), dtype=np.int64)
    first = np.cumsum([0, *map(len, numbers)])
    flat = np.array([number for one in numbers for number in one], dtype=np.int64)
    count, plain, salted = np.empty((3, len(of)), dtype=np.int64)
    loops.recipients(given.begin, given.end, given.data, of, first, flat, salt, count, plain, salted)
    for row, text in enumerate(text for text in LISTS for _ in numbers):
        members, named = listed(text), numbers[of[row]]
        if "'" in text:
            assert count[row] == -2
        elif named and len(named) != len(members):
            assert count[row] == -1
        else:
            own = named or tuple(range(1, len(members) + 1))
            assert count[row] == len(members)
            assert (plain[row], salted[row]) == (weights(own, members), weights(own, members, salt))


@pytest.mark.parametrize(
    "text", [b"0", b"4096", b"9" * 18, b"9" * 19, b"", b"-1", b"1e3", b"12a", "²".encode()]
)
def test_a_whole_number_is_one_in_digits(text: bytes) -> None:
    given, found = column([text]), np.empty(1, dtype=np.int64)
    loops.whole(given.begin, given.end, given.data, found)
    assert found[0] == (int(text) if len(text) < 19 and text.isdigit() else -1)


def test_commas_and_ends_are_found_over_the_edge_of_a_part(tmp_path: Path) -> None:
    rows = [b",".join([b"x" * size] * len(FIELDS)) + b"\r\n" for size in (900, 1, 1023, 1024, 5000, 0)] * 3
    (block,) = blocks(tmp_path / "log", rows)
    assert [block.row(number) for number in range(block.rows)] == rows
    found = split(block, FIELDS, WANTED)
    assert [len(text) for text in found["log-id"].texts()] == [900, 1, 1023, 1024, 5000, 0] * 3


def test_a_process_that_reads_little_needs_no_compiler(tmp_path: Path) -> None:
    blocks(tmp_path / "log", [b"a,b,c,d,e\r\n"] * 1000)
    program = (
        "import sys; from pathlib import Path; from shadowaudit.logs.lines import Reading; "
        "print(*(block.rows for block in Reading(Path(sys.argv[1])).blocks()), 'numba' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "log"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1000", "False"]
