"""The data source in Spark: queries, filters, streams, S3."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from buckets import bucket
from pyarrow import fs
from pyspark.errors import PySparkException
from resealing import logs as files_of
from test_audit_exchange import log as exchange_log
from test_audit_exchange import row as exchange_row
from typed import SCHEMA, read

import shadowaudit
from shadowaudit.core.facts import Fault
from shadowlab.generate.cluster import generate

pytestmark = pytest.mark.slow

Row = dict[str, Any]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("logs") / "tracking"
    generate(target, messages=200, faults={"promotion": 2}, seed=4)
    exchange_log(
        target / "EX01", 2013, [exchange_row(2013, "RECEIVE"), "no row", exchange_row(2013, "DELIVER")]
    )
    return target


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    """Spark hands times to Python by the zone of the process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def tracking(spark_session: Any) -> Any:
    shadowaudit.register(spark_session)
    shadowaudit.register(spark_session)
    return spark_session.read.format("message_tracking")


def rows(frame: Any) -> list[Row]:
    return sorted(
        (row.asDict(recursive=True) for row in frame.collect()), key=lambda row: (row["file"], row["line"])
    )


def plain(row: Row) -> Row:
    """As Spark's rows are: its times have no zone."""
    at = row.get("date_time")
    return row | {"date_time": at.replace(tzinfo=None) if at else at}


def expected(logs: Path) -> list[Row]:
    found = [plain(row) for path in files_of(logs) for row in read(path)]
    return sorted(found, key=lambda row: (row["file"], row["line"]))


def test_a_session_that_is_open_is_used_again_and_tells_times_as_the_logs_do(spark_session: Any) -> None:
    assert shadowaudit.session() is spark_session
    assert spark_session.conf.get("spark.sql.session.timeZone") == "UTC"


def test_spark_has_every_row_of_all_files_with_its_types(tracking: Any, logs: Path) -> None:
    events = tracking.load(str(logs))
    assert events.columns == SCHEMA.names
    assert rows(events) == expected(logs)
    assert rows(tracking.option("maxPartitionBytes", 1).load(str(logs))) == expected(logs)


def test_several_places_and_patterns_are_read(tracking: Any, logs: Path) -> None:
    some = tracking.load([str(logs / "mx1"), f"file://{logs}/mx*2"])
    assert {row.node for row in some.select("node").distinct().collect()} == {
        "mx1.example.net",
        "mx2.example.net",
    }
    with pytest.raises(Exception, match="nowhere does not exist"):
        tracking.load(str(logs / "nowhere")).count()


def test_compressed_logs_are_refused(tracking: Any, logs: Path, tmp_path: Path) -> None:
    shutil.copytree(logs, tmp_path / "packed")
    first = min((tmp_path / "packed").rglob("MSGTRK*.LOG"))
    first.rename(first.with_name(f"{first.name}.zst"))
    with pytest.raises(PySparkException, match=f"not read: .*{first.name}.zst: unpack them first"):
        tracking.load(str(tmp_path / "packed")).count()


def test_a_version_of_the_format_that_nobody_knows_is_told(tracking: Any, logs: Path, tmp_path: Path) -> None:
    path = tmp_path / (first := min((logs / "mx1").rglob("MSGTRK*.LOG"))).name
    path.write_bytes(first.read_bytes().replace(b"#Version: 01.00.0001.000", b"#Version: 99", 1))
    told = tracking.load(str(path)).where("problem is not null").select("problem").collect()
    assert any(Fault.VERSION in row["problem"] for row in told)


def test_a_narrow_schema_and_an_aggregate_give_what_the_rows_say(tracking: Any, logs: Path) -> None:
    narrow = tracking.schema("event_id string, node string").load(str(logs))
    counted = {row.event_id: row["count"] for row in narrow.groupBy("event_id").count().collect()}
    assert counted == Counter(row["event_id"] for row in expected(logs))


def test_the_columns_that_are_named_come_in_their_order(tracking: Any, logs: Path) -> None:
    named = tracking.option("columns", "node, event_id").load(str(logs))
    assert named.columns == ["node", "event_id"]
    assert Counter((row.node, row.event_id) for row in named.collect()) == Counter(
        (row["node"], row["event_id"]) for row in expected(logs)
    )
    with pytest.raises(Exception, match="no column 'nodes'"):
        tracking.option("columns", "nodes").load(str(logs)).count()


def files_read(frame: Any) -> int:
    """How many tasks, with a file for each, the plan has."""
    return int(frame.rdd.getNumPartitions())


def test_filters_choose_files_and_rows(tracking: Any, logs: Path) -> None:
    events = tracking.option("maxPartitionBytes", 1).load(str(logs))
    everything = files_read(events)
    here = events.where("node = 'mx1.example.net' AND event_id = 'RECEIVE'")
    assert files_read(here) < everything
    assert here.count() == sum(
        row["node"] == "mx1.example.net" and row["event_id"] == "RECEIVE" for row in expected(logs)
    )
    assert files_read(events.where("node IN ('mx1.example.net', 'mx2.example.net')")) > files_read(here)
    at = max(row["date_time"] for row in expected(logs) if row["date_time"])
    assert events.where(f"date_time > timestamp '{at}Z' + interval 1 day").count() == 0
    some = events.where(f"date_time >= timestamp '{at}Z' - interval 1 second")
    assert some.count() == sum(
        row["date_time"] is not None and row["date_time"] >= at - timedelta(seconds=1)
        for row in expected(logs)
    )


def test_a_row_of_a_clock_that_was_set_is_found_by_its_time(tracking: Any, tmp_path: Path) -> None:
    """It stands between rows of another day, far from both ends of the file."""
    usual = ["2026-11-21T10:00:00.000Z"] * 500
    times = [*usual, "2027-11-21T10:00:00.000Z", *usual]
    lines = [exchange_row(2016, "RECEIVE", number, date_time=at) for number, at in enumerate(times, 1)]
    events = tracking.load(str(exchange_log(tmp_path, 2016, lines)))
    for condition, count in (
        ("date_time > timestamp '2027-01-01T00:00:00Z'", 1),
        ("date_time = timestamp '2027-11-21T10:00:00Z'", 1),
        ("date_time < timestamp '2027-01-01T00:00:00Z'", 1000),
        ("date_time > timestamp '2028-01-01T00:00:00Z'", 0),
    ):
        assert events.where(condition).count() == count, condition


def test_what_cannot_be_read_is_told_left_out_or_refused(tracking: Any, logs: Path) -> None:
    (bad,) = rows(tracking.load(str(logs)).where("problem IS NOT NULL"))
    assert (bad["line"], bad["_corrupt_record"]) == (7, "no row")
    assert tracking.option("mode", "DROPMALFORMED").load(str(logs)).where("problem IS NOT NULL").count() == 0
    with pytest.raises(Exception, match="line 7: this is not a row"):
        tracking.option("mode", "FAILFAST").load(str(logs)).count()


def test_spark_has_what_the_options_ask_for(
    spark_session: Any, tracking: Any, logs: Path, tmp_path: Path
) -> None:
    events = tracking.options(columns="*, _metadata", columnNameOfCorruptRecord="raw").load(str(logs))
    (bad,) = events.where("problem IS NOT NULL").select("raw", "_metadata.*").collect()
    (path,) = (logs / "EX01").iterdir()
    assert (bad.raw, bad.file_path, bad.file_name) == ("no row", str(path), path.name)
    assert bad.file_size == path.stat().st_size
    assert bad.file_modification_time.timestamp() == pytest.approx(path.stat().st_mtime, abs=1e-5)
    with_more = exchange_log(tmp_path, 2016, [exchange_row(2016, "RECEIVE")])
    lines = with_more.read_bytes().splitlines()
    more = [
        line + (b",x-zone" if line.startswith(b"#Fields") else b",far") for line in lines if line[:2] != b"#V"
    ]
    with_more.write_bytes(b"\r\n".join(more) + b"\r\n")
    merged = spark_session.read.format("message_tracking").option("mergeSchema", "true")
    found = merged.load([str(tmp_path), str(logs / "mx1")]).groupBy("x_zone").count().collect()
    assert {row.x_zone: row["count"] for row in found} == {"far": 1, None: len(expected(logs / "mx1"))}


def test_an_option_that_means_nothing_is_an_error_with_those_that_are_near(
    spark_session: Any, logs: Path
) -> None:
    read = spark_session.read.format("message_tracking").option("maxFilesPerTriger", 2)
    with pytest.raises(Exception, match="no option 'maxfilespertriger': did you mean maxFilesPerTrigger"):
        read.load(str(logs)).count()


def test_files_are_chosen_as_sparks_own_sources_choose_them(spark_session: Any, logs: Path) -> None:
    def count(place: Path | str, **options: str) -> int:
        read = spark_session.read.format("message_tracking").options(**options)
        return int(read.load(str(place)).count())

    by_node = Counter(row["node"] for row in expected(logs))
    assert count(logs, pathGlobFilter="*-mx[12].*") == by_node["mx1.example.net"] + by_node["mx2.example.net"]
    assert count(f"{logs}/mx{{1,3}}") == by_node["mx1.example.net"] + by_node["mx3.example.net"]
    assert count(f"{logs}/?x1") == by_node["mx1.example.net"]
    assert count(logs, recursiveFileLookup="false") == 0
    assert count(logs, modifiedAfter="2099-01-01T00:00:00") == 0
    assert count(logs, modifiedBefore="2099-01-01T00:00:00", recursiveFileLookup="true") == by_node.total()


def test_a_stream_and_a_query_give_the_same_events_and_late_files_are_welcome(
    spark_session: Any, tracking: Any, logs: Path, tmp_path: Path
) -> None:
    place = tmp_path / "tracking"
    place.mkdir()

    def run() -> list[Row]:
        stream = spark_session.readStream.format("message_tracking").option("maxFilesPerTrigger", 2)
        query = (
            stream.load(str(place))
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "events"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert query.exception() is None
        return rows(spark_session.read.parquet(str(tmp_path / "events")))

    for name in ("mx3", "mx1", "EX01", "mx2"):  # each in its own run
        (place / name).mkdir()
        for path in files_of(logs / name):
            (place / name / path.name).write_bytes(path.read_bytes())
        assert run() == rows(tracking.load(str(place)))
    assert run() == rows(tracking.load(str(place)))


def test_logs_in_a_bucket_have_the_events_that_they_have_in_a_directory(tracking: Any, logs: Path) -> None:
    with bucket("logs") as query:
        system, _ = fs.FileSystem.from_uri(f"s3://logs?{query}")
        fs.copy_files(
            str(logs), "logs/tracking", source_filesystem=fs.LocalFileSystem(), destination_filesystem=system
        )
        # Spark's processes began before: what they need to know stands in the URI.
        found = rows(tracking.load(f"s3a://audit:secret@logs/tracking?{query}"))
    assert {row["file"].partition("/tracking/")[0] for row in found} == {"s3a://logs"}
    assert [row | {"file": ""} for row in found] == [
        row | {"file": ""} for row in rows(tracking.load(str(logs)))
    ]
