"""Which files a query reads: none that it needs is left out, and none of other times or nodes is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from resealing import logs as files_of
from test_audit_exchange import log as exchange_log
from test_audit_exchange import row as exchange_row
from typed import read

from shadowaudit.generate.cluster import generate
from shadowaudit.spark import places, planning
from shadowaudit.spark.places import Log
from shadowaudit.spark.planning import MARGIN, Wanted, between, beyond, needed, offset_of, parts, span_of

TEN = datetime(2026, 11, 21, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)


def log(uri: str, size: int = 1, modified: int = 0) -> Log:
    return Log(uri, size, modified, "/", uri)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("cluster")
    generate(target, messages=300, faults={}, seed=3)
    return target


def test_the_span_of_a_file_is_that_of_its_rows(cluster: Path) -> None:
    for path in files_of(cluster):
        times = [row["date_time"] for row in read(path, "date_time")]
        (found,) = places.find([str(path)])
        assert span_of(*places.ends(found, 1 << 16)) == (min(times), max(times))


def test_files_of_other_nodes_and_times_are_not_needed(cluster: Path) -> None:
    logs = places.find([str(cluster)])
    some = needed(logs, Wanted().of_nodes(["mx1.example.net", "elsewhere"]))
    assert some
    assert {one.uri for one in some} == {str(path) for path in files_of(cluster / "mx1")}
    assert needed(logs, Wanted().of_nodes([])) == []
    assert needed(logs, Wanted()) == logs
    spans = {one.uri: span_of(*places.ends(one, 1 << 16)) for one in logs}
    first, last = (
        pick(span[number] for span in spans.values() if span) for number, pick in ((0, min), (1, max))
    )
    assert needed(logs, Wanted().later_than(first).earlier_than(last)) == logs
    assert needed(logs, Wanted().later_than(last + 2 * HOUR)) == []
    assert needed(logs, Wanted().earlier_than(first - 2 * HOUR)) == []


@given(
    span=st.tuples(st.integers(-9, 9), st.integers(0, 9)),
    since=st.none() | st.integers(-12, 12),
    until=st.none() | st.integers(-12, 12),
    row=st.integers(0, 9),
)
def test_a_file_with_a_row_that_is_asked_for_is_needed(
    span: tuple[int, int], since: int | None, until: int | None, row: int
) -> None:
    begin, at = TEN + span[0] * HOUR, TEN + (span[0] + min(row, span[1])) * HOUR
    wanted = Wanted(
        since=None if since is None else TEN + since * HOUR,
        until=None if until is None else TEN + until * HOUR,
    )
    asked = (wanted.since is None or at >= wanted.since) and (wanted.until is None or at <= wanted.until)
    for moved in (-MARGIN, timedelta(), MARGIN):
        here = (begin + moved, begin + span[1] * HOUR + moved)
        assert wanted.has_span(here) or not asked


def test_of_several_bounds_the_narrowest_counts() -> None:
    wanted = (
        Wanted().later_than(TEN).later_than(TEN - HOUR).earlier_than(TEN + HOUR).earlier_than(TEN + 2 * HOUR)
    )
    assert wanted == Wanted(since=TEN, until=TEN + HOUR)
    assert Wanted().of_nodes(["a", "b"]).of_nodes(["b", "c"]).nodes == {"b"}


@pytest.mark.parametrize(
    "octets",
    [b"", b"\0\0", b"#Fields: a,date-time\r\n1,2026-11-21T10:00:00Z\r\n", b"#Fields: date-time,b\r\nx,1\r\n"],
)
def test_a_file_that_does_not_tell_its_times_is_read(octets: bytes) -> None:
    assert span_of(octets, b"") is None
    far = Wanted().later_than(TEN)
    assert needed([log("/x/MSGTRK2026112110-1.LOG")], far, lambda *_: (octets, b"")) != []


def test_a_subject_that_looks_like_a_row_does_not_hide_a_file(tmp_path: Path) -> None:
    subject = '"x\r\n1999-01-01T00:00:00.000Z,"'
    path = exchange_log(tmp_path, 2016, [exchange_row(2016, "RECEIVE", message_subject=subject)])
    found = places.find([str(path)])
    assert needed(found, Wanted().later_than(TEN).earlier_than(TEN + HOUR)) == found


def test_the_node_of_exchanges_log_is_not_in_its_name_so_it_is_read() -> None:
    assert needed([log("/EX01/MSGTRK2026112110-1.LOG")], Wanted().of_nodes(["EX02"])) != []


@given(sizes=st.lists(st.integers(0, 30), max_size=20), octets=st.integers(1, 40))
def test_each_file_is_in_one_task_and_no_task_of_several_files_is_too_large(
    sizes: list[int], octets: int
) -> None:
    logs = [log(f"/{number:02}", size) for number, size in enumerate(sizes)]
    found = parts(logs, octets)
    assert [one for part in found for one in part] == logs
    assert all(len(part) == 1 or sum(one.size for one in part) <= octets for part in found)


def test_a_stream_reads_each_file_once_and_one_that_grew_again() -> None:
    one, two = log("/a/1", 10), log("/b/2", 20)
    start = offset_of([one])
    assert start == {"/a": {"1": 10}}
    assert beyond([one, two], start) == [two]
    end = offset_of([two], start)
    assert between([one, two], start, end) == [two]
    assert between([one, two], end, end) == []
    grown = log("/a/1", 15)
    assert beyond([grown, two], end) == [grown]
    assert between([grown, two], end, offset_of([grown], end)) == [grown]


def test_a_file_that_was_planned_and_is_gone_is_named() -> None:
    with pytest.raises(FileNotFoundError, match="/a/1 is gone"):
        between([], {}, {"/a": {"1": 10}})


def test_a_directory_that_is_away_for_a_while_is_not_read_twice() -> None:
    known = offset_of([log("/a/1"), log("/b/2")])
    later = offset_of(beyond([log("/b/3")], known), known)
    assert beyond([log("/a/1"), log("/b/2"), log("/b/3")], later) == []


def test_the_ends_of_many_files_are_read_once_each(cluster: Path) -> None:
    seen: list[Log] = []

    def edges(one: Log, size: int) -> tuple[bytes, bytes]:
        seen.append(one)
        return places.ends(one, size)

    logs = places.find([str(cluster)])
    planning.needed(logs, Wanted().of_nodes(["mx2.example.net"]).later_than(TEN), edges)
    assert sorted(seen) == [one for one in logs if "/mx2/" in one.uri]
