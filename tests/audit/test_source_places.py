"""Where logs are: directories, files, patterns, and what pyarrow's file systems reach, such as S3."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from buckets import bucket
from pyarrow import fs
from resealing import logs as files_of

from shadowaudit.spark import places
from shadowaudit.spark.columns import ARROW, COLUMNS
from shadowaudit.spark.event_rows import batches
from shadowaudit.spark.options import OptionError, Options
from shadowaudit.spark.places import Choice, Log
from shadowaudit.spark.planning import Wanted, needed
from shadowlab.generate.cluster import generate

SCHEMA = pa.schema([(column.name, ARROW[column.type]) for column in COLUMNS if column.name != "file"])


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with bucket("logs") as query:
        yield query


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    generate(tmp_path / "logs", messages=20, faults={}, seed=2)
    return tmp_path / "logs"


def names(found: list[Log]) -> list[str]:
    return [log.uri for log in found]


def rows(log: Log) -> list[object]:
    with places.opened(log) as file:
        return [row for batch in batches(file, log.uri, SCHEMA) for row in batch.to_pylist()]


def test_closed_logs_below_a_directory_are_found_in_order_each_once(logs: Path) -> None:
    (logs / "mx1" / ".MSGTRK-mx1-b-9.LOG.open").write_text("grows")
    (logs / "mx1" / "notes.txt").write_text("no log")
    (logs / "mx1" / "msgtrk2026112110-1.log").write_text("Exchange's may be spelt so")
    wanted = sorted(str(path) for path in logs.rglob("*") if path.name.upper().startswith("MSGTRK"))
    assert names(places.find([str(logs)])) == wanted
    assert names(places.find([str(logs / "mx1"), str(logs), f"file://{logs}"])) == wanted


def test_compressed_logs_are_refused_where_nothing_may_be_missing(logs: Path) -> None:
    first = min(logs.rglob("MSGTRK*.LOG"))
    first.with_name(f"{first.name}.gz").write_bytes(b"the same, packed")
    assert len(places.find([str(logs)], Choice(whole=True))) == len(places.find([str(logs)]))
    first.unlink()
    assert places.find([str(logs)]), "a stream has read it before"
    others = {log.uri for log in places.find([str(logs)])}
    assert others == {log.uri for log in places.find([str(logs)], Choice("MSGTRK-mx[23]*", whole=True))} | {
        one for one in others if "-mx1." in one
    }
    for place in (str(logs), f"{logs}/*", f"{first}.gz"):
        with pytest.raises(OSError, match=rf"not read: .*{first.name}.gz: unpack them first"):
            places.find([place], Choice(whole=True))


def test_a_file_that_is_named_counts_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("x")
    (found,) = places.find([str(tmp_path / "kept.txt")])
    assert (found.uri, found.size) == (str(tmp_path / "kept.txt"), 1)


def test_a_relative_path_is_that_of_the_process_that_plans(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(logs.parent)
    assert places.absolute("logs") == str(logs)
    assert places.absolute("s3://logs") == "s3://logs"
    assert names(places.find(["logs"])) == names(places.find([str(logs)]))


@pytest.mark.parametrize(
    ("pattern", "nodes"),
    [
        ("*", ["mx1", "mx2", "mx3"]),
        ("mx[13]", ["mx1", "mx3"]),
        ("mx[!13]/", ["mx2"]),
        ("mx[^1-2]", ["mx3"]),
        ("mx[4]", []),
        ("{mx1,other,*3}", ["mx1", "mx3"]),
        ("{mx1/MSG*,mx2}", ["mx1", "mx2"]),
        (r"mx\*", []),
        (r"mx\1*", ["mx1"]),
        ("*1", ["mx1"]),
        ("mx1/*", ["mx1"]),
    ],
)
def test_a_pattern_takes_directories_and_files(logs: Path, pattern: str, nodes: list[str]) -> None:
    wanted = [str(path) for path in files_of(logs) if path.parent.name in nodes]
    for place in (f"{logs}/{pattern}", f"file://{logs}/{pattern}"):
        if nodes:
            assert names(places.find([place])) == wanted
        else:
            with pytest.raises((FileNotFoundError, ValueError)):
                places.find([place])


@pytest.mark.parametrize("pattern", ["mx[z-a]", "{mx1,mx[3-1]*}/MSG*"])
def test_a_pattern_without_a_meaning_is_named(logs: Path, pattern: str) -> None:
    with pytest.raises(OSError, match=r"mx.*: no pattern: bad character range (z-a|3-1)"):
        places.find([f"{logs}/{pattern}"])
    with pytest.raises(OptionError, match=r"pathGlobFilter '.*': no pattern: bad character range"):
        Options.of({"path": str(logs), "pathGlobFilter": pattern})


def test_a_question_mark_is_one_character_of_a_path_and_begins_the_options_of_a_uri(
    logs: Path, s3: str
) -> None:
    assert names(places.find([f"{logs}/mx?"])) == names(places.find([str(logs)]))
    with pytest.raises(FileNotFoundError, match="nothing is like"):
        places.find([f"{logs}/m?"])
    system, _ = fs.FileSystem.from_uri(f"s3://logs?{s3}")
    fs.copy_files(
        str(logs), "logs/marked", source_filesystem=fs.LocalFileSystem(), destination_filesystem=system
    )
    found = places.find([f"s3://logs/marked/{{mx1,mx[3-9]}}?{s3}"])
    assert {log.uri.split("/")[-2] for log in found} == {"mx1", "mx3"}


def test_a_path_that_is_there_is_no_pattern(tmp_path: Path) -> None:
    for name in ("a[b]", "ab"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "MSGTRK.LOG").write_text("x")
    assert names(places.find([str(tmp_path / "a[b]")])) == [str(tmp_path / "a[b]" / "MSGTRK.LOG")]
    assert places.absolute(f"file:{tmp_path}/ab") == f"{tmp_path}/ab", "as Hadoop writes paths"


def test_a_place_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        places.find([str(tmp_path / "nowhere")])
    with pytest.raises(FileNotFoundError, match="nothing is like"):
        places.find([f"{tmp_path}/*/logs"])
    assert places.find([str(tmp_path)]) == []


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "MSGTRK-mx1-b-1.LOG")
    (log,) = places.find([str(tmp_path)])
    with pytest.raises(OSError, match="is no file"):
        places.opened(log)


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_logs_in_a_bucket_have_the_rows_that_they_have_in_a_directory(
    logs: Path, s3: str, scheme: str
) -> None:
    system, _ = fs.FileSystem.from_uri(f"s3://logs?{s3}")
    fs.copy_files(
        str(logs), f"logs/{scheme}", source_filesystem=fs.LocalFileSystem(), destination_filesystem=system
    )
    found = places.find([f"{scheme}://logs/{scheme}?{s3}"])
    assert names(found) == [f"{scheme}://logs/{scheme}/{path.relative_to(logs)}" for path in files_of(logs)]
    assert [log.size for log in found] == [path.stat().st_size for path in files_of(logs)]
    for there, here in zip(found, places.find([str(logs)]), strict=True):
        assert rows(there) == rows(here)
    assert names(places.find([f"{scheme}://logs/{scheme}/*2?{s3}"])) == [
        uri for uri in names(found) if "/mx2/" in uri
    ]
    assert needed(found, Wanted().of_nodes(["mx2.example.net"])) == [
        log for log in found if "/mx2/" in log.uri
    ]


def test_secrets_of_a_place_are_not_shown_with_its_files() -> None:
    log = Log("s3://logs/x", 1, 2, "s3://key:hidden@logs/x", "logs/x")
    assert "hidden" not in f"{log} {log!r}"


def test_a_bucket_that_is_not_there_is_named_without_its_secrets(s3: str) -> None:
    with pytest.raises(FileNotFoundError, match="s3://nowhere/x does not exist") as told:
        places.find([f"s3://key:hidden@nowhere/x?{s3}"])
    assert "hidden" not in str(told.value)
    with pytest.raises(FileNotFoundError, match="nothing is like s3://logs/none") as told:
        places.find([f"s3://audit:secret@logs/none*?{s3}"])
    assert "secret" not in str(told.value)
