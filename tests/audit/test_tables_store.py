"""Tables without Spark: what is current, who may publish, what is removed, what the page tells of them."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from buckets import bucket
from click.testing import CliRunner
from pyarrow import fs, parquet
from rich.console import Console

from shadowaudit.cli import beforehand, main
from shadowaudit.cli.progress import Shown
from shadowaudit.cli.tables import tell_of_problems, tell_of_turn
from shadowaudit.spark import places
from shadowaudit.spark.places import Log
from shadowaudit.spark.tables import data, store
from shadowaudit.spark.tables.data import Written
from shadowaudit.spark.tables.findings import publish_findings
from shadowaudit.spark.tables.logs import Known
from shadowaudit.spark.tables.publishing import RETENTION, Run, TakenError, sweep, tidy
from shadowaudit.spark.tables.schemas import SCHEMA, SIZES, TABLES, TRAFFIC
from shadowaudit.spark.tables.store import Current, NoTablesError, Place, TablesError
from shadowlab.generate.cluster import generate

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with bucket("audit") as query:
        yield f"s3://audit/{{}}?{query}"


@pytest.fixture(params=["directory", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "directory":
        return Place.of(str(tmp_path / "tables"))
    return Place.of(request.getfixturevalue("s3").format(tmp_path.name))


def sizes(*days: str | None, messages: int = 1) -> Any:
    told = [
        {"day": date.fromisoformat(day) if day else None, "node": "mx1", "step": 3, "messages": messages}
        for day in days
    ]
    return pa.Table.from_pylist(told, schema=TABLES[SIZES].arrow).to_batches()


def write(place: Place, *days: str | None, **how: Any) -> list[Written]:
    return data.write(place, SIZES, sizes(*(days or ("2026-11-21",)), **how))


def publish(place: Place, *days: str | None, now: datetime = NOW, **how: Any) -> Current:
    """A version whose table of sizes has these rows, and no others."""
    run = Run.begun(place, now)
    run.commit(SIZES, write(place, *days, **how), run.base.files(SIZES))
    run.publish()
    return store.current(place.uri)


def messages(place: Place, version: int | None = None) -> list[int]:
    return list(store.current(place.uri, version).dataset(SIZES).to_table().column("messages").to_pylist())


def there(place: Place) -> set[str]:
    """The data files that there are."""
    below = fs.FileSelector(place.path(SIZES), allow_not_found=True, recursive=True)
    try:
        infos = place.system.get_file_info(below)
    except FileNotFoundError:  # it is made while it is looked for
        return set()
    found = {info.path for info in infos if info.path.endswith(".parquet")}
    return {path for path in found if "_delta_log" not in path}


def current_files(place: Place) -> set[str]:
    return {place.path(SIZES, one.path) for one in store.current(place.uri).files(SIZES)}


def forget(place: Place) -> None:
    """Keep nothing that is replaced, and remove what there is of that."""
    run = Run.begun(place, NOW)
    run.keep(0)
    run.publish()
    sweep(place)


def test_nothing_is_current_before_something_was_published(place: Place) -> None:
    with pytest.raises(NoTablesError, match=r"there are no tables in [^?]*: shadowaudit ingest"):
        store.current(place.uri)
    run = Run.begun(place, NOW)
    run.commit(SIZES, write(place))
    with pytest.raises(NoTablesError):
        store.current(place.uri)


def test_what_was_published_last_is_current_and_what_a_reader_opened_before_stays(place: Place) -> None:
    before = publish(place, messages=1)
    assert (before.version, before.made_at) == (1, NOW.isoformat())
    publish(place, messages=2)
    assert messages(place) == [2]
    assert before.dataset(SIZES).to_table().column("messages").to_pylist() == [1]
    assert before.dataset(TRAFFIC).to_table().num_rows == 0


def test_an_earlier_version_is_read_by_its_number(place: Place) -> None:
    for number in range(1, 4):
        publish(place, messages=number)
    assert [messages(place, version) for version in (1, 2, 3, None)] == [[1], [2], [3], [3]]
    assert store.current(place.uri, 2).version == 2
    with pytest.raises(TablesError, match="files of the tables cannot be read"):
        store.current(place.uri, 9)


def test_rows_are_in_files_of_their_days_and_days_are_chosen(place: Place) -> None:
    found = publish(place, "2026-11-21", None, "2026-11-22", "2026-11-21")
    assert {(one.day, one.rows) for one in found.files(SIZES)} == {
        ("2026-11-21", 2), (None, 1), ("2026-11-22", 1),
    }  # fmt: skip
    assert {one.path.split("/")[0] for one in found.files(SIZES)} == {
        "day=2026-11-21", "day=2026-11-22", "day=__HIVE_DEFAULT_PARTITION__",
    }  # fmt: skip
    some = found.dataset(SIZES, since="2026-11-22").to_table()
    assert some.column("day").to_pylist() == [date(2026, 11, 22)]
    assert found.dataset(SIZES, until="2026-11-21").to_table().num_rows == 2
    assert found.dataset(SIZES).to_table().num_rows == 4


def test_what_a_run_committed_that_died_is_in_no_later_version(place: Place) -> None:
    publish(place, messages=1)
    dead = Run.begun(place, NOW)
    dead.commit(SIZES, write(place, "2026-11-22", messages=9), dead.base.files(SIZES))
    assert messages(place) == [1]
    later = Run.begun(place, NOW)
    later.commit(SIZES, write(place, messages=2))
    later.publish()
    assert sorted(messages(place)) == [1, 2]
    assert messages(place, 1) == [1]


def test_of_two_runs_that_take_turns_the_first_to_publish_counts_and_has_its_own_rows_alone(
    place: Place,
) -> None:
    publish(place, messages=1)
    one, other = Run.begun(place, NOW), Run.begun(place, NOW)
    one.commit(SIZES, write(place, messages=2))
    other.commit(SIZES, write(place, messages=3))
    one.commit(TRAFFIC, [])
    other.commit(SIZES, write(place, messages=4))
    one.publish()
    with pytest.raises(TakenError, match="another run has published version 2"):
        other.publish()
    assert sorted(messages(place)) == [1, 2]


@pytest.mark.slow
def test_of_runs_that_begin_at_once_one_publishes_and_the_others_are_told(place: Place) -> None:
    for round_ in range(3):
        begun = Barrier(4)

        def one(number: int, begun: Barrier = begun) -> str:
            run = Run.begun(place, NOW)
            begun.wait(30)
            try:
                run.commit(SIZES, write(place, messages=number), run.base.files(SIZES))
                run.publish()
            except TakenError as problem:
                return str(problem)
            return str(number)

        with ThreadPoolExecutor(4) as pool:
            told = list(pool.map(one, range(4)))
        (winner,) = (text for text in told if text.isdigit())
        assert all("another run has published" in text for text in told if text != winner)
        assert store.current(place.uri).version == round_ + 1
        assert messages(place) == [int(winner)]


@pytest.mark.slow
def test_a_run_that_slept_while_others_published_publishes_nothing(place: Place) -> None:
    publish(place)
    slow = Run.begun(place, NOW)
    for number in range(3):
        publish(place, messages=number)
    with pytest.raises(TakenError):
        slow.publish()
    assert messages(place) == [2]
    slow.commit(SIZES, write(place))
    with pytest.raises(TakenError):
        slow.publish()
    assert messages(place) == [2]


def test_a_replaced_file_is_removed_by_a_sweep_and_not_within_the_hour(place: Place) -> None:
    publish(place)
    (first,) = current_files(place)
    publish(place, now=datetime.now(UTC))
    assert sweep(place) == []
    assert first in there(place)
    forget(place)
    assert there(place) == current_files(place)
    assert first not in there(place)


def test_what_a_dead_run_left_is_removed_by_a_sweep_that_removes_nothing_of_what_is_current(
    place: Place,
) -> None:
    publish(place, messages=1)
    forget(place)
    write(place, messages=8)
    dead = Run.begun(place, NOW)
    dead.commit(SIZES, write(place, messages=9), dead.base.files(SIZES))
    assert len(there(place)) == 3
    sweep(place)
    assert messages(place) == [1]
    sweep(place)
    assert there(place) == current_files(place)
    publish(place, messages=2)
    assert messages(place) == [2]


def test_small_files_are_put_together_and_all_rows_stay(place: Place) -> None:
    for number in range(3):
        run = Run.begun(place, NOW)
        run.commit(SIZES, write(place, "2026-11-21", "2026-11-22", messages=number))
        run.publish()
    assert len(store.current(place.uri).files(SIZES)) == 6
    assert tidy(place, NOW) == store.current(place.uri).version
    found = store.current(place.uri)
    assert {one.day for one in found.files(SIZES)} == {"2026-11-21", "2026-11-22"}
    assert len(found.files(SIZES)) == 2
    assert sorted(messages(place)) == [0, 0, 1, 1, 2, 2]


def test_tidy_tells_how_many_files_there_are_and_keeps_what_it_is_told_to_keep(tmp_path: Path) -> None:
    place = Place.of(str(tmp_path / "tables"))
    asked = ["tidy", "--tables", place.uri]
    early = CliRunner().invoke(main, asked)
    assert (early.exit_code, "there are no tables in" in early.output) == (2, True)
    for number in range(3):
        run = Run.begun(place, NOW)
        run.commit(SIZES, write(place, messages=number))
        run.publish()
    result = CliRunner().invoke(main, [*asked, "--keep", "72"])
    assert result.exit_code == 0, result.output
    version = store.current(place.uri).version
    assert result.output == f"3 data files → 1 (version {version} of the tables)\n"
    assert sorted(messages(place)) == [0, 1, 2]
    assert sorted(messages(place, 3)) == [0, 1, 2], "its files are kept"
    kept = {place.table(name).metadata().configuration[RETENTION] for name in TABLES}
    assert kept == {"interval 72 hours"}
    told = json.loads(CliRunner().invoke(main, [*asked, "--json"]).output)
    assert (told["before"], told["files"]) == (1, 1)


def test_rows_that_are_not_there_are_taken_away_without_harm(place: Place) -> None:
    publish(place, "2026-11-21", None, messages=3)
    run = Run.begun(place, NOW)
    run.delete(SIZES, "day = '2026-11-22'")
    run.delete(SIZES, "day IS NULL AND node IN ('mx1')")
    run.commit(SIZES, write(place, messages=4))
    run.publish()
    assert sorted(messages(place)) == [3, 4]


def test_a_write_that_fails_leaves_no_file(tmp_path: Path) -> None:
    place = Place.of(str(tmp_path))

    def batches() -> Iterator[Any]:
        some = sizes(*["2026-11-21"] * data.ROW_GROUP)
        for _ in range(500):
            yield from some
            if there(place):
                raise OSError("the log went away")

    with pytest.raises(OSError, match="went away"):
        data.write(place, SIZES, batches())
    assert there(place) == set()


def test_a_task_that_meets_many_days_keeps_few_files_open_and_loses_no_row(tmp_path: Path) -> None:
    days = [(date(2026, 1, 1) + timedelta(days=n)).isoformat() for n in range(data.OPEN + 5)]
    place = Place.of(str(tmp_path))
    batches = [batch for _ in range(2) for day in days for batch in sizes(day)]
    written = data.write(place, SIZES, batches)
    assert len(written) > len(days)
    assert place.dataset(SIZES, [one.file for one in written]).to_table().num_rows == 2 * len(days)


def test_a_directory_with_any_name_has_tables(tmp_path: Path) -> None:
    for name in ("a b", "ümläut", "x#y", "50%", "[a]", "q?"):
        place = Place.of(str(tmp_path / name))
        publish(place, messages=3)
        assert messages(place) == [3]
        forget(place)
        assert messages(place) == [3]


def row(**told: Any) -> dict[str, Any]:
    return {"software": "shadowrelay", "database": "d", "incarnation": "i", "size": 1} | told


def test_logs_that_have_rows_of_one_another_are_found_by_their_sequences() -> None:
    known = Known({
        "/a/1": row(first_sequence=1, last_sequence=9),
        "/a/2": row(first_sequence=10, last_sequence=20),
        "/b/2": row(first_sequence=10, last_sequence=12),
        "/b/3": row(first_sequence=13, last_sequence=14),
        "/b/4": row(first_sequence=15, last_sequence=15),
        "/c/2": row(first_sequence=10, last_sequence=20, incarnation="j"),
        "/d/4": row(first_sequence=None, last_sequence=None),
        "/e/5": row(software="exchange", database=None, first_sequence=None),
    })  # fmt: skip
    assert known.doubtful() == ["/a/2", "/b/2", "/b/3", "/b/4", "/e/5"]


def test_a_log_is_new_until_it_was_read_with_its_size() -> None:
    log = Log("/a/1", 5, 0, "/a", "/a/1")
    known = Known({"/a/1": row(size=5), "/a/2": row(size=None)})
    assert known.new([log, replace(log, size=6), replace(log, uri="/a/2"), replace(log, uri="/a/3")]) == [
        replace(log, size=6), replace(log, uri="/a/2"), replace(log, uri="/a/3"),
    ]  # fmt: skip
    assert known.offset == {"/a": {"1": 5, "2": None}}


def test_findings_are_published_with_the_tables(place: Place, tmp_path: Path) -> None:
    finding = {"severity": "violation", "class": "lost", "id": "x", "exposed": 7}
    schema = TABLES["findings"].arrow
    parquet.write_table(pa.Table.from_pylist([finding], schema=schema), tmp_path / "findings.parquet")
    (tmp_path / "verdict.json").write_text('{"status": 1}')
    with pytest.raises(NoTablesError):
        publish_findings(place.uri, tmp_path, NOW)
    publish(place)
    for version in (2, 3):
        assert publish_findings(place.uri, tmp_path, NOW) == version
        found = store.current(place.uri)
        assert found.verdict == {"status": 1, "made_at": NOW.isoformat()}
        told = found.dataset("findings").to_table().to_pylist()
        assert told == [dict.fromkeys(schema.names) | finding]
        assert messages(place) == [1]
    assert publish(place).verdict == {"status": 1, "made_at": NOW.isoformat()}


def test_verify_publishes_what_it_found_and_says_at_once_that_there_are_no_tables(tmp_path: Path) -> None:
    generate(tmp_path / "logs", messages=20, faults={"lost": 1}, seed=3)
    uri = str(tmp_path / "tables")
    asked = ["verify", str(tmp_path / "logs"), "--out", str(tmp_path / "out"), "--tables", uri]
    early = CliRunner().invoke(main, asked)
    assert early.exit_code == 2
    assert f"there are no tables in {uri}" in early.output
    assert not (tmp_path / "out").exists()
    publish(Place.of(uri))
    late = CliRunner().invoke(main, asked)
    assert late.exit_code == 1
    assert f"Published: version 2 of the tables in {uri} has this verdict" in late.stderr
    found = store.current(uri)
    assert found.verdict is not None
    assert found.verdict["status"] == 1
    assert found.verdict["totals"]["messages"] == 20
    assert found.verdict["files"] == len(list((tmp_path / "logs").rglob("MSGTRK*")))
    assert "lost" in found.dataset("findings").to_table().column("class").to_pylist()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ([], "say where it is kept: --state DIR, or --tables URI"),
        (["--state", "s", "--tables", "t"], "say where it is kept: --state DIR, or --tables URI"),
        (["--tables", "t", "--engine", "here"], "--tables needs Spark: leave out --engine"),
        (["--tables", "t"], "nowhere does not exist"),
    ],
)
def test_ingest_says_what_it_needs(tmp_path: Path, asked: list[str], told: str) -> None:
    result = CliRunner().invoke(main, ["ingest", str(tmp_path / "nowhere"), *asked])
    assert result.exit_code == 2
    assert told in result.output
    assert not Path("t").exists()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["logs", "--tables", "foo://me:secret@x/y"], "--tables foo://x/y: Unrecognized filesystem"),
        (["foo://me:secret@x/y", "--tables", "t"], "foo://x/y: Unrecognized filesystem"),
        (["foo://me:secret@x/y", "--tables", "t", "--watch"], "foo://x/y: Unrecognized filesystem"),
        (["logs", "--tables", "a file"], "--tables a file is a file: name a directory"),
        (["logs", "--tables", "t%41"], "deltalake cannot use a path with a backslash, or % and a number"),
        (
            ["logs", "--tables", "old"],
            "old are of a version of shadowaudit before 0.2",
        ),
        (["logs", "--tables", "a file/t"], "a file/t cannot be written to: Not a directory"),
        (["logs", "--tables", "/proc/t"], "--tables /proc/t cannot be written to: "),
        (["empty", "--tables", "t"], "no tracking log in empty: "),
        (["logs", "empty", "--tables", "t"], "no tracking log in empty: "),
        (["logs", "empty*", "--tables", "t"], "no tracking log (MSGTRK….LOG) in empty*"),
        (["logs", "--tables", "logs"], "where the logs are: give the tables a place of their own"),
        (["logs", "--tables", "logs/mx1/t"], "where the logs are: give the tables a place of their own"),
        (["log*", "--tables", "logs/t"], "where the logs are: give the tables a place of their own"),
        (["link", "--tables", "logs/t"], "where the logs are: give the tables a place of their own"),
    ],
    ids=str,
)
def test_what_cannot_be_ingested_is_found_before_spark_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    generate(Path("logs"), messages=20, faults={}, seed=3)
    Path("empty").mkdir()
    Path("link").symlink_to("logs")
    Path("a file").touch()
    Path("old/manifests").mkdir(parents=True)
    there = sorted(tmp_path.rglob("*"))
    # Port 1 answers nobody: should Spark be asked for, it is not waited for.
    result = CliRunner().invoke(main, ["ingest", *asked, "--master", "spark://127.0.0.1:1"])
    assert result.exit_code == 2
    assert told in result.stderr
    for never in ("Traceback", "Starting Spark", "secret", "verdict"):
        assert never not in result.stderr
    assert sorted(tmp_path.rglob("*")) == there


@pytest.mark.slow
def test_a_place_beside_the_logs_is_written_to_and_nothing_is_left_of_that(
    place: Place, tmp_path: Path
) -> None:
    beforehand.apart(place, [tmp_path / "tables-of-logs", "s3://audit/tab", "foo://x"])
    beforehand.writable(place)
    assert not list(tmp_path.iterdir())
    below = fs.FileSelector(place.root, allow_not_found=True, recursive=True)
    assert place.system.get_file_info(below) == []


def test_a_watch_says_where_there_is_no_log_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    generate(Path("logs"), messages=20, faults={}, seed=3)
    Path("empty").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]  # where nothing answers, so that Spark is not started
    asked = ["logs", "empty", "nowhere", "--tables", "t", "--watch", "--master", f"spark://127.0.0.1:{port}"]
    said = CliRunner().invoke(main, ["ingest", *asked]).stderr
    assert "waiting for logs: no tracking log in empty: " in said
    assert f"waiting for logs: {tmp_path / 'nowhere'} does not exist" in said
    assert said.count("waiting for logs") == 2
    assert "does not answer" in said


def test_where_nothing_is_new_the_logs_that_are_not_read_are_named_all_the_same(tmp_path: Path) -> None:
    logs, place = tmp_path / "logs", Place.of(str(tmp_path / "tables"))
    generate(logs, messages=20, faults={}, seed=3)
    row = {"software": None, "database": None}
    known = Known({log.uri: {"file": log.uri, "size": log.size, **row} for log in places.find([str(logs)])})
    Run.begun(place, NOW).publish(known.write(place))
    (logs / "MSGTRK-old.LOG.gz").touch()
    (logs / ".MSGTRK-mx9.example.net-0190b5c4-1.LOG.open").touch()
    result = CliRunner().invoke(main, ["ingest", str(logs), "--tables", place.uri])
    assert result.exit_code == 0
    assert "nothing new (version 1 of the tables)" in result.stdout
    assert "note: compressed, and not read: MSGTRK-old.LOG.gz" in result.stderr
    assert "note: still open, and not read: mx9.example.net" in result.stderr


def test_the_logs_with_most_rows_that_could_not_be_read_are_named() -> None:
    console = Console(file=StringIO(), width=80)
    tell_of_problems(Shown(console), {})
    assert console.file.getvalue() == ""
    tell_of_problems(Shown(console), {f"/logs/{number}.LOG": number for number in range(1, 8)})
    said = console.file.getvalue()
    assert "note: 28 rows could not be read, and no sum has them: /logs/7.LOG (7), /logs/6.LOG (6)," in said
    assert "/logs/3.LOG (3) and 2 more files. " in said
    assert "/logs/2.LOG" not in said


def test_a_turn_has_its_time_where_another_one_follows(capsys: pytest.CaptureFixture[str]) -> None:
    for timed in (True, False):
        tell_of_turn(7, (1, 20, 3), 2, as_json=False, timed=timed)
    at, once = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"Spark 4\.\d: 1 file → 20 events → 3 messages \(version 7 of the tables\)", once)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ " + re.escape(once), at)
    tell_of_turn(7, (1, 20, 3), 2, as_json=True, timed=False)
    told = json.loads(capsys.readouterr().out)
    assert {name: told[name] for name in ("version", "logs", "events", "messages", "unreadable")} == {
        "version": 7, "logs": 1, "events": 20, "messages": 3, "unreadable": 2,
    }  # fmt: skip
    assert told["at"]


def test_the_tables_are_read_without_spark() -> None:
    program = "import sys, shadowaudit.spark.tables.store; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def documented() -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for section in re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        name, _, text = section.partition("\n")
        found[name] = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", text, re.MULTILINE)
    return found


@pytest.mark.parametrize("name", TABLES)
def test_the_page_tells_of_each_column_and_its_type(name: str) -> None:
    columns = TABLES[name].columns
    assert documented()[name] == list(columns[-1:] if name == "events" else columns)


def test_the_page_tells_the_version_of_the_columns() -> None:
    assert f"version of the columns on this page: {SCHEMA}." in PAGE.read_text("utf-8")
