from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shadowrelay.core.identifiers import Incarnation
from shadowrelay.tracking.files import LogFile, LogName
from shadowrelay.tracking.format import render
from shadowrelay.tracking.recovery import recover
from shadowrelay.tracking.verify import verify_file

BOOT, OTHER = Incarnation("00112233445566aa"), Incarnation("ffeeddccbbaa9988")
NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


def begun(directory: Path, *sequences: int, incarnation: Incarnation = BOOT, node: str = "mx1") -> LogFile:
    directory.mkdir(exist_ok=True)
    file = LogFile.create(directory, LogName(node, incarnation, sequences[0]), opened=NOW)
    for sequence in sequences:
        subject = {"message-subject": '=häßlich, "und" lang'}
        row = render(subject, sequence=sequence, incarnation=incarnation, database_id="db", server=node)
        file.append(row, sequence)
    return file


def left_over(directory: Path, *sequences: int, incarnation: Incarnation = BOOT, node: str = "mx1") -> Path:
    """A file as a killed process leaves it."""
    file = begun(directory, *sequences, incarnation=incarnation, node=node)
    file.sync()
    file.abandon()
    return directory / file.name.open


@pytest.mark.slow
def test_a_crash_at_every_byte_of_a_file_keeps_exactly_its_whole_rows(tmp_path: Path) -> None:
    whole = left_over(tmp_path / "whole", 1, 2, 3).read_bytes()
    header = whole.index(b"#Fields")
    ends = [offset + 2 for offset in range(header, len(whole)) if whole[offset : offset + 2] == b"\r\n"][1:]
    assert len(ends) == 3
    for cut in range(len(whole) + 1):
        directory = tmp_path / str(cut)
        directory.mkdir()
        path = directory / ".MSGTRK-mx1-00112233445566aa-1.LOG.open"
        path.write_bytes(whole[:cut])
        rows = sum(end <= cut for end in ends)
        found = recover(directory, "mx1", NOW)
        if rows == 0:
            assert (found.removed, found.written) == ((path,), {})
            assert os.listdir(directory) == []
        else:
            (sealed,) = found.sealed
            report = verify_file(sealed)
            assert report.sound
            assert (report.rows, report.last, found.written) == (rows, rows, {BOOT: rows})
            assert sealed.read_bytes().startswith(whole[: ends[rows - 1]] + b"#Footer")
            assert os.listdir(directory) == [sealed.name]
        assert found.set_aside == ()


def test_a_crash_at_every_byte_of_the_footer_loses_no_row(tmp_path: Path) -> None:
    path = begun(tmp_path / "whole", 1, 2).close(NOW)
    closed = path.read_bytes()
    for cut in range(closed.index(b"#Footer"), len(closed) + 1):
        directory = tmp_path / str(cut)
        directory.mkdir()
        (directory / f".{path.name}.open").write_bytes(closed[:cut])
        found = recover(directory, "mx1", NOW)
        assert (directory / path.name).read_bytes() == closed
        assert (os.listdir(directory), found.set_aside) == ([path.name], ())


def test_a_left_over_is_copied_because_its_own_pages_may_only_seem_to_be_on_disk(tmp_path: Path) -> None:
    left_over(tmp_path, 1, 2)
    with (tmp_path / ".MSGTRK-mx1-00112233445566aa-1.LOG.open").open("rb") as kept:
        (sealed,) = recover(tmp_path, "mx1", NOW).sealed
        assert os.fstat(kept.fileno()).st_ino != sealed.stat().st_ino


def test_a_hole_of_zeros_ends_the_rows_and_the_rest_is_set_aside(tmp_path: Path) -> None:
    path = left_over(tmp_path, 1, 2, 3)
    data = path.read_bytes()
    hole = data.index(b"S:Seq=2")
    path.write_bytes(data[:hole] + bytes(20) + data[hole + 20 :])
    found = recover(tmp_path, "mx1", NOW)
    assert found.written == {BOOT: 1}
    assert verify_file(found.sealed[0]).sound
    assert [kept.name for kept in found.set_aside] == [".MSGTRK-mx1-00112233445566aa-1.LOG.damaged"]
    assert recover(tmp_path, "mx1", NOW).set_aside == ()


@pytest.mark.parametrize("stale", [(2, BOOT), (1, BOOT), (3, OTHER)])
def test_old_blocks_that_look_like_rows_are_not_taken_for_rows(
    tmp_path: Path, stale: tuple[int, Incarnation]
) -> None:
    path = left_over(tmp_path, 1, 2)
    sequence, incarnation = stale
    row = render({}, sequence=sequence, incarnation=incarnation, database_id="db", server="mx1")
    path.write_bytes(path.read_bytes() + row.encode())
    found = recover(tmp_path, "mx1", NOW)
    report = verify_file(found.sealed[0])
    assert (report.sound, report.rows, found.written, len(found.set_aside)) == (True, 2, {BOOT: 2}, 1)


def test_a_left_over_of_which_no_row_can_be_read_is_set_aside_not_deleted(tmp_path: Path) -> None:
    path = left_over(tmp_path, 1, 2)
    path.write_bytes(path.read_bytes().replace(b"S:Seq=1", b"S:Xxx=1"))
    found = recover(tmp_path, "mx1", NOW)
    assert (found.sealed, found.removed, len(found.set_aside)) == ((), (), 1)


def test_rows_of_two_incarnations_are_counted_apart(tmp_path: Path) -> None:
    begun(tmp_path, *range(1, 101)).close(NOW)
    left_over(tmp_path, 51, 52, incarnation=OTHER)
    assert recover(tmp_path, "mx1", NOW).written == {BOOT: 100, OTHER: 52}


def test_of_several_closed_files_the_newest_says_what_is_written(tmp_path: Path) -> None:
    for sequences in ((1, 2), (9, 10, 11), (3, 4, 5, 6, 7, 8)):
        begun(tmp_path, *sequences).close(NOW)
    assert recover(tmp_path, "mx1", NOW).written == {BOOT: 11}


def test_a_closed_file_whose_footer_was_cut_off_still_counts_with_its_rows(tmp_path: Path) -> None:
    path = begun(tmp_path, 1, 2, 3).close(NOW)
    path.write_bytes(path.read_bytes()[: path.read_bytes().index(b"#Footer") + 9])
    assert recover(tmp_path, "mx1", NOW).written == {BOOT: 3}


@pytest.mark.parametrize("moment", ["before the rename", "after the rename"])
def test_a_recovery_cut_short_is_done_again(tmp_path: Path, moment: str) -> None:
    path = left_over(tmp_path, 1, 2)
    before = path.read_bytes()
    (sealed,) = recover(tmp_path, "mx1", NOW).sealed
    path.write_bytes(before)
    if moment == "before the rename":
        sealed.rename(tmp_path / f".{sealed.name}.sealing")
    found = recover(tmp_path, "mx1", NOW)
    assert (os.listdir(tmp_path), found.written) == ([sealed.name], {BOOT: 2})
    assert verify_file(sealed).sound


def test_other_nodes_left_overs_are_not_touched(tmp_path: Path) -> None:
    theirs = left_over(tmp_path, 1, 2, node="mx2")
    assert recover(tmp_path, "mx1", NOW).written == {}
    assert list(tmp_path.iterdir()) == [theirs]


def test_a_file_that_a_live_process_writes_is_not_sealed(tmp_path: Path) -> None:
    file = begun(tmp_path, 1)
    file.sync()
    with pytest.raises(BlockingIOError):
        recover(tmp_path, "mx1", NOW)
    file.close(NOW)
    assert recover(tmp_path, "mx1", NOW).written == {BOOT: 1}


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("x")
    (tmp_path / ".MSGTRK-mx1-00112233445566aa-1.LOG.open").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic"):
        recover(tmp_path, "mx1", NOW)


def test_the_directory_is_made_when_it_is_missing(tmp_path: Path) -> None:
    assert recover(tmp_path / "a" / "b", "mx1", NOW).written == {}
    assert (tmp_path / "a" / "b").is_dir()
