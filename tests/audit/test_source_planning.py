"""Which files a query reads: none that it needs is left out, and none of other times or nodes is read."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from resealing import logs as files_of
from test_audit_exchange import log as exchange_log
from test_audit_exchange import row as exchange_row
from typed import read

from shadowaudit.spark import places
from shadowaudit.spark.places import Log
from shadowaudit.spark.planning import (
    KEPT,
    PIECES,
    UNTIL,
    Offset,
    Wanted,
    between,
    beyond,
    needed,
    offset_of,
    parts,
    pieces,
    shortened,
)
from shadowlab.generate.cluster import generate

TEN = datetime(2026, 11, 21, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = KEPT // 7


def log(uri: str, size: int = 1, modified: int = 0) -> Log:
    return Log(uri, size, modified, "/", uri)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("cluster")
    generate(target, messages=300, faults={}, seed=3)
    return target


def test_files_of_other_nodes_are_not_needed(cluster: Path) -> None:
    logs = places.find([str(cluster)])
    some = needed(logs, Wanted().of_nodes(["mx1.example.net", "elsewhere"]))
    assert some
    assert {one.uri for one in some} == {str(path) for path in files_of(cluster / "mx1")}
    assert needed(logs, Wanted().of_nodes([])) == []
    assert needed(logs, Wanted()) == logs
    assert needed(logs, Wanted().later_than(TEN + 9 * HOUR)) == logs, "the clock may have been set"


@given(
    times=st.lists(st.integers(-9, 9), min_size=1),
    since=st.none() | st.integers(-12, 12),
    until=st.none() | st.integers(-12, 12),
)
def test_rows_of_which_one_is_asked_for_are_wanted(
    times: list[int], since: int | None, until: int | None
) -> None:
    wanted = Wanted(
        since=None if since is None else TEN + since * HOUR,
        until=None if until is None else TEN + until * HOUR,
    )
    asked = [
        at
        for at in times
        if (wanted.since is None or TEN + at * HOUR >= wanted.since)
        and (wanted.until is None or TEN + at * HOUR <= wanted.until)
    ]
    there = wanted.has_times(TEN + min(times) * HOUR, TEN + max(times) * HOUR)
    assert there or not asked
    assert not there or asked or len(set(times)) > 1
    assert wanted.timed == (since is not None or until is not None)


def test_of_several_bounds_the_narrowest_counts() -> None:
    wanted = (
        Wanted().later_than(TEN).later_than(TEN - HOUR).earlier_than(TEN + HOUR).earlier_than(TEN + 2 * HOUR)
    )
    assert wanted == Wanted(since=TEN, until=TEN + HOUR)
    assert Wanted().of_nodes(["a", "b"]).of_nodes(["b", "c"]).nodes == {"b"}


def _hours(path: Path, hours: list[int], *, ours: bool) -> Path:
    """A log whose rows are of these hours, in this order."""
    rows = [
        exchange_row(2016, "RECEIVE", number, date_time=f"2026-11-{21 + at // 24}T{at % 24:02}:00:00.000Z")
        for number, at in enumerate(hours, 1)
    ]
    found = exchange_log(path, 2016, rows)
    if ours:
        found.write_bytes(
            found.read_bytes()
            .removeprefix(b"\xef\xbb\xbf")
            .replace(b"Microsoft Exchange Server", b"shadowrelay")
        )
    return found


@pytest.mark.parametrize("ours", [False, True])
@given(hours=st.lists(st.integers(0, 60), min_size=1, max_size=6), at=st.integers(0, 60))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_row_of_the_time_that_is_asked_for_is_found_wherever_the_clock_was_set(
    tmp_path: Path, hours: list[int], at: int, *, ours: bool
) -> None:
    path = _hours(tmp_path, hours, ours=ours)
    moment = TEN - 10 * HOUR + at * HOUR
    wanted = Wanted().later_than(moment).earlier_than(moment)
    assert needed(places.find([str(path)]), wanted)
    found = [row["date_time"] for row in read(path, "date_time", wants_times=wanted.has_times)]
    assert found.count(moment) == hours.count(at)
    if not min(hours) <= at <= max(hours):
        assert not any(found)


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
    assert start == {"/a": {"1": [10, 0]}}
    assert beyond([one, two], start) == [two]
    end = offset_of([two], start)
    assert between([one, two], start, end) == [two]
    assert between([one, two], end, end) == []
    grown = log("/a/1", 15)
    assert beyond([grown, two], end) == [grown]
    assert between([grown, two], end, offset_of([grown], end)) == [grown]


def test_an_offset_names_the_files_that_came_lately_and_a_time_for_all_before() -> None:
    logs = [log(f"/a/{day}", 10, day * DAY) for day in range(1, 31)]
    start = offset_of(logs)
    assert len(start["/a"]) == 30, "what is read now is named"
    later = log("/a/31", 10, 31 * DAY)
    end = offset_of([later], shortened(start, [later]))
    assert set(end["/a"]) == {UNTIL, *map(str, range(24, 32))}
    assert beyond([*logs, later], end) == []
    assert between([*logs, later], start, end) == [later]
    assert beyond([log("/a/1", 12, 32 * DAY)], end), "it grew"
    assert beyond([log("/b/1", 10, DAY)], end), "another directory"
    assert beyond([log("/a/late", 10, 32 * DAY)], end), "it came late"
    assert shortened(end, [])["/a"].keys() == end["/a"].keys() - {"24"}
    assert shortened(end, [log("/a/late", 10, 24 * DAY)])["/a"].keys() == end["/a"].keys(), "it waits"


def test_files_that_came_when_the_clock_was_ahead_do_not_hide_those_that_come_later() -> None:
    now = time.time_ns()
    ahead = [log(f"/a/{days}", 10, now + days * DAY) for days in (40, 41)]
    start = offset_of(ahead[:1])
    start = offset_of(ahead[1:], shortened(start, ahead[1:]))
    later = [log("/a/later", 10, now + 3600), log("/a/next", 10, now + 7200)]
    for one in later:
        assert beyond([*ahead, one], shortened(start, [])) == [one]


@given(days=st.permutations(range(40)), at_once=st.integers(1, 7))
def test_a_stream_of_few_files_at_a_time_has_each_file_once_in_whatever_order_they_came(
    days: list[int], at_once: int
) -> None:
    logs, start, found = [log(f"/a/{day}", 10, day * DAY) for day in days], Offset(), []
    while new := beyond(logs, start):
        end = offset_of(new[:at_once], shortened(start, new))
        found += between(logs, start, end)
        start = end
    assert sorted(found) == sorted(logs)


def test_an_offset_of_sizes_alone_goes_on() -> None:
    """Where nobody knows when a file came, and in checkpoints of versions before."""
    start = {"/a": {"1": 10}}
    new = [log("/a/2", 10, 99 * DAY)]
    end = offset_of(new, shortened(start, new))
    assert end == {"/a": {"1": 10, "2": [10, 99 * DAY]}}
    assert beyond([log("/a/1", 10), log("/a/3", 10)], shortened(end, [])) == []


def test_a_copy_of_an_old_file_comes_when_it_is_copied(tmp_path: Path) -> None:
    (tmp_path / "MSGTRK.LOG").write_text("x")
    os.utime(tmp_path / "MSGTRK.LOG", (0, 0))
    (found,) = places.find([str(tmp_path)])
    assert found.modified == 0
    assert (places.arrived(found) or 0) > 0


@given(size=st.integers(0, 1000), octets=st.integers(1, 300))
def test_a_file_with_more_octets_than_a_task_reads_is_in_pieces(size: int, octets: int) -> None:
    found = pieces([log("/a", size)], octets)
    assert (len(found) > 1) == (size > octets)
    assert len(found) <= PIECES
    assert sum(one.size for one in found) == size
    assert [one.begin for one in found] == [0, *(one.end for one in found[:-1])]
    assert found[-1].end is None, "it may grow"


def test_a_file_that_was_planned_and_is_gone_is_named() -> None:
    with pytest.raises(FileNotFoundError, match="/a/1 is gone"):
        between([], {}, {"/a": {"1": 10}})


def test_a_directory_that_is_away_for_a_while_is_not_read_twice() -> None:
    known = offset_of([log("/a/1"), log("/b/2")])
    later = offset_of(beyond([log("/b/3")], known), known)
    assert beyond([log("/a/1"), log("/b/2"), log("/b/3")], later) == []
