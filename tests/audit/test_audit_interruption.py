"""Ctrl-C says nothing of any message, whenever it comes: 1 would say that the promise was broken."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from shadowaudit.cli import engines
from shadowaudit.cli.progress import Shown
from shadowaudit.interruption import put_off
from shadowlab.generate.cluster import generate

INTERRUPTED = """
import os, signal, sys

at = sys.argv.pop(1)

class Ctrl_C:
    def find_spec(self, name, *_):
        if name == at:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the shell said
sys.meta_path.insert(0, Ctrl_C())
from shadowaudit.__main__ import main
main()
raise SystemExit(f"{at} was not imported")
"""

MAIN = "from shadowaudit.__main__ import main; main()"
DEADLINE = 60

WITHOUT = """
import sys
sys.modules["pyarrow"] = None
from shadowaudit.__main__ import main
main()
"""


def run(code: str, directory: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=directory, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    generate(tmp_path / "logs", messages=20, faults={}, seed=1)
    return tmp_path / "logs"


@pytest.mark.parametrize("command", [("verify",), ("explain", "user@example.com")], ids=" ".join)
@pytest.mark.parametrize(
    "at", ["click", "rich", "pyarrow", "shadowaudit.cli.progress", "shadowaudit.logs.lines"]
)
def test_an_interruption_while_the_command_is_loaded_is_no_answer(
    tmp_path: Path, logs: Path, command: tuple[str, ...], at: str
) -> None:
    done = run(INTERRUPTED, tmp_path, at, *command, logs)
    assert (done.returncode, done.stderr, done.stdout) == (130, "interrupted: no verdict\n", "")


def test_an_interruption_after_the_verdict_leaves_no_other_answer(tmp_path: Path, logs: Path) -> None:
    late = "import atexit\natexit.register(__import__, 'late')\nmain()\n"
    at_the_end = INTERRUPTED.replace("main()\n", late)
    done = run(at_the_end, tmp_path, "late", "verify", logs)
    assert done.returncode == 130
    assert "✓ Proven" in done.stdout


def test_an_interruption_that_a_library_takes_for_no_matter_ends_the_command_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def swallow() -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(engines, "without_pandas", swallow)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with (
            pytest.raises(KeyboardInterrupt),
            engines.started("here", Shown(quiet=True), tmp_path, octets=0, master=None, memory="2g"),
        ):
            pass
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("command", [("verify",), ("explain", "user@example.com")], ids=" ".join)
def test_a_command_that_cannot_be_loaded_is_no_answer(
    tmp_path: Path, logs: Path, command: tuple[str, ...]
) -> None:
    done = run(WITHOUT, tmp_path, *command, logs)
    assert done.returncode == 2
    assert "pyarrow" in done.stderr


def test_an_interruption_that_is_put_off_comes_at_the_end_and_a_second_one_at_once() -> None:
    done: list[int] = []

    def interrupted(times: int) -> None:
        with put_off():
            for number in range(times):
                signal.raise_signal(signal.SIGINT)
                done.append(number)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupted(0)
        with pytest.raises(KeyboardInterrupt):
            interrupted(1)
        assert done == [0]
        with pytest.raises(KeyboardInterrupt):
            interrupted(2)
        assert done == [0, 0]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
