from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shadowrelay.core.identifiers import Beginning, DatabaseId, Incarnation, Lineage, ServerName
from shadowrelay.tracking import files as log_files
from shadowrelay.tracking.events import TrackingEvents
from shadowrelay.tracking.files import LogLimits
from shadowrelay.tracking.format import parse_row, row_identity
from shadowrelay.tracking.tail import LogDirectory
from shadowrelay.tracking.verify import verify_file
from shadowrelay.tracking.writer import TrackingWriter


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the condition is whatever a test looks at
            await asyncio.sleep(0.005)


BOOT, NEXT = "00112233445566aa", "ffeeddccbbaa9988"


class Node:
    """A writer with its outbox, run as the composition root runs it."""

    def __init__(self, directory: Path, outbox, clock, limits: LogLimits, **times: Any) -> None:
        self.directory, self.outbox = directory, outbox
        self.committed, self.stopping = asyncio.Event(), asyncio.Event()
        self.writer = TrackingWriter(
            outbox,
            directory=directory,
            node=ServerName("mx1"),
            limits=limits,
            committed=self.committed,
            clock=clock,
            sync_interval=0.02,
            **times,
        )

    def start(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.writer.run(self.stopping))

    async def drain(self) -> None:
        """Run to the end of the outbox and stop cleanly."""
        task = self.start()
        self.stopping.set()
        await task

    def closed(self) -> list[Path]:
        return sorted(self.directory.glob("MSGTRK-*.LOG"))

    def logged(self) -> list[tuple[int, str]]:
        """Sequence and incarnation of every row in every closed file, in order of the files' first rows."""
        paths = sorted(self.closed(), key=lambda path: int(path.stem.rpartition("-")[2]))
        assert all(verify_file(path).sound for path in paths)
        lines = [line for path in paths for line in path.read_bytes().decode().split("\r\n")]
        return [row_identity(parse_row(line)) for line in lines if line and not line.startswith("#")]


@pytest.fixture
def node(tmp_path: Path, outbox, clock) -> Callable[..., Node]:
    return lambda limits=None, **times: Node(tmp_path / "log", outbox, clock, limits or LogLimits(), **times)


async def until(condition: Callable[[], object], seconds: float = 5) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_every_row_is_in_a_closed_file_after_a_clean_stop(node, outbox) -> None:
    outbox.add(*range(1, 4501))
    mx1 = node()
    await mx1.drain()
    assert mx1.logged() == [(sequence, BOOT) for sequence in range(1, 4501)]
    assert outbox.rows == []
    assert len(os.listdir(mx1.directory)) == 1


async def test_a_node_without_events_leaves_no_file(node) -> None:
    mx1 = node()
    await mx1.drain()
    assert os.listdir(mx1.directory) == []


async def test_a_commit_wakes_the_writer_and_its_row_goes_to_disk(node, outbox) -> None:
    mx1 = node()
    task = mx1.start()
    for sequence in (1, 2, 3):
        outbox.add(sequence)
        mx1.committed.set()
        await until(lambda: not outbox.rows)
    mx1.stopping.set()
    await task
    assert [sequence for sequence, _ in mx1.logged()] == [1, 2, 3]


async def test_a_commit_of_which_nobody_told_is_found_all_the_same(node, outbox) -> None:
    mx1 = node()
    task = mx1.start()
    await until(lambda: "rows_after 0" in outbox.calls)
    outbox.add(1)
    await until(lambda: not outbox.rows)
    mx1.stopping.set()
    await task


async def test_an_outbox_row_goes_only_after_its_file_was_fsynced(node, outbox, monkeypatch) -> None:
    mx1 = node()
    synced_sizes: dict[int, int] = {}
    real = os.fsync

    def fsync(handle: int) -> None:
        real(handle)
        synced_sizes[os.fstat(handle).st_ino] = os.fstat(handle).st_size

    def on_disk(upto: int) -> None:
        (path,) = mx1.directory.glob(".MSGTRK-*.open")
        durable = path.read_bytes()[: synced_sizes[path.stat().st_ino]]
        assert f"S:Seq={upto};".encode() in durable
        checked.append(upto)

    checked: list[int] = []
    monkeypatch.setattr(os, "fsync", fsync)
    outbox.before_forget = on_disk
    for sequence in (1, 2, 3):
        outbox.add(sequence)
        await mx1.writer.flush()
    await mx1.drain()
    assert checked == [1, 2, 3]


async def test_a_row_of_a_new_incarnation_begins_a_new_file(node, outbox) -> None:
    outbox.add(1, 2)
    outbox.add(3, 4, incarnation=NEXT)
    mx1 = node()
    await mx1.drain()
    assert [path.name for path in mx1.closed()] == [f"MSGTRK-mx1-{BOOT}-1.LOG", f"MSGTRK-mx1-{NEXT}-3.LOG"]
    assert mx1.logged() == [(1, BOOT), (2, BOOT), (3, NEXT), (4, NEXT)]


async def test_files_rotated_by_size_join_without_a_gap(node, outbox) -> None:
    outbox.add(*range(1, 301), subject="x" * 500)
    mx1 = node(LogLimits(max_file_size=20_000))
    await mx1.drain()
    assert len(mx1.closed()) > 5
    assert all(path.stat().st_size < 21_500 for path in mx1.closed())
    assert mx1.logged() == [(sequence, BOOT) for sequence in range(1, 301)]


async def test_a_file_is_closed_when_its_time_is_over_even_if_no_row_comes(node, outbox, clock) -> None:
    mx1 = node(LogLimits(max_file_age=timedelta(hours=1)))
    task = mx1.start()
    outbox.add(1)
    await until(lambda: not outbox.rows)
    clock.advance(timedelta(minutes=59))
    outbox.add(2)
    await until(lambda: not outbox.rows)
    assert mx1.closed() == []
    clock.advance(timedelta(minutes=1))
    await until(mx1.closed)
    assert [sequence for sequence, _ in mx1.logged()] == [1, 2]
    outbox.add(3)
    mx1.stopping.set()
    await task
    assert [path.name for path in mx1.closed()] == [f"MSGTRK-mx1-{BOOT}-{first}.LOG" for first in (1, 3)]


async def test_rows_in_a_file_that_the_outbox_did_not_forget_are_not_written_twice(node, outbox) -> None:
    def killed(upto: int) -> None:
        raise ConnectionError

    outbox.add(1, 2, 3)
    outbox.before_forget = killed
    with pytest.raises(ConnectionError):
        await node().drain()
    assert [row.sequence for row in outbox.rows] == [1, 2, 3]

    outbox.before_forget = lambda upto: None
    outbox.add(4)
    outbox.add(5, incarnation=NEXT)
    again = node()
    await again.drain()
    assert [sequence for sequence, _ in again.logged()] == [1, 2, 3, 4, 5]
    assert outbox.rows == []


async def test_a_database_set_back_to_an_old_copy_writes_its_numbers_again_under_its_new_incarnation(
    node, outbox
) -> None:
    outbox.add(*range(1, 11))
    await node().drain()
    outbox.add(6)  # still in the old copy's outbox, long since in a file
    outbox.add(7, 8, incarnation=NEXT)
    again = node()
    await again.drain()
    assert again.logged() == [*((sequence, BOOT) for sequence in range(1, 11)), (7, NEXT), (8, NEXT)]


async def test_a_crash_at_every_byte_of_the_last_rows_loses_and_repeats_none(node, outbox, tmp_path) -> None:
    outbox.add(1, 2, 3)
    rows = list(outbox.rows)
    first = node()
    task = first.start()
    await until(lambda: not outbox.rows)
    task.cancel()
    await asyncio.wait([task])
    (path,) = first.directory.iterdir()
    whole = path.read_bytes()
    second_row = whole.index(b"\r\n", whole.index(b"S:Seq=1;")) + 2
    for cut in range(second_row, len(whole) + 1, 3):
        outbox.rows = rows[1:]  # the first was fsynced and forgotten, the others were not
        again = node()
        again.directory = again.writer._directory = tmp_path / str(cut)
        again.directory.mkdir()
        (again.directory / path.name).write_bytes(whole[:cut])
        await again.drain()
        assert [sequence for sequence, _ in again.logged()] == [1, 2, 3]
        assert outbox.rows == []


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
async def test_a_disk_error_ends_the_stage_and_the_outbox_keeps_its_rows(
    node, outbox, monkeypatch, call
) -> None:
    def fails(*arguments: object, **named: object) -> None:
        raise OSError(errno.EIO, "disk error")

    mx1 = node()
    outbox.add(1, 2)
    await mx1.writer.flush()
    outbox.add(3)
    with monkeypatch.context() as broken:
        broken.setattr(log_files.os, call, fails)
        with pytest.raises(OSError, match="disk error"):
            await mx1.drain()
    assert [row.sequence for row in outbox.rows] == ([] if call == "rename" else [3])
    assert mx1.closed() == []
    outbox.rows.clear()
    outbox.add(3)
    again = node()
    await again.drain()
    assert [sequence for sequence, _ in again.logged()] == [1, 2, 3]


async def test_after_a_failed_fsync_nothing_more_is_written_or_forgotten(node, outbox, monkeypatch) -> None:
    def fails(handle: int) -> None:
        raise OSError(errno.EIO, "disk error")

    mx1 = node()
    outbox.add(1)
    await mx1.writer.flush()
    outbox.add(2)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fails)
        with pytest.raises(OSError, match="disk error"):
            await mx1.writer.flush()
    with pytest.raises(OSError, match="disk error"):
        await mx1.writer.flush()
    with pytest.raises(OSError, match="disk error"):
        await mx1.drain()
    assert [row.sequence for row in outbox.rows] == [2]


class Descriptors:
    """Descriptors run out: what would open one fails, but for those that ``left`` allows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None  # None: as many as one likes
        self._open, self._close, self._scan = os.open, os.close, os.scandir
        monkeypatch.setattr(log_files.os, "open", self.opened)
        monkeypatch.setattr(log_files.os, "close", self.closed)
        monkeypatch.setattr(log_files.os, "scandir", self.scanned)

    def _take(self) -> None:
        if self.left is not None:
            if not self.left:
                raise OSError(errno.EMFILE, "Too many open files")
            self.left -= 1

    def opened(self, *arguments: object, **named: object) -> int:
        self._take()
        return self._open(*arguments, **named)  # type: ignore[arg-type]

    def closed(self, handle: int) -> None:
        self._close(handle)
        if self.left is not None:
            self.left += 1

    def scanned(self, path: object) -> object:
        self._take()
        if self.left is not None:
            self.left += 1
        return self._scan(path)  # type: ignore[call-overload]


async def test_the_next_file_finds_a_descriptor_though_all_are_taken(node, outbox, monkeypatch) -> None:
    descriptors = Descriptors(monkeypatch)
    mx1 = node()
    outbox.add(1)
    await mx1.writer.flush()
    descriptors.left = 0
    outbox.add(2, incarnation=NEXT)
    descriptors.left = 0
    await mx1.writer._off_loop(mx1.writer._close)
    descriptors.left = 0  # a stranger took what the old file gave back
    await mx1.writer._off_loop(mx1.writer._store, outbox.rows)
    descriptors.left = None
    await mx1.drain()
    assert [sequence for sequence, _ in mx1.logged()] == [1, 2]


async def test_without_a_descriptor_rows_wait_in_the_outbox_and_the_node_lives(
    node, outbox, monkeypatch
) -> None:
    descriptors, told = Descriptors(monkeypatch), []
    mx1 = node()
    mx1.writer._waits = told.append
    descriptors.left = 0  # from the first moment on
    task = mx1.start()
    outbox.add(1, 2)
    mx1.committed.set()
    await eventually(lambda: told == [True])
    outbox.add(3)
    mx1.committed.set()
    await asyncio.sleep(0.1)
    assert not task.done()
    assert [row.sequence for row in outbox.rows] == [1, 2, 3]
    descriptors.left = None
    await eventually(lambda: told == [True, False] and not outbox.rows)
    for left in (1, 0):  # half of what a file needs; and none: the spare ones are used, and then no more
        outbox.add(4 if left else 5, incarnation=NEXT if left else BOOT)
        descriptors.left = left
        mx1.committed.set()
        await asyncio.sleep(0.1)
        assert not task.done()
    descriptors.left = None
    await eventually(lambda: not outbox.rows)
    mx1.stopping.set()
    await task
    assert [sequence for sequence, _ in mx1.logged()] == [1, 2, 3, 4, 5]
    assert [path.name for path in mx1.directory.iterdir() if path.name.startswith(".")] == []


async def test_a_node_may_stop_without_descriptors(node, outbox, monkeypatch) -> None:
    descriptors = Descriptors(monkeypatch)
    mx1 = node()
    outbox.add(1)
    await mx1.writer.flush()
    descriptors.left = 0
    await mx1.drain()
    assert [sequence for sequence, _ in mx1.logged()] == [1]


async def test_a_failing_outbox_ends_the_stage(node, outbox) -> None:
    outbox.broken = ConnectionError()
    with pytest.raises(ConnectionError):
        await node().drain()


async def test_flush_returns_when_the_rows_are_safe(node, outbox) -> None:
    mx1 = node()
    outbox.add(1, 2)
    await mx1.writer.flush()
    assert outbox.rows == []
    (path,) = mx1.directory.iterdir()
    assert b"S:Seq=2;" in path.read_bytes()
    await mx1.drain()
    assert [sequence for sequence, _ in mx1.logged()] == [1, 2]


async def test_a_flush_that_is_cancelled_writes_no_row_twice(node, outbox, monkeypatch) -> None:
    mx1 = node()
    await mx1.writer.flush()
    outbox.add(1, 2)
    entered, release = asyncio.Event(), threading.Event()
    real, loop = os.fsync, asyncio.get_running_loop()

    def fsync(handle: int) -> None:
        loop.call_soon_threadsafe(entered.set)
        release.wait(5)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    task = asyncio.create_task(mx1.writer.flush())
    await entered.wait()
    task.cancel()
    task.cancel()
    release.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert [row.sequence for row in outbox.rows] == [1, 2]
    await mx1.drain()
    assert [sequence for sequence, _ in mx1.logged()] == [1, 2]
    assert outbox.rows == []


async def test_old_files_are_deleted_only_after_the_outbox_forgot_their_rows(node, outbox) -> None:
    outbox.add(*range(1, 101), subject="x" * 500)
    mx1 = node(LogLimits(max_file_size=10_000, max_directory_size=30_000))
    seen: list[int] = []
    outbox.before_forget = lambda upto: seen.append(len(mx1.closed()))
    await mx1.drain()
    assert seen[-1] > 3
    assert sum(path.stat().st_size for path in mx1.closed()) <= 30_000
    assert mx1.logged()[-1] == (100, BOOT)


async def test_a_second_writer_for_the_same_node_is_refused(node, outbox) -> None:
    outbox.add(1)
    mx1 = node()
    await mx1.writer.flush()
    outbox.add(2)
    with pytest.raises(BlockingIOError):
        await node().drain()
    await mx1.drain()


async def test_under_load_fsyncs_keep_their_distance(node, outbox, monkeypatch) -> None:
    mx1 = node()
    mx1.writer._interval = 0.1
    task = mx1.start()
    await until(lambda: outbox.calls)
    loop = asyncio.get_running_loop()
    ends = loop.time() + 0.45
    sequence = 0
    while loop.time() < ends:
        sequence += 1
        outbox.add(sequence)
        mx1.committed.set()
        await asyncio.sleep(0.002)
    forgets = sum(call.startswith("forget") for call in outbox.calls)
    assert 1 <= forgets <= 6
    mx1.stopping.set()
    await task
    assert [number for number, _ in mx1.logged()] == list(range(1, sequence + 1))


async def test_subscribers_hear_of_a_row_once_it_is_on_disk(tmp_path: Path, outbox, clock) -> None:
    """A file shows a row to readers before it is synced; nothing is told of it before."""
    database = DatabaseId("6f0d7a3e-0000-4000-8000-000000000001")
    lineage = Lineage(database, (Beginning(Incarnation(BOOT), 0),), 0)
    synced: list[int] = []
    heard: list[tuple[int, int]] = []

    class Told(TrackingEvents):
        def tell(self, upto, rows) -> None:
            heard.append((upto, len(synced)))
            super().tell(upto, rows)

    events = Told(LogDirectory(tmp_path, "mx1", lambda: lineage))
    stop = asyncio.Event()
    writer = TrackingWriter(
        outbox,
        directory=tmp_path,
        node=ServerName("mx1"),
        limits=LogLimits(),
        committed=asyncio.Event(),
        clock=clock,
        sync_interval=0.02,
        events=events,
    )
    syncing = writer._sync

    def sync() -> None:
        syncing()
        synced.append(1)

    writer._sync = sync  # type: ignore[method-assign]
    outbox.add(1, 2, 3)
    running = asyncio.create_task(writer.run(stop))
    with events.subscribe("0") as subscription:
        batch = await anext(subscription.batches(5))
        assert [row.sequence for row in batch.rows] == [1, 2, 3]
        assert batch.rows[0].columns()["event-id"] == "SEND"
    stop.set()
    await running
    assert heard
    assert heard[0] == (3, 1)


@pytest.mark.parametrize("crashed", [False, True], ids=["closed", "sealed"])
async def test_a_file_that_was_written_under_a_wrong_clock_is_as_old_as_it_is(
    node, outbox, clock, crashed: bool
) -> None:
    """The kernel dates it by the wall clock, which was years behind or ahead of reckoned time."""
    for years in (-2, 2):
        reckoned = datetime.now(UTC) + timedelta(days=365 * years)
        outbox.add(10 + years)
        mx1 = node(reckoned=lambda reckoned=reckoned: reckoned)
        if crashed:
            await left_open(mx1)
        await node(reckoned=lambda reckoned=reckoned: reckoned).drain()
        await node(reckoned=lambda reckoned=reckoned: reckoned + timedelta(days=29)).drain()
        assert len(mx1.closed()) == 1
        await node(reckoned=lambda reckoned=reckoned: reckoned + timedelta(days=31)).drain()
        assert mx1.closed() == []


async def left_open(node: Node) -> None:
    """Its process ended without closing its file."""
    task = node.start()
    await until(lambda: not node.outbox.rows)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert node.closed() == []
