"""Ctrl-C and SIGTERM while Spark starts or works: no process is left, and nothing but the end is told."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shadowaudit.spark.java import NoJavaError, find_java
from shadowlab.generate.cluster import generate

pytest.importorskip("pyspark", reason="PySpark is not installed")

DEADLINE = 120
PROCESSES = Path("/proc")
MARK = "SHADOWAUDIT_TEST_MARK"


def told(mark: str) -> dict[int, bytes]:
    """The command lines of the processes that have the mark, by their ids."""
    found = {}
    for place in PROCESSES.iterdir():
        try:
            if place.name.isdigit() and f"{MARK}={mark}".encode() in (place / "environ").read_bytes():
                found[int(place.name)] = (place / "cmdline").read_bytes()
        except OSError:  # it ended meanwhile
            continue
    return found


def a_script_starts(mark: str, temporary: Path) -> bool:
    return any(b"spark-class" in line for line in told(mark).values())


def java_starts(mark: str, temporary: Path) -> bool:
    return any(b"org.apache.spark.deploy.SparkSubmit" in line for line in told(mark).values())


def java_answers(mark: str, temporary: Path) -> bool:
    """The context is made: that takes Java some seconds more."""
    return any(place.name.startswith("blockmgr-") for place in temporary.glob("*/*")) or any(
        place.name.startswith("blockmgr-") for place in temporary.iterdir()
    )


def workers_work(mark: str, temporary: Path) -> bool:
    """Logs are being read."""
    return any(b"pyspark.daemon" in line or b"pyspark/daemon" in line for line in told(mark).values())


@pytest.fixture
def mark() -> Iterator[str]:
    chosen = secrets.token_hex(8)
    yield chosen
    for process in told(chosen):
        os.kill(process, signal.SIGKILL)


def wait(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + DEADLINE
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


@pytest.mark.slow
@pytest.mark.skipif(not (PROCESSES / "self" / "environ").exists(), reason="processes are found by /proc")
@pytest.mark.parametrize(
    ("moment", "command"),
    [
        (a_script_starts, "verify"),
        (java_starts, "verify"),
        (java_answers, "verify"),
        (workers_work, "verify"),
        (workers_work, "ingest"),
    ],
)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_who_is_interrupted_while_spark_starts_or_works_leaves_no_process_and_no_file(
    tmp_path: Path,
    mark: str,
    moment: Callable[[str, Path], bool],
    command: str,
    number: signal.Signals,
    status: int,
) -> None:
    try:
        find_java()
    except NoJavaError as problem:
        pytest.skip(str(problem))
    generate(tmp_path / "logs", messages=20, faults={}, seed=3, file_size=30_000)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    target = "--out" if command == "verify" else "--tables"
    typed = [command, str(tmp_path / "logs"), "--engine", "spark", target, str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-m", "shadowaudit", *typed],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, MARK: mark, "TMPDIR": str(temporary), "SPARK_LOCAL_DIRS": str(temporary)},
    )
    assert wait(lambda: moment(mark, temporary) or process.poll() is not None)
    os.killpg(process.pid, number)
    said, _ = process.communicate(timeout=DEADLINE)  # until nobody has the pipe any more
    assert process.returncode == status, said
    assert "Traceback" not in said
    sentence = "no verdict" if command == "verify" else "the tables are as they were"
    assert (f"interrupted: {sentence}" in said) == (number == signal.SIGINT)
    assert "ERROR" not in said or number == signal.SIGTERM
    assert wait(lambda: not told(mark)), told(mark)
    if number == signal.SIGINT:
        assert not list((tmp_path / "out").glob("*"))
        assert not list(temporary.iterdir())
