"""Rows as typed columns: equal to what each row says by itself, and what cannot be read is told."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from resealing import logs as files_of
from test_audit_exchange import log as exchange_log
from test_audit_exchange import row as exchange_row
from test_audit_hostile import at, lines_of, write
from typed import SCHEMA, read

from shadowaudit.core.events import entries_of, listed
from shadowaudit.core.facts import Fault
from shadowaudit.core.text import restored, split_row
from shadowaudit.logs.lines import Reading
from shadowaudit.spark.columns import INT, LIST, LONG, MAP, NAMED, NoSuchColumnError, checked
from shadowaudit.spark.event_rows import MalformedError, Mode, batches
from shadowlab.generate.cluster import generate
from shadowlab.generate.writing import FIELDS


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("cluster")
    generate(target, messages=60, faults={"lost": 1, "duplicate": 2}, seed=3)
    return target


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    generate(tmp_path / "logs", messages=30, faults={}, seed=2)
    return tmp_path / "logs"


def plainly(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of one of our logs, one by one, by the audit's own rules for a single row."""
    node = path.name.removeprefix("MSGTRK-").rsplit("-", 2)[0]
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        if line.startswith(b"#"):
            continue
        cells = split_row(line, 30, strict=True)
        assert cells is not None
        given = dict(zip(FIELDS.split(","), map(restored, cells), strict=True))
        own = entries_of(given["custom-data"])
        typed: dict[str, Any] = {"file": str(path), "line": number, "software": "shadowrelay", "node": node}
        typed |= {"database": own.get("Db"), "incarnation": own.get("Boot")}
        typed |= {"sequence": int(own["Seq"]), "epoch": int(own["Epoch"]) if "Epoch" in own else None}
        for field, text in given.items():
            column = NAMED[field.replace("-", "_")]
            value: Any = text
            if column.name == "date_time" and text:
                value = datetime.fromisoformat(text).astimezone(UTC)
            elif column.type in (LONG, INT) and text:
                value = int(text)
            elif column.type == LIST:
                value = list(listed(text))
            elif column.type == MAP:
                value = own
            typed[column.name] = value or (value if value == 0 and text else None)
        yield typed | {"problem": None, "_corrupt_record": None}


def test_every_row_of_a_cluster_says_what_it_says_by_itself(cluster: Path) -> None:
    for path in files_of(cluster):
        assert read(path) == list(plainly(path))


def test_a_narrow_schema_gives_the_same_rows_in_its_own_order(cluster: Path) -> None:
    names = ("event_id", "line", "custom_data", "date_time")
    for path in files_of(cluster):
        assert read(path, *names) == [{name: row[name] for name in names} for row in read(path)]


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=12) | st.sampled_from(
    ["'=1+1", "' @x", "'o'brien", "a;b", "'a;b';c", '"', ",", "S:A=1;B;I32:C=2;S:A=3", "=;=", ""]
)


@given(cells=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4))
@example(cells=[("", "", "S:A=1;B;I32:C=2;S:A=3")])
@settings(max_examples=60, deadline=None)
def test_whatever_the_cells_hold_they_are_read_as_one_row_by_itself(
    cells: list[tuple[str, str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if {'"', ","} & set(text) else text

    head = f"#Software: shadowrelay\r\n#Fields: {FIELDS}\r\n"
    rows = []
    for number, (subject, recipients, custom) in enumerate(cells, 1):
        given = {
            "date-time": "2026-11-21T10:00:00.000Z",
            "event-id": "RECEIVE",
            "message-subject": quoted(subject),
            "recipient-address": quoted(recipients),
            "custom-data": quoted(f"S:Seq={number};S:Boot=b;S:Db=d;{custom}"),
        }
        rows.append(",".join(given.get(name, "") for name in FIELDS.split(",")) + "\r\n")
    path = tmp_path_factory.mktemp("cells") / "MSGTRK-mx1-b-1.LOG"
    path.write_bytes((head + "".join(rows)).encode())
    told = read(path)
    assert told.pop()["problem"] == Fault.NO_FOOTER
    assert told == list(plainly(path))


def test_lines_are_counted_over_blocks(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Reading.blocks_of
    monkeypatch.setattr(Reading, "blocks_of", lambda reading, file: blocks(reading, file, 2000))
    for path in files_of(cluster):
        assert read(path) == list(plainly(path))


@pytest.mark.parametrize("year", [2010, 2013, 2016])
@pytest.mark.parametrize("end", ["\r\n", "\n"], ids=["CRLF", "LF"])
def test_exchanges_logs_are_read_by_their_own_fields(tmp_path: Path, year: int, end: str) -> None:
    path = exchange_log(
        tmp_path / "EX07",
        year,
        [
            exchange_row(year, "RECEIVE", to="anna@contoso.com;'odd;one'@contoso.com", total_bytes="5120"),
            "#a comment may stand anywhere",
            exchange_row(year, "DELIVER", message_subject='"one\r\ntwo"', custom_data="S:A=1;I32:B=2"),
        ],
        end=end,
    )
    first, second = read(path)
    assert (first["node"], first["software"], first["line"]) == ("EX01", "exchange", 6)
    assert first["recipient_address"] == ["anna@contoso.com", "'odd", "one'@contoso.com"]
    assert (first["total_bytes"], first["message_subject"]) == (5120, 'Re: prices, and "more"')
    assert (second["line"], second["message_subject"]) == (8, "one\r\ntwo")
    assert second["custom_data"] == ({"A": "1", "B": "2"} if year > 2010 else None)
    assert (first["network_message_id"] is None) == (year == 2010)
    assert {row["problem"] for row in (first, second)} == {None}
    assert {row[name] for row in (first, second) for name in ("database", "sequence", "incarnation")} == {
        None
    }


def test_an_exchange_log_without_a_telling_row_is_of_the_node_that_its_directory_names(
    tmp_path: Path,
) -> None:
    path = exchange_log(tmp_path / "EX07", 2016, [exchange_row(2016, "DEFER")])
    assert [row["node"] for row in read(path)] == ["EX07"]


def test_statuses_that_exchange_does_not_quote_are_one_for_each_recipient(tmp_path: Path) -> None:
    status = "[{LRT=2026-11-21T10:00:00Z};{LED=550 5.1.1 unknown};{FQDN=};{IP=}]"
    to = "a@contoso.com;b@contoso.com"
    path = exchange_log(
        tmp_path, 2016, [exchange_row(2016, "FAIL", to=to, recipient_status=f"{status};{status}")]
    )
    assert read(path)[0]["recipient_status"] == [status, status]


def test_a_row_that_is_none_is_told_with_its_text_and_the_others_are_read(logs: Path) -> None:
    path = files_of(logs)[0]
    whole = read(path)
    lines = lines_of(path)
    place = at(lines, b"RECEIVE")
    lines[place] = lines[place][:40] + b"\r\n"
    write(path, lines, sealed=True)
    found = read(path)
    (bad,) = [row for row in found if row["problem"]]
    assert bad["problem"] == "this is not a row of the 30 columns in #Fields"
    assert (bad["line"], bad["_corrupt_record"]) == (place + 1, lines[place].decode().rstrip("\r\n"))
    assert (bad["event_id"], bad["node"], bad["file"]) == (None, whole[0]["node"], str(path))
    assert [row for row in found if row["line"] != place + 1] == [
        row for row in whole if row["line"] != place + 1
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b"2026-", b"last-", "date-time is not a time"),
        (b",4096,", b",4 KB,", "total-bytes is not a number"),
        (b",4096,1,", b",4096,one,", "recipient-count is not a number"),
        (b",RECEIVE,", b",,", "event-id is empty"),
        (b"S:Seq=", b"S:Seq=x", "custom-data has no valid S:Seq"),
        (b"S:Db=", b"S:D=", "custom-data has no valid S:Db"),
    ],
)
def test_a_value_that_is_none_is_null_and_told_and_the_rest_of_the_row_is_read(
    logs: Path, old: bytes, new: bytes, problem: str
) -> None:
    path = files_of(logs)[0]
    lines = lines_of(path)
    place = at(lines, b"RECEIVE")
    lines[place] = lines[place].replace(old, new, 1)
    write(path, lines, sealed=True)
    (bad,) = [row for row in read(path) if row["problem"]]
    assert (bad["line"], bad["problem"]) == (place + 1, problem)
    assert bad["_corrupt_record"] == lines[place].decode().rstrip("\r\n")
    assert bad["sender_address"] == "sender@example.org"


EXCHANGES = st.text(st.sampled_from(["a", "ß", ";", "'", '"', ",", "\n", "#"]), max_size=6)


@given(rows=st.lists(st.tuples(EXCHANGES, EXCHANGES, st.integers(1, 30)), min_size=1, max_size=5))
@settings(max_examples=100, deadline=None)
def test_each_row_of_exchange_is_read_whole_or_told_to_be_none(
    rows: list[tuple[str, str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines, expected = [], []
    for number, (subject, context, fields) in enumerate(rows):
        cells = {"date-time": "2026-11-21T10:00:00.000Z", "event-id": "RECEIVE", "log-id": str(number)}
        cells |= {"message-subject": subject, "source-context": context, "schema-version": "15"}
        told = [cells.get(name, "") for name in FIELDS.split(",")[:fields]]
        lines.append(
            ",".join(f'"{one.replace(chr(34), chr(34) * 2)}"' if {*one} & {*',"\n'} else one for one in told)
        )
        whole = fields == 30
        expected.append(
            (subject or None, context or None, str(number), None) if whole else (None,) * 3 + (lines[-1],)
        )
    path = exchange_log(tmp_path_factory.mktemp("rows"), 2016, lines)
    found = [
        (row["message_subject"], row["source_context"], row["log_id"], row["_corrupt_record"])
        for row in read(path)
    ]
    assert found == expected


@pytest.mark.parametrize("fields", [13, 29])
@pytest.mark.parametrize("quotes", [False, True])
def test_a_row_of_exchange_that_ends_early_is_none(tmp_path: Path, fields: int, *, quotes: bool) -> None:
    row = exchange_row(2016, "RECEIVE", message_subject="'a'" if not quotes else '"a,b,c"')
    cells = row.split(",")[:fields] if not quotes else [*row.split(",")[:12], '"a,,,,,,,,,,,,,,,,,,"']
    path = exchange_log(tmp_path, 2016, [exchange_row(2016, "RECEIVE", schema_version="15"), ",".join(cells)])
    good, bad = read(path)
    assert (good["problem"], bad["problem"]) == (None, "this is not a row of the 30 columns in #Fields")
    assert (bad["event_id"], bad["_corrupt_record"]) == (None, ",".join(cells))


def test_octets_that_are_no_utf_8_are_told(tmp_path: Path) -> None:
    path = exchange_log(tmp_path, 2016, [exchange_row(2016, "RECEIVE", message_subject="gr@@e")])
    path.write_bytes(path.read_bytes().replace(b"@@", b"\xfc\xdf"))
    (row,) = read(path)
    assert row["problem"] == "octets that are not UTF-8 are shown as U+FFFD"
    assert row["message_subject"] == "gr\ufffd\ufffde"


@pytest.mark.parametrize(
    ("harm", "faults"),
    [
        (lambda lines: lines[:-1], [Fault.NO_FOOTER]),
        (lambda lines: [*lines, b"#more\r\n"], [Fault.TRAILING]),
        (lambda lines: [*lines[:8], lines[8].replace(b"example", b"exbmple", 1), *lines[9:]],
         [Fault.WRONG_HASH]),
        (lambda lines: [line.replace(b" rows=", b" rows=1") for line in lines], [Fault.WRONG_COUNT]),
        (lambda lines: [b"#Software: Microsoft Exchange Server\r\n", *lines[1:]],
         [Fault.WRONG_HEADER, Fault.WRONG_HASH]),
    ],
    ids=["no footer", "more after it", "an octet", "another count", "another header"],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_a_row_behind_its_rows(logs: Path, harm: Any, faults: list[str]) -> None:
    path = files_of(logs)[0]
    rows = len(read(path))
    write(path, harm(lines_of(path)), sealed=False)
    found = read(path)
    assert len(found) == rows + len(faults)
    assert [row["problem"] for row in found if row["problem"]] == faults
    assert all(row["line"] is None and row["event_id"] is None for row in found[rows:])


@pytest.mark.parametrize(
    ("octets", "problem"),
    [
        (b"", Fault.NO_FIELDS),
        (b"\0" * 5000, Fault.NO_FIELDS),
        (b"a,b\r\nc,d\r\n", Fault.NO_FIELDS),
        ("#Fields: date-time\r\nx\r\n".encode("utf-16"),
         f"{Fault.NO_FIELDS} (it is UTF-16: convert it to UTF-8)"),
        ("#Fields: date-time\r\nx\r\n".encode("utf-16-le"),
         f"{Fault.NO_FIELDS} (it is UTF-16: convert it to UTF-8)"),
    ],
    ids=["empty", "zeros", "another table", "UTF-16", "UTF-16 without a mark"],
)  # fmt: skip
def test_what_is_no_log_is_one_row_that_says_so(tmp_path: Path, octets: bytes, problem: str) -> None:
    path = tmp_path / "MSGTRK2026112110-1.LOG"
    path.write_bytes(octets)
    (row,) = read(path)
    assert row.pop("problem") == problem
    assert row.pop("file") == str(path)
    assert set(row.values()) == {None}


def test_rows_with_problems_are_left_out_or_refused_if_that_is_asked_for(logs: Path) -> None:
    path = files_of(logs)[0]
    whole = read(path)
    assert read(path, mode=Mode.FAILFAST) == whole
    lines = lines_of(path)
    place = at(lines, b"DELIVER")
    lines[place] = b"x" + lines[place]
    path.write_bytes(b"".join(lines))
    assert read(path, "line", mode=Mode.DROPMALFORMED) == [
        {"line": row["line"]} for row in whole if row["line"] != place + 1
    ]
    with pytest.raises(MalformedError, match=f"line {place + 1}: date-time is not a time"):
        read(path, "event_id", mode=Mode.FAILFAST)


@pytest.mark.parametrize(("node", "rows"), [("EX01", 1), ("EX02", 0)])
def test_a_log_of_a_node_that_nobody_asks_for_is_left(tmp_path: Path, node: str, rows: int) -> None:
    path = exchange_log(tmp_path, 2016, [exchange_row(2016, "RECEIVE")])
    assert len(read(path, wants_node=lambda name: name in (None, node))) == rows


def test_any_open_file_will_do(logs: Path) -> None:
    path = files_of(logs)[0]
    (found,) = batches(io.BytesIO(path.read_bytes()), "s3://logs/x.LOG", pa.schema([SCHEMA.field("line")]))
    assert found.to_pylist() == read(path, "line")


@pytest.mark.parametrize(
    ("field", "told"),
    [
        (pa.field("nothing", pa.string()), "no column 'nothing': there are file, line"),
        (pa.field("line", pa.string()), "the column line is a bigint, not string"),
    ],
)
def test_a_schema_of_other_columns_is_refused(field: pa.Field, told: str) -> None:
    with pytest.raises(NoSuchColumnError, match=told):
        checked(pa.schema([field]))
