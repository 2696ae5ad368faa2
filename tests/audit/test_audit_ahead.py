"""Files read while the engine starts count as if a task had read them: once, and as they are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shadowaudit.core.facts import FileFacts
from shadowaudit.engine.ahead import Ahead
from shadowaudit.engine.blocks import Blocks, Reader
from shadowaudit.engine.here import Here
from shadowaudit.engine.ingest import passed
from shadowaudit.generate.cluster import generate
from shadowaudit.logs.file import digest_file
from shadowaudit.logs.manifest import Found, find


@pytest.fixture
def logs(tmp_path: Path) -> list[Found]:
    generate(tmp_path / "logs", messages=60, faults={}, seed=5, file_size=8_000)
    return find([tmp_path / "logs"])


def ahead(tmp_path: Path, files: Sequence[Found]) -> Ahead:
    """Has read these files."""
    made = Ahead(tmp_path / "states", files)
    made.begin()
    made.found()
    return made


def states(blocks: Blocks, files: Sequence[Found]) -> list[tuple[Any, ...]]:
    reader = Reader(blocks, [str(one.path) for one in files])
    tables = [reader.states(bucket) for bucket in range(blocks.buckets)]
    return sorted(tuple(row.values()) for table in tables for row in table.to_pylist())


def check(found: tuple[list[FileFacts], Blocks], files: Sequence[Found]) -> None:
    """Each of these files counts once, as it is now."""
    facts, blocks = found
    read = [digest_file(one.path) for one in files]
    assert facts == [one for one, _ in read]
    expected = [
        (*row.values(), number) for number, (_, table) in enumerate(read) for row in table.to_pylist()
    ]
    assert states(blocks, files) == sorted(expected)


@pytest.mark.parametrize("share", [0, 3, None], ids=["none", "some", "all"])
def test_it_makes_no_difference_which_files_were_read_ahead(
    logs: list[Found], tmp_path: Path, share: int | None
) -> None:
    check(passed(Here(), ahead(tmp_path, logs[:share]), logs, slices=2), logs)


@pytest.mark.slow
def test_spark_reads_what_was_not_read_ahead(spark_session: Any, logs: list[Found], tmp_path: Path) -> None:
    check(passed(spark_session, ahead(tmp_path, logs[:3]), logs, slices=2), logs)


def test_a_file_that_was_changed_since_it_was_read_ahead_is_read_again(
    logs: list[Found], tmp_path: Path
) -> None:
    early = ahead(tmp_path, logs)
    changed = logs[1].path
    rows = changed.read_bytes().splitlines(keepends=True)
    changed.write_bytes(b"".join(rows[:-5]))
    os.utime(changed, ns=(1, 1))
    files = find([tmp_path / "logs"])
    check(passed(Here(), early, files, slices=2), files)


def test_a_file_that_went_away_since_it_was_read_ahead_does_not_count(
    logs: list[Found], tmp_path: Path
) -> None:
    check(passed(Here(), ahead(tmp_path, logs), logs[1:], slices=2), logs[1:])


def test_what_was_not_begun_leaves_everything_to_the_tasks(logs: list[Found], tmp_path: Path) -> None:
    check(passed(Here(), Ahead(tmp_path / "states", logs), logs, slices=2), logs)


def test_states_that_cannot_be_kept_are_an_error(logs: list[Found], tmp_path: Path) -> None:
    (tmp_path / "states").write_bytes(b"in the way")
    early = Ahead(tmp_path / "states", logs)
    early.begin()
    with pytest.raises(FileExistsError):
        early.found()
    early.end()


def test_an_end_leaves_the_other_files_unread(logs: list[Found], tmp_path: Path) -> None:
    early = Ahead(tmp_path / "states", logs)
    early.end()
    early.begin()
    assert early.found() == ([], [])
