"""``shadowlab generate``: logs with known faults."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shadowlab.cli import main

DEADLINE = 60.0
MAIN = """\
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from shadowlab.__main__ import main
main()
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["generate", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("x", "--faults", "floods=1"), "no fault 'floods'"),
        (("x", "--messages", "1", "--faults", "lost=2"), "do not fit"),
        (("/proc/nowhere",), "/proc/nowhere: No such file"),
        (("a file",), "is a file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_is_status_2_and_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a file").touch()
    result = run(*arguments)
    assert (result.exit_code, sentence in result.output, "Traceback" in result.output) == (2, True, False)
    assert list(tmp_path.iterdir()) == [tmp_path / "a file"], "nothing was begun"


@pytest.mark.parametrize("there", [False, True], ids=["new", "empty"])
def test_what_could_not_be_generated_leaves_nothing(tmp_path: Path, *, there: bool) -> None:
    logs = tmp_path / "logs"
    if there:
        logs.mkdir()
    result = run("--faults", "file=1", logs)  # of the only file of a node
    assert result.exit_code == 2
    assert list(tmp_path.rglob("*")) == ([logs] if there else [])


def test_a_fault_without_a_number_is_one(tmp_path: Path) -> None:
    told = run("--faults", "lost", tmp_path / "logs", "--json").stdout
    assert json.loads(told)["faults"] == {"lost": 1}
    assert "once without a count" in " ".join(run("--help").output.split())


def test_an_interruption_leaves_nothing(tmp_path: Path) -> None:
    arguments = ["generate", "--messages", "100000000", "--file-size", "10000", str(tmp_path / "logs")]
    process = subprocess.Popen([sys.executable, "-c", MAIN, *arguments], stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + DEADLINE
        while not list(tmp_path.rglob("*.LOG")):
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, told) == (130, "generate: interrupted; nothing of it is left\n")
    assert list(tmp_path.iterdir()) == []
