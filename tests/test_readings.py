"""What the machine reads, and how the workers of a node share it."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

from shadowrelay import readings
from shadowrelay.core.pressure import PressureLevel, PressureStanding, Resource
from shadowrelay.readings import (
    SILENT,
    SIZE,
    ReadingsBoard,
    ThreadedQuestion,
    WorkerPart,
    disk,
    give_memory_back,
    memory_in_use,
    memory_limit,
)

PART = WorkerPart(memory=100, queue=10, uncommitted=1)


def boards(*numbers: int) -> list[ReadingsBoard]:
    memory = memoryview(bytearray(SIZE))
    return [ReadingsBoard(memory, number) for number in numbers]


def test_the_lowest_worker_that_lives_decides_and_all_go_by_it() -> None:
    first, second, last = boards(1, 2, 64)
    for board in (last, second, first):
        board.say(PART, 5.0)
    assert [board.decides(6.0) for board in (first, second, last)] == [True, False, False]
    first.decide(Resource.QUEUE, PressureStanding(PressureLevel.HIGH, 5.0), 30.0)
    assert last.standing(Resource.QUEUE) == PressureStanding(PressureLevel.HIGH, 5.0)
    assert last.reading(Resource.QUEUE) == 30.0
    assert last.standing(Resource.MEMORY) == PressureStanding()


def test_what_all_workers_have_counts_also_of_one_that_is_silent_until_it_is_dead() -> None:
    first, second, last = boards(1, 2, 64)
    for board in (first, second, last):
        board.say(PART, 5.0)
    assert second.together() == WorkerPart(memory=300, queue=30, uncommitted=3)
    second.say(WorkerPart(memory=50, queue=0, uncommitted=0), 5.0 + SILENT)
    last.say(PART, 5.0 + SILENT)
    late = 5.1 + SILENT
    assert second.together() == WorkerPart(memory=250, queue=20, uncommitted=2)
    assert [board.decides(late) for board in (first, second, last)] == [False, True, False]
    first.forget()
    assert second.together() == WorkerPart(memory=150, queue=10, uncommitted=1)
    first.say(PART, late)
    assert second.together() == WorkerPart(memory=250, queue=20, uncommitted=2)
    assert first.decides(late)


def test_a_worker_alone_decides() -> None:
    board = ReadingsBoard()
    assert not board.decides(5.0)
    board.say(PART, 5.0)
    assert board.decides(5.0)


def test_a_disk_and_memory_read_what_the_system_says(tmp_path: Path) -> None:
    _, size, free = disk(tmp_path)
    usage = shutil.disk_usage(tmp_path)
    assert 0 < free < size <= usage.total
    before = memory_in_use()
    held = bytearray(b"x") * (64 << 20)
    assert memory_in_use() - before > 48 << 20
    assert len(held) < memory_limit()


@pytest.mark.parametrize(("of_groups", "limit"), [(1 << 40, 16 << 30), (4 << 30, 4 << 30), (0, 16 << 30)])
def test_the_limit_is_the_least_of_the_cgroups_and_the_machine(
    monkeypatch: pytest.MonkeyPatch, of_groups: int, limit: int
) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr(os, "sysconf", lambda name: (16 << 30) // page if name == "SC_PHYS_PAGES" else page)
    monkeypatch.setattr(readings, "_limits", lambda _: [of_groups, 1 << 62])
    assert memory_limit() == limit


async def test_no_thread_to_be_had_is_no_answer_and_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    question = ThreadedQuestion(lambda: 5)

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(OSError, match="new thread"):
            await question.answer()
    assert await question.answer() == 5


def test_an_interpreter_without_ctypes_gives_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    give_memory_back()
