"""What Spark asks of the data source, without Spark: schemas, options, filters, offsets, batches it takes."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from resealing import logs as files_of
from test_audit_exchange import log as exchange_log
from test_audit_exchange import row as exchange_row
from typed import SCHEMA, read

from shadowaudit.logs.lines import BLOCK, Reading
from shadowaudit.spark import planning
from shadowaudit.spark.columns import COLUMNS, NoSuchColumnError
from shadowaudit.spark.planning import Wanted
from shadowlab.generate.cluster import generate

pytest.importorskip("pyspark")
from pyspark import cloudpickle
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
from pyspark.sql.types import StringType, StructField, StructType

from shadowaudit.spark.options import OptionError
from shadowaudit.spark.source import MessageTracking, StreamReader, narrowed

TEN = datetime(2026, 11, 21, 10, tzinfo=UTC)
ALL = ReadAllAvailable()


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    generate(tmp_path / "logs", messages=30, faults={}, seed=2)
    return tmp_path / "logs"


def source(logs: Path, **options: str) -> MessageTracking:
    return MessageTracking({"path": str(logs)} | options)


def rows(reader: Any, parts: Any) -> list[dict[str, Any]]:
    """As a task gets them: reader and part have travelled."""
    found: list[dict[str, Any]] = []
    for part in parts:
        there, here = pickle.loads(cloudpickle.dumps((reader, part)))
        for batch in there.read(here):
            found += batch.to_pylist(maps_as_pydicts="strict")
    return found


def queried(made: MessageTracking, *filters: Filter) -> list[dict[str, Any]]:
    reader = made.reader(made.schema())
    assert list(reader.pushFilters(list(filters))) == list(filters), "Spark looks at each row all the same"
    return rows(reader, reader.partitions())


def test_the_schema_is_the_one_that_spark_wants_batches_of() -> None:
    assert to_arrow_schema(MessageTracking({}).schema(), timezone="UTC").equals(SCHEMA)


def test_a_query_has_the_rows_of_all_files(logs: Path) -> None:
    assert queried(source(logs)) == [row for path in files_of(logs) for row in read(path)]
    assert queried(source(logs, maxPartitionBytes="1")) == queried(source(logs))


@pytest.mark.parametrize("octets", ["1", "5000", "30000"])
@pytest.mark.parametrize("block", [3000, BLOCK])
def test_a_file_in_pieces_has_its_rows_once_and_what_is_wrong_with_it(
    logs: Path, octets: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where rows have lines, columns change within, and nobody but the first rows says who wrote it."""
    monkeypatch.setattr(Reading.blocks_of, "__defaults__", (block,))
    usual = exchange_log(
        logs / "other" / "EX01", 2013, [exchange_row(2013, "RECEIVE", server_hostname="ex7"), "no row"]
    ).read_bytes()
    later = exchange_log(
        logs / "EX01",
        2016,
        [exchange_row(2016, "DELIVER", n, message_subject=f'"a {n}\r\n#b\r\n"') for n in range(200)],
    )
    later.write_bytes(usual + later.read_bytes())
    ours = files_of(logs / "mx1")[0]
    ours.write_bytes(ours.read_bytes().replace(b"RECEIVE", b"RECEIVF", 1))
    big = queried(source(logs))
    made = source(logs, maxPartitionBytes=octets)
    reader = made.reader(made.schema())
    pieces = [piece for part in reader.partitions() for piece in part.pieces]
    assert len(pieces) > len({piece.log for piece in pieces})
    assert rows(reader, reader.partitions()) == big
    assert {"ex7"} < {row["node"] for row in big}
    assert [row["problem"] for row in big if row["line"] is None], "what is wrong with a file"


def test_batches_are_of_the_type_that_spark_checks(logs: Path) -> None:
    made = source(logs, columns="event_id, date_time, custom_data")
    reader = made.reader(made.schema())
    for part in reader.partitions():
        for batch in reader.read(part):
            assert isinstance(batch, pa.RecordBatch)
            assert batch.schema.equals(to_arrow_schema(made.schema(), timezone="UTC"))


def test_no_files_are_no_rows(tmp_path: Path) -> None:
    reader = source(tmp_path).reader(source(tmp_path).schema())
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == [], "what Spark reads where there is no partition"


def test_columns_may_be_chosen_by_name_or_by_schema(logs: Path) -> None:
    (first, *_) = queried(source(logs, columns="line,node"))
    assert list(first) == ["line", "node"]
    assert [one.name for one in source(logs).schema()] == [one.name for one in COLUMNS]
    with pytest.raises(NoSuchColumnError, match="no column 'nodes'"):
        source(logs, columns="nodes").schema()
    with pytest.raises(NoSuchColumnError, match="line is a bigint, not string"):
        source(logs).reader(StructType([StructField("line", StringType())]))


def test_a_schema_and_other_columns_at_once_are_refused(logs: Path) -> None:
    """A reader of Spark that is used again keeps the schema that it was given before."""
    narrow = StructType([StructField("node", StringType())])
    assert source(logs, columns=" node").reader(narrow)
    for make in (MessageTracking.reader, MessageTracking.streamReader):
        with pytest.raises(OptionError, match=r"\.schema\(…\) has node; the option columns has file, node"):
            make(source(logs, columns="file,node"), narrow)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"path": ""}, "say where the logs are"),
        ({"mode": "careless"}, "mode is one of PERMISSIVE, DROPMALFORMED, FAILFAST, not CARELESS"),
        ({"maxPartitionBytes": "0"}, "maxPartitionBytes is a whole number from 1 on, not '0'"),
        ({"maxFilesPerTrigger": "ten"}, "maxFilesPerTrigger is a whole number from 1 on, not 'ten'"),
        ({"mergeSchema": "yes"}, "mergeSchema is true or false, not 'yes'"),
        ({"modifiedAfter": "monday"}, "modifiedAfter is a time such as 2026-11-21T10:00:00"),
        ({"columnNameOfCorruptRecord": "node"}, "there is a column node already"),
        ({"pathGlobFliter": "*"}, "no option 'pathglobfliter': did you mean pathGlobFilter"),
        ({"header": "true"}, "no option 'header': there are path, paths, columns"),
    ],
)
def test_an_option_that_cannot_be_is_refused(options: Mapping[str, str], told: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=told):
        source(tmp_path, **options).reader(SCHEMA_OF_NONE)


SCHEMA_OF_NONE = StructType([])


def test_several_places_come_as_spark_hands_them_on(logs: Path) -> None:
    several = f'["{logs}/mx1", "{logs}/mx3"]'
    found = MessageTracking({"paths": several}).reader(SCHEMA_OF_NONE).partitions()
    assert {one.log.uri.split("/")[-2] for part in found for one in part.pieces} == {"mx1", "mx3"}


def files(made: MessageTracking) -> set[str]:
    return {row["file"] for row in queried(made)}


def test_files_are_chosen_by_name_by_time_and_by_depth(logs: Path) -> None:
    everything = {str(path) for path in files_of(logs)}
    old, *_ = files_of(logs / "mx1")
    os.utime(old, (0, TEN.timestamp()))
    assert files(source(logs, pathGlobFilter="MSGTRK-mx[23]*")) == {
        one for one in everything if "/mx1/" not in one
    }
    assert files(source(logs, modifiedAfter="2026-11-21T10:00:00")) == everything - {str(old)}, "exactly then"
    assert files(source(logs, modifiedAfter="2026-11-21T09:59:59.999Z")) == everything
    assert files(source(logs, modifiedBefore="2026-11-21T12:00:01+02:00")) == {str(old)}
    assert files(source(logs, modifiedBefore="2026-11-21T10:00:00")) == set()
    assert files(source(logs, recursiveFileLookup="false")) == set(), "all are in directories of nodes"
    assert files(source(logs / "mx1", recursiveFileLookup="FALSE")) == files(source(logs / "mx1"))
    assert files(source(logs / "mx*", recursiveFileLookup="false")) == everything
    (logs / "mx1" / "deeper").mkdir()
    old.rename(logs / "mx1" / "deeper" / old.name)
    assert files(source(logs / "mx*", recursiveFileLookup="false")) == everything - {str(old)}
    assert streamed(logs, pathGlobFilter="*mx1*").latestOffset({}, ALL).keys() == {
        str(logs / "mx1" / "deeper")
    }


def test_the_row_as_it_stands_may_have_another_name(logs: Path) -> None:
    exchange_log(logs / "EX01", 2013, ["no row"])
    (bad,) = [row for row in queried(source(logs, columnNameOfCorruptRecord="raw")) if row["problem"]]
    assert bad["raw"] == "no row"
    assert "_corrupt_record" not in bad
    assert source(logs, columnNameOfCorruptRecord="raw", columns="raw, line").schema().names == [
        "raw",
        "line",
    ]
    with pytest.raises(NoSuchColumnError, match="no column 'row'"):
        source(logs, columnNameOfCorruptRecord="raw", columns="row").schema()


def test_the_file_that_a_row_is_of_is_told_as_spark_tells_of_its_own(logs: Path) -> None:
    path = files_of(logs / "mx1")[0]
    path.write_bytes(path.read_bytes() + b"#more\r\n")
    os.utime(path, (0, TEN.timestamp()))
    exact = {
        "file_path": str(path),
        "file_name": path.name,
        "file_size": path.stat().st_size,
        "file_modification_time": TEN,
    }
    found = queried(source(path, columns="problem, _metadata"))
    assert all(row["_metadata"] == exact for row in found)
    assert found[-1]["problem"], "of the file as a whole"
    assert source(path, columns="*,_metadata").schema().names == [*(one.name for one in COLUMNS), "_metadata"]


def test_columns_that_only_a_later_log_has_are_there_if_they_are_asked_for(logs: Path) -> None:
    with_more = exchange_log(
        logs / "EX01", 2016, [exchange_row(2016, "RECEIVE"), exchange_row(2016, "DELIVER", 2)]
    )
    lines = with_more.read_bytes().decode("utf-8-sig").splitlines(keepends=True)
    lines = [
        line.rstrip("\r\n")
        + (",X-Zone,node\r\n" if line.startswith("#Fields") else "" if line[0] == "#" else ",far,9\r\n")
        if line.startswith("#Fields") or line[0] != "#"
        else line
        for line in lines
    ]
    with_more.write_text("".join(lines), newline="")
    assert "x_zone" not in source(logs).schema().names
    made = source(logs, mergeSchema="true")
    assert made.schema().names == [*(one.name for one in COLUMNS), "x_zone"], "node is another column already"
    found = queried(made)
    assert {(row["software"], row["x_zone"]) for row in found} == {("shadowrelay", None), ("exchange", "far")}
    assert [{name: row[name] for name in SCHEMA.names} for row in found] == queried(source(logs))
    assert source(logs, mergeSchema="true", columns="x_zone").schema().names == ["x_zone"]
    with pytest.raises(NoSuchColumnError, match="no column 'x_zone'"):
        source(logs, columns="x_zone").schema()


AT, NODE = ("date_time",), ("node",)


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([GreaterThan(AT, TEN)], Wanted(since=TEN)),
        ([GreaterThanOrEqual(AT, TEN), LessThan(AT, TEN + timedelta(1))], Wanted(TEN, TEN + timedelta(1))),
        ([LessThanOrEqual(AT, TEN)], Wanted(until=TEN)),
        ([EqualTo(AT, TEN)], Wanted(TEN, TEN)),
        ([EqualNullSafe(NODE, "mx1")], Wanted(nodes=frozenset({"mx1"}))),
        ([EqualTo(NODE, "mx1")], Wanted(nodes=frozenset({"mx1"}))),
        ([In(NODE, ("mx1", "mx2")), EqualTo(NODE, "mx2")], Wanted(nodes=frozenset({"mx2"}))),
        ([Not(EqualTo(NODE, "mx1")), IsNotNull(AT), StringStartsWith(NODE, "mx")], Wanted()),
        ([EqualTo(("event_id",), "RECEIVE"), GreaterThan(AT, TEN.replace(tzinfo=None))], Wanted()),
        ([EqualNullSafe(NODE, None), EqualTo(("custom_data", "node"), "mx1")], Wanted()),
    ],
)
def test_filters_of_time_and_node_narrow_what_is_read(filters: list[Filter], wanted: Wanted) -> None:
    found = Wanted()
    for one in filters:
        found = narrowed(found, one)
    assert found == wanted


def test_filters_leave_out_whole_files_and_no_row_that_is_asked_for(logs: Path) -> None:
    whole = queried(source(logs))
    some = queried(source(logs), EqualTo(NODE, "mx2.example.net"))
    assert some == [row for row in whole if row["node"] == "mx2.example.net"]
    assert len(some) < len(whole)
    first = min(row["date_time"] for row in whole)
    assert queried(source(logs), LessThan(AT, first - timedelta(days=1))) == []
    assert queried(source(logs), GreaterThan(AT, first)) == whole


def streamed(logs: Path, **options: str) -> StreamReader:
    made = source(logs, **options)
    reader = made.streamReader(made.schema())
    assert isinstance(reader, StreamReader)
    return reader


def test_a_stream_has_the_rows_of_a_query_file_by_file(logs: Path) -> None:
    reader = streamed(logs, maxFilesPerTrigger="1")
    assert reader.getDefaultReadLimit() == ReadMaxFiles(1)
    start, found = reader.initialOffset(), []
    while (end := reader.latestOffset(start, ReadMaxFiles(1))) != start:
        (part,) = reader.partitions(start, end)
        assert len(part.pieces) == 1
        found += rows(reader, [part])
        reader.commit(end)
        start = end
    assert reader.partitions(start, start) == []
    key = ("file", "line")
    assert sorted(found, key=lambda row: [row[one] for one in key]) == queried(source(logs))


def test_a_stream_reads_what_comes_late_and_once_more_what_grew(logs: Path) -> None:
    late = (logs / "mx1").rename(logs.parent / "mx1")
    reader = streamed(logs)
    assert reader.getDefaultReadLimit() == ALL
    first = reader.latestOffset({}, ALL)
    late.rename(logs / "mx1")
    second = reader.latestOffset(first, ALL)
    found = rows(reader, reader.partitions(first, second))
    assert {row["node"] for row in found} == {"mx1.example.net"}
    grown = files_of(logs / "mx2")[0]
    grown.write_bytes(grown.read_bytes() + b"#more\r\n")
    third = streamed(logs).latestOffset(second, ALL)
    assert {row["file"] for row in rows(reader, reader.partitions(second, third))} == {str(grown)}
    assert reader.latestOffset(third, ALL) == third


def test_the_offset_of_a_stream_names_no_file_that_came_long_ago(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "KEPT", 0)
    reader, start = streamed(logs), {}
    for number in range(1, 5):
        again = [
            (path, path.with_name(f"{path.name[:-4]}{number}.LOG")) for path in files_of(logs / "mx1")[:1]
        ]
        for path, copy in again:
            copy.write_bytes(path.read_bytes())
        end = reader.latestOffset(start, ALL)
        assert {row["file"] for row in rows(reader, reader.partitions(start, end))} >= {str(copy)}
        start = end
    assert len(start[str(logs / "mx1")]) == 2, "a time, and the one that was read last"
    assert streamed(logs).latestOffset(start, ALL) == start


def test_a_stream_that_shall_end_reads_what_was_there_when_it_began(logs: Path) -> None:
    late = (logs / "mx1").rename(logs.parent / "mx1")
    reader = streamed(logs)
    reader.prepareForTriggerAvailableNow()
    late.rename(logs / "mx1")
    end = reader.latestOffset({}, ALL)
    assert not [directory for directory in end if directory.endswith("/mx1")]
    assert reader.latestOffset(end, ALL) == end
