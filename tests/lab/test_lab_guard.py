"""What a command that failed leaves in the lab's directory, and who has the lock."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from shadowlab.errors import LabError
from shadowlab.guard import locked, undone_on_failure


def fail_after_making(home: Path, *paths: str) -> None:
    with locked(home), undone_on_failure(home, ["nodes", "lab.json"]):
        for path in paths:
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).touch()
        raise LabError("it does not come up")


def test_what_a_failed_command_made_is_removed_and_nothing_else(tmp_path: Path):
    home = tmp_path / "a" / "lab"
    with pytest.raises(LabError):
        fail_after_making(home, "nodes/mx1/data", "lab.json")
    assert not home.parent.exists()
    with pytest.raises(LabError):
        fail_after_making(home, "nodes/mx1/data", "somebody-elses")
    assert [path.name for path in home.iterdir()] == ["somebody-elses"]
    (home / "nodes").mkdir()
    with pytest.raises(LabError):
        fail_after_making(home, "lab.json")
    assert sorted(path.name for path in home.iterdir()) == ["nodes", "somebody-elses"]


def make_and_lose_a_ctrl_c(home: Path) -> None:
    with locked(home), undone_on_failure(home, ["nodes"]):
        (home / "nodes").mkdir()
        with suppress(KeyboardInterrupt):  # as a finalizer does
            signal.raise_signal(signal.SIGINT)
        (home / "nodes" / "mx1").mkdir()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """What it does in a command. A test before may have left a handler of Spark's."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_a_ctrl_c_that_got_lost_fails_the_command_at_its_end(tmp_path: Path):
    home = tmp_path / "lab"
    with pytest.raises(KeyboardInterrupt):
        make_and_lose_a_ctrl_c(home)
    assert not home.exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_after_success_everything_stays(tmp_path: Path):
    home = tmp_path / "lab"
    with locked(home), undone_on_failure(home, ["nodes"]):
        (home / "nodes").mkdir()
    assert (home / "nodes").exists()


def test_who_waited_for_a_command_that_failed_has_a_lock_that_others_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    home, waits, go_on, held = tmp_path / "lab", threading.Event(), threading.Event(), []
    really = fcntl.flock

    def announced(handle: int, how: int) -> None:
        if threading.current_thread() is second:
            waits.set()
            go_on.wait(10)
        really(handle, how)

    def look() -> None:
        with locked(home):
            probe = os.open(home / ".lock", os.O_RDWR)
            with pytest.raises(BlockingIOError):
                really(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(probe)
            held.append("by the second")

    def fail_while_it_waits() -> None:
        with locked(home):
            second.start()
            assert waits.wait(10)
            raise LabError("it does not come up")

    second = threading.Thread(target=look)
    monkeypatch.setattr(fcntl, "flock", announced)
    with pytest.raises(LabError):
        fail_while_it_waits()
    go_on.set()
    second.join(10)
    assert held == ["by the second"]
