"""Processes that share the work: the same is found, and none outlives the audit."""

from __future__ import annotations

import json
import operator
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from auditing import auditor
from pyarrow import parquet

from shadowaudit.engine import here
from shadowaudit.engine.here import Here
from shadowaudit.engine.pool import Pool
from shadowaudit.engine.port import EngineError
from shadowlab.generate.cluster import generate
from shadowlab.generate.stories import FAULTS

DEADLINE = 60
PROCESSES = Path("/proc")
MARK = "SHADOWAUDIT_TEST_MARK"

POOLED = """
import sys
from shadowaudit.engine import pool
pool.MUCH = 0  # octets: any logs are worth a pool
from shadowaudit.cli import engines
engines.cores = lambda: 2
from shadowaudit.__main__ import main
if __name__ == "__main__":
    main()
"""


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool(2) as made:
        made.start()
        yield made


def test_each_part_is_done_once_by_other_processes(pool: Pool) -> None:
    found = list(
        pool.each(operator.call, eval, [f"({number}, __import__('os').getpid())" for number in range(9)])
    )
    assert sorted(number for number, _ in found) == list(range(9))
    others = {process for _, process in found}
    assert os.getpid() not in others
    assert len(others) <= 2
    assert list(pool.each(operator.floordiv, 100, [50])) == [2], "they take another job"


def test_how_many_parts_are_done_is_told_meanwhile(pool: Pool) -> None:
    told = [(pool.done, pool.total) for _ in pool.each(operator.floordiv, 100, [1, 2, 5])]
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert (pool.done, pool.total) == (0, 0)


def test_one_process_alone_is_not_started_and_the_work_is_done_here() -> None:
    with Pool(1) as alone:
        alone.start()
        assert list(alone.each(operator.call, eval, ["__import__('os').getpid()"])) == [os.getpid()]


def test_a_part_that_fails_ends_the_job_with_its_error_and_where_it_was(pool: Pool) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        list(pool.each(operator.call, eval, ["sum(range(20_000_000))", "1 / 0"]))
    assert "Traceback" in caught.value.__notes__[0]
    pool.start()
    assert sorted(pool.each(operator.floordiv, 100, [1, 2])) == [50, 100], "what was under way is forgotten"


def test_ctrl_c_does_not_reach_the_processes(pool: Pool) -> None:
    interrupted = "__import__('signal').raise_signal(__import__('signal').SIGINT) or 7"
    assert list(pool.each(operator.call, eval, [interrupted, "8"])) in ([7, 8], [8, 7])


def test_a_process_that_somebody_ends_is_an_error_that_says_so(pool: Pool) -> None:
    with pytest.raises(EngineError, match="too little memory"):
        list(pool.each(operator.call, os._exit, [9]))


def test_a_pool_finds_what_one_process_finds_in_every_table(
    tmp_path: Path, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = dict.fromkeys(FAULTS, 2)
    truth = generate(tmp_path / "logs", messages=500, faults=faults, seed=4, file_size=40_000)
    monkeypatch.setattr(here, "_PART", 100_000)
    found = {}
    for name, processes in (("alone", Pool(1)), ("shared", pool)):
        audit = auditor(lambda scratch, processes=processes: Here(processes, scratch), tmp_path)  # type: ignore[misc]
        assert dict(audit(tmp_path / "logs", out=tmp_path / name).classes) == truth.classes
        out = tmp_path / name
        found[name] = {
            table: sorted(map(str, parquet.read_table(out / table).to_pylist()))
            for table in ("messages.parquet", "findings.parquet", "stats.parquet", "copies.parquet")
        }
    assert found["alone"] == found["shared"]


def marked(mark: str) -> set[int]:
    found = set()
    for place in PROCESSES.iterdir():
        try:
            if place.name.isdigit() and f"{MARK}={mark}".encode() in (place / "environ").read_bytes():
                found.add(int(place.name))
        except OSError:  # it ended meanwhile
            continue
    return found


def wait(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + DEADLINE
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


@pytest.mark.sampled(3)
@pytest.mark.skipif(not (PROCESSES / "self" / "environ").exists(), reason="processes are found by /proc")
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)],
)
@pytest.mark.parametrize("workers", [0, 2], ids=["while they start", "while they work"])
def test_however_an_audit_ends_its_processes_end_with_it(
    tmp_path: Path, number: signal.Signals, status: int, workers: int
) -> None:
    generate(tmp_path / "logs", messages=2000, faults={}, seed=3, file_size=10_000)
    (tmp_path / "pooled.py").write_text(POOLED, "utf-8")
    mark = secrets.token_hex(8)
    typed = ["verify", str(tmp_path / "logs"), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "pooled.py"), *typed],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, MARK: mark},
    )  # fmt: skip
    try:
        # Besides the command: a tracker of resources, the process that others are forked from, and these.
        assert wait(lambda: len(marked(mark)) >= 2 + workers or process.poll() is not None)
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        _, told = process.communicate(timeout=DEADLINE)
        assert wait(lambda: not marked(mark)), marked(mark)
    finally:
        for one in marked(mark):
            os.kill(one, signal.SIGKILL)
    if process.returncode == 0:
        pytest.skip("it was done before")
    assert process.returncode == status, told
    if number == signal.SIGINT:
        assert "interrupted: no verdict" in told
        assert "Traceback" not in told
        assert not (tmp_path / "out").exists() or list((tmp_path / "out").iterdir()) == []


@pytest.mark.slow
def test_an_audit_by_a_pool_says_what_one_without_says(tmp_path: Path) -> None:
    generate(tmp_path / "logs", messages=300, faults={"lost": 2}, seed=3, file_size=20_000)
    (tmp_path / "pooled.py").write_text(POOLED, "utf-8")
    told = []
    for start in ([str(tmp_path / "pooled.py")], ["-m", "shadowaudit"]):
        typed = [sys.executable, *start, "verify", tmp_path / "logs", "--out", tmp_path / "out", "--json"]
        done = subprocess.run(typed, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr
        assert "Traceback" not in done.stderr
        told.append({name: value for name, value in json.loads(done.stdout).items() if name != "timings"})
    assert told[0] == told[1]
