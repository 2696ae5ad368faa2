"""``--watch``: what is closed is taken up as it comes, and Ctrl-C leaves nothing half done."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from resealing import logs as files_of

from shadowlab.generate.cluster import generate

DEADLINE = 60


AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@contextmanager
def running(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    typed = [sys.executable, "-m", "shadowaudit", *map(str, arguments)]
    process = subprocess.Popen(typed, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def line(process: subprocess.Popen[str]) -> dict[str, object]:
    assert process.stdout
    text = process.stdout.readline()
    assert text, process.stderr and process.stderr.read()
    told: dict[str, object] = json.loads(text)
    return told


def step(process: subprocess.Popen[str], text: str) -> None:
    """Wait until it tells of that step."""
    assert process.stderr
    while text not in (told := process.stderr.readline()):
        assert told, f"it ended before {text!r}"


def ended(process: subprocess.Popen[str], status: int) -> str:
    """It ends by itself, with that status; what it said on standard error since."""
    _, told = process.communicate(timeout=DEADLINE)
    assert process.returncode == status, told
    assert "Traceback" not in told
    return told


def hidden(directory: Path) -> list[Path]:
    """Whatever is only there while something is made."""
    return [path for path in directory.rglob(".*") if not path.name.endswith(".crc")]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    generate(tmp_path / "logs", messages=100, faults={}, seed=3, file_size=30_000)
    return tmp_path / "logs"


@pytest.fixture
def late(tmp_path: Path, logs: Path) -> Path:
    """A file that is not closed yet; ``closed`` puts it in its place."""
    last = files_of(logs)[1]
    shutil.move(last, tmp_path / last.name)
    (tmp_path / "place").symlink_to(last.parent)
    return tmp_path / last.name


def closed(late: Path) -> None:
    """As a node does it: complete, and renamed."""
    late.rename(late.parent / "place" / late.name)


@pytest.mark.slow
def test_a_log_that_is_closed_while_one_watches_is_judged_with_the_others(
    tmp_path: Path, logs: Path, late: Path
) -> None:
    out, state = tmp_path / "out", tmp_path / "state"
    arguments = (logs, "--state", state, "--out", out, "--watch", "--interval", 0.1, "--json")
    with running("verify", *arguments) as process:
        first = line(process)
        assert first["status"] == 3
        assert "classes" in first
        closed(late)
        second = line(process)
        assert (second["status"], second["files"]) == (0, int(str(first["files"])) + 1)
        process.send_signal(signal.SIGINT)
        ended(process, 0)
    assert json.loads((out / "verdict.json").read_text("utf-8"))["sentence"] == second["sentence"]
    assert (out / "report.html").exists()
    assert hidden(out) == hidden(state) == []


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_end_that_is_asked_for_in_the_middle_of_a_verdict_comes_after_it(
    tmp_path: Path, logs: Path, late: Path, number: signal.Signals
) -> None:
    assert late.exists()
    out, state = tmp_path / "out", tmp_path / "state"
    with running("verify", logs, "--state", state, "--out", out, "--watch", "--json") as process:
        step(process, "Reading")
        process.send_signal(number)
        assert line(process)["status"] == 3
        assert "Ends after this turn" in ended(process, 3)
    assert (out / "verdict.json").exists()
    assert hidden(out) == hidden(state) == []


def test_a_second_ctrl_c_ends_it_at_once_and_leaves_no_half_a_verdict(tmp_path: Path, logs: Path) -> None:
    out = tmp_path / "out"
    with running("verify", logs, "--state", tmp_path / "state", "--out", out, "--watch") as process:
        step(process, "Reading")
        process.send_signal(signal.SIGINT)
        step(process, "Ends after this turn")
        process.send_signal(signal.SIGINT)
        assert "interrupted: no verdict" in ended(process, 130)
    assert not out.exists() or list(out.iterdir()) == []


def test_ctrl_c_in_an_audit_is_no_verdict(tmp_path: Path, logs: Path) -> None:
    out = tmp_path / "out"
    with running("verify", logs, "--out", out) as process:
        step(process, "Reading")
        process.send_signal(signal.SIGINT)
        assert "interrupted: no verdict" in ended(process, 130)
    assert not out.exists() or list(out.iterdir()) == []


def test_one_may_watch_before_the_first_log_is_closed(tmp_path: Path, logs: Path) -> None:
    shutil.move(logs, tmp_path / "elsewhere")
    logs.mkdir()
    arguments = (logs, "--state", tmp_path / "state", "--out", tmp_path / "out", "--watch", "--interval", 0.1)
    with running("verify", *arguments, "--json") as process:
        step(process, "no closed log yet")
        (tmp_path / "elsewhere").rename(logs / "here")
        told = line(process)
        assert (told["status"], told["files"]) == (0, len(files_of(logs)))
        process.send_signal(signal.SIGINT)
        ended(process, 0)


@pytest.mark.slow
def test_who_watches_is_told_of_a_directory_without_logs(tmp_path: Path, logs: Path) -> None:
    (tmp_path / "other").mkdir()
    places = (logs, tmp_path / "other", "--state", tmp_path / "state", "--out", tmp_path / "out")
    with running("verify", *places, "--watch", "--json") as process:
        step(process, f"waiting for logs: no tracking log in {tmp_path / 'other'}")
        assert line(process)["status"] == 0
        process.send_signal(signal.SIGINT)
        ended(process, 0)


def test_who_watched_and_saw_no_log_has_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with running("verify", tmp_path / "logs", "--state", tmp_path / "state", "--watch") as process:
        step(process, "no closed log yet")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)
        assert process.returncode in (2, 130), "130 while the engine still starts"


@pytest.mark.parametrize("command", ["verify", "ingest"])
def test_a_line_of_who_watches_has_its_time(tmp_path: Path, logs: Path, command: str) -> None:
    where = ("--state", tmp_path / "state", *(("--out", tmp_path / "out") if command == "verify" else ()))
    with running(command, logs, *where, "--watch") as process:
        assert process.stdout
        at, _, rest = process.stdout.readline().partition(" ")
        assert AT.fullmatch(at)
        assert rest.startswith("✓ Proven" if command == "verify" else f"{len(files_of(logs))} ")
        process.send_signal(signal.SIGINT)
        ended(process, 0)
    once = subprocess.run(
        [sys.executable, "-m", "shadowaudit", command, logs, *where],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not AT.match(once.stdout)


def test_ingest_takes_up_what_is_closed_until_it_is_ended(tmp_path: Path, logs: Path, late: Path) -> None:
    state = tmp_path / "state"
    with running("ingest", logs, "--state", state, "--watch", "--interval", 0.1, "--json") as process:
        first = line(process)
        assert first["new"] == first["files"]
        closed(late)
        second = line(process)
        assert (second["files"], second["new"]) == (int(str(first["files"])) + 1, 1)
        assert AT.fullmatch(str(second["at"]))
        process.send_signal(signal.SIGINT)
        ended(process, 0)
    assert len(list(state.glob("*.parquet"))) == len(files_of(logs))
    assert hidden(state) == []
