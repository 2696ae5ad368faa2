from __future__ import annotations

import hashlib
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shadowrelay.core.identifiers import Incarnation
from shadowrelay.tracking.files import LogFile, LogLimits, LogName, enforce_limits, log_name
from shadowrelay.tracking.format import render
from shadowrelay.tracking.verify import Problem, verify_file

BOOT = Incarnation("00112233445566aa")
NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


def text(sequence: int, incarnation: str = BOOT) -> str:
    return render(
        {"event-id": "SEND"}, sequence=sequence, incarnation=incarnation, database_id="db", server="mx1"
    )


def written(directory: Path, *sequences: int, node: str = "mx1", incarnation: Incarnation = BOOT) -> LogFile:
    file = LogFile.create(directory, LogName(node, incarnation, sequences[0]), opened=NOW)
    for sequence in sequences:
        file.append(text(sequence, incarnation), sequence)
    return file


def closed(directory: Path, *sequences: int, node: str = "mx1") -> Path:
    return written(directory, *sequences, node=node).close(NOW)


def test_a_file_has_a_dot_name_until_it_is_closed(tmp_path: Path) -> None:
    file = written(tmp_path, 1, 2, 3)
    file.sync()
    assert os.listdir(tmp_path) == [".MSGTRK-mx1-00112233445566aa-1.LOG.open"]
    path = file.close(NOW)
    assert os.listdir(tmp_path) == ["MSGTRK-mx1-00112233445566aa-1.LOG"] == [path.name]


def test_the_footer_counts_the_rows_and_hashes_every_byte_before_it(tmp_path: Path) -> None:
    content = closed(tmp_path, 5, 6, 7).read_bytes()
    before, _, footer = content.removesuffix(b"\r\n").rpartition(b"\r\n")
    digest = hashlib.sha256(before + b"\r\n").hexdigest()
    assert footer.decode() == f"#Footer: first=5 last=7 rows=3 sha256={digest}"


def test_closing_syncs_the_file_then_renames_it_then_syncs_the_directory(tmp_path: Path, monkeypatch) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, os.rename

    def synced(handle: int) -> None:
        fsync(handle)
        status = os.fstat(handle)
        done.append("fsync directory" if stat.S_ISDIR(status.st_mode) else f"fsync {status.st_size} octets")

    def renamed(old: Path, new: Path) -> None:
        rename(old, new)
        done.append("rename")

    file = written(tmp_path, 1, 2)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    path = file.close(NOW)
    assert done == [f"fsync {path.stat().st_size} octets", "rename", "fsync directory"]


def test_a_log_file_is_not_readable_by_everybody(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        path = closed(tmp_path, 1)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_name_that_was_used_is_never_used_again(tmp_path: Path) -> None:
    before = closed(tmp_path, 1).read_bytes()
    with pytest.raises(FileExistsError):
        written(tmp_path, 1)
    assert next(tmp_path.iterdir()).read_bytes() == before


def test_a_symbolic_link_under_the_dot_name_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / ".MSGTRK-mx1-00112233445566aa-1.LOG.open").symlink_to(victim)
    with pytest.raises(FileExistsError):
        written(tmp_path, 1)
    assert victim.read_text() == "untouched"


@pytest.mark.parametrize("node", ["mx1", "mx-1.example.net", "a-00-7"])
def test_a_name_is_taken_apart_as_it_was_made(node: str) -> None:
    name = LogName(node, BOOT, 42)
    assert log_name(name.closed) == name


@pytest.mark.parametrize("node", ["", "../mx1", "mx1/..", ".mx1", "mx 1", "mx1\n"])
def test_a_node_name_that_is_no_file_name_is_refused(node: str) -> None:
    with pytest.raises(ValueError, match="no file name"):
        LogName(node, BOOT, 1)


@pytest.mark.parametrize(
    "name", ["MSGTRK2026112110-1.LOG", "MSGTRK-mx1-aa-1.LOG.gz", ".MSGTRK-mx1-aa-1.LOG.open", "x"]
)
def test_other_files_have_no_log_name(name: str) -> None:
    assert log_name(name) is None


def test_a_row_belongs_to_the_file_of_its_incarnation_until_the_file_is_old_or_big(tmp_path: Path) -> None:
    limits = LogLimits(max_file_age=timedelta(hours=1), max_file_size=3000)
    file = written(tmp_path, 1)
    assert file.takes(BOOT, NOW + timedelta(minutes=59), limits)
    assert not file.takes(BOOT, NOW + timedelta(hours=1), limits)
    assert not file.takes(BOOT, NOW - timedelta(seconds=1), limits)
    assert not file.takes("ffff", NOW, limits)
    assert not file.takes(BOOT, NOW, LogLimits(max_file_size=100))
    file.abandon()


def test_the_oldest_closed_files_go_first_when_the_directory_is_full(tmp_path: Path) -> None:
    paths = [closed(tmp_path, first) for first in (9, 10, 11)]
    for age, path in zip((30, 20, 10), paths, strict=True):
        os.utime(path, (NOW.timestamp() - age,) * 2)
    room = LogLimits(max_directory_size=2 * paths[1].stat().st_size)
    assert enforce_limits(tmp_path, "mx1", since=NOW - timedelta(days=30), limits=room) == [paths[0]]
    assert sorted(tmp_path.iterdir()) == sorted(paths[1:])


def test_files_past_the_age_limit_go_and_younger_ones_stay(tmp_path: Path) -> None:
    old, young = closed(tmp_path, 1), closed(tmp_path, 2)
    os.utime(old, (NOW.timestamp() - 31 * 86400,) * 2)
    os.utime(young, (NOW.timestamp() - 29 * 86400,) * 2)
    assert enforce_limits(tmp_path, "mx1", since=NOW - LogLimits().max_age, limits=LogLimits()) == [old]


def test_open_files_other_nodes_files_and_strange_files_are_never_deleted(tmp_path: Path) -> None:
    kept = {closed(tmp_path, 1, node="mx2"), tmp_path / "notes.txt", tmp_path / "MSGTRK-mx1-aa-1.LOG"}
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "MSGTRK-mx1-aa-1.LOG").symlink_to(tmp_path / "notes.txt")
    file = written(tmp_path, 3)
    limits = LogLimits(max_directory_size=0, max_age=timedelta())
    assert enforce_limits(tmp_path, "mx1", since=NOW + timedelta(days=99), limits=limits) == []
    assert kept < set(tmp_path.iterdir())
    file.abandon()


def test_a_sound_file_is_reported_as_sound(tmp_path: Path) -> None:
    report = verify_file(closed(tmp_path, 3, 4, 5))
    assert report.sound
    assert (report.first, report.last, report.rows) == (3, 5, 3)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda data: data.replace(b"SEND", b"FAIL", 1), Problem.WRONG_HASH),
        (lambda data: data[: data.index(b"#Footer")], Problem.NO_FOOTER),
        (lambda data: data[:-1], Problem.NO_FOOTER),
        (lambda data: data + b"x", Problem.TRAILING_BYTES),
        (lambda data: data.replace(b"rows=3", b"rows=4"), Problem.WRONG_COUNT),
        (lambda data: data.replace(b"last=5", b"last=6"), Problem.WRONG_RANGE),
        (lambda data: data.replace(b",SEND,", b"SEND", 1), Problem.UNREADABLE_ROW),
        (lambda data: data.replace(b"S:Boot=00112233445566aa", b"S:Boot=bb", 1), Problem.WRONG_INCARNATION),
        (lambda data: data.replace(b"Seq=4", b"Seq=3"), Problem.SEQUENCE_REPEATED),
        (lambda data: data.replace(b"event-id", b"event"), Problem.WRONG_FIELDS),
    ],
)
def test_each_kind_of_damage_is_named(tmp_path: Path, damage, problem: Problem) -> None:
    path = closed(tmp_path, 3, 4, 5)
    path.write_bytes(damage(path.read_bytes()))
    assert problem in verify_file(path).problems


def test_a_gap_in_the_sequence_is_named(tmp_path: Path) -> None:
    assert verify_file(closed(tmp_path, 3, 5)).problems == (Problem.SEQUENCE_GAP,)


def test_a_file_under_another_files_name_is_noticed(tmp_path: Path) -> None:
    path = closed(tmp_path, 3, 4)
    renamed = path.rename(tmp_path / "MSGTRK-mx1-00112233445566aa-2.LOG")
    assert verify_file(renamed).problems == (Problem.WRONG_RANGE,)
