"""A short run of chaos, as it is typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from running_lab import processes_of, wait_until

from shadowlab import clocks, disks
from shadowlab.mail import tracked
from shadowrelay.database.opening import FILE

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@contextmanager
def chaos(tmp_path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Whatever becomes of the test, it ends gracefully: nodes and disks are left to nobody."""
    with subprocess.Popen(
        [sys.executable, "-m", "shadowlab", "chaos", *options],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            yield running
        finally:
            for _ in range(2):  # the second one does not wait until all mail has arrived
                if running.poll() is None:
                    running.terminate()
                    with suppress(subprocess.TimeoutExpired):
                        running.communicate(timeout=40)


def verdict(tmp_path: Path, *options: str, status: int = 0) -> str:
    """What a whole run told; with that exit status, or the test fails."""
    with chaos(tmp_path, *options) as running:
        told, errors = running.communicate(timeout=200)
    assert running.returncode == status, told + errors
    return told if status == 0 else told + errors


def test_a_short_run_loses_nothing_and_leaves_nothing(tmp_path: Path):
    faults = "kill,disk-lost,writes-fail,slow,reset"
    tree = json.loads(verdict(tmp_path, "--minutes", "0.4", "--seed", "5", "--faults", faults, "--json"))
    assert tree["held"]
    assert tree["seed"] == 5
    assert tree["recipients"]["delivered"] >= tree["recipients"]["acknowledged"] > 20
    assert (tree["recipients"]["lost"], tree["recipients"]["unexpected"]) == (0, 0)
    assert tree["faults"]
    assert set(tree["faults"]) <= set(faults.split(","))
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []


def test_copies_are_damaged_where_they_lie_and_nothing_is_delivered_damaged(tmp_path: Path):
    faults = "content-flip,content-exchange,content-empty,body-flip,row-flip,row-before,holders-away"
    options = ("--minutes", "0.7", "--seed", "4", "--faults", faults, "--rate", "30", "--json")
    tree = json.loads(verdict(tmp_path, *options))
    found = tree["recipients"]
    assert tree["held"]
    assert found["delivered"] >= found["acknowledged"] > 20
    assert (found["lost"], found["damaged"], found["wrong_mailbox"], found["unexpected"]) == (0, 0, 0, 0)
    assert tree["copies_spoilt"] > 2
    assert len(tree["faults"]) > 1


def test_all_nodes_are_off_at_once_and_all_that_was_acknowledged_arrives(tmp_path: Path):
    lacking = disks.lacking()
    faults = "all-killed" if lacking else "all-killed,all-power"
    tree = json.loads(verdict(tmp_path, "--minutes", "0.3", "--seed", "2", "--faults", faults, "--json"))
    assert tree["held"]
    assert tree["recipients"]["acknowledged"] > 20
    assert set(tree["faults"]) <= set(faults.split(","))


def test_ctrl_c_in_the_middle_of_a_fault_heals_it_and_gives_the_verdict(tmp_path: Path):
    home = tmp_path / "lab"
    with chaos(tmp_path, "--minutes", "5", "--faults", "freeze-long", "--dir", str(home)) as running:
        wait_until(
            lambda: any(_frozen(pid) for pid in processes_of(home)), "the first node is frozen", deadline=60
        )
        os.kill(running.pid, signal.SIGINT)
        told, errors = running.communicate(timeout=200)
    assert running.returncode == 0, told + errors
    assert "Verdict (interrupted)" in told
    assert "lost 0, unexpected 0" in told
    assert processes_of(home) == []
    assert struck(home) == ["freeze-long"], "what it explains is explained by it"


def test_a_second_ctrl_c_does_not_wait_and_the_verdict_is_given_all_the_same(tmp_path: Path):
    home = tmp_path / "lab"
    with chaos(tmp_path, "--minutes", "5", "--faults", "away", "--dir", str(home)) as running:
        wait_until(lambda: len(processes_of(home)) > 4, "all run", deadline=60)
        wait_until(lambda: len(processes_of(home)) == 4, "the first node is killed", deadline=60)
        os.kill(running.pid, signal.SIGINT)
        time.sleep(0.2)
        os.kill(running.pid, signal.SIGINT)
        told, errors = running.communicate(timeout=200)
    assert "Verdict (interrupted)" in told, errors
    assert processes_of(home) == []
    assert struck(home) == ["away"]


@pytest.mark.parametrize("faults", ["earthquake", ""])
def test_an_unknown_fault_is_refused_with_those_that_there_are(tmp_path: Path, faults: str):
    assert "disk-lost" in verdict(tmp_path, "--faults", faults, status=2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--without", "earthquake"), "there are kill"),
        (("--faults", "kill", "--without", "kill"), "no fault is left"),
    ],
)
def test_faults_to_leave_out_exist_and_leave_some(tmp_path: Path, words: tuple[str, ...], told: str):
    assert told in verdict(tmp_path, *words, status=2)


@pytest.mark.parametrize("option", ["--minutes", "--rate"])
def test_what_is_no_number_is_refused(tmp_path: Path, option: str):
    assert "nan is not a number in the range" in verdict(tmp_path, option, "nan", status=2)


@pytest.mark.parametrize("fault", ["kill", "clock", "disk-low"])
def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path, fault: str):
    lacking = {"clock": clocks.lacking, "disk-low": disks.lacking}.get(fault, str)()
    if lacking:
        pytest.skip(lacking)
    told = verdict(tmp_path, "--faults", fault, "--dir", "/proc/nowhere/lab", status=1)
    assert told.startswith("Error: /proc/nowhere")


def struck(home: Path) -> list[str]:
    """The faults that the history tells of."""
    lines = (home / "chaos" / "history.jsonl").read_text("utf-8").splitlines()
    return [one["name"] for one in map(json.loads, lines) if one["what"] == "struck"]


def needs_disks() -> None:
    if reason := disks.lacking():
        pytest.skip(f"nodes need disks of their own, and {reason}")


def _frozen(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def test_disks_of_their_own_are_cut_and_full_and_stall_and_are_plain_directories_at_the_end(tmp_path: Path):
    needs_disks()
    home = tmp_path / "lab"
    faults = "power-cut,disk-fails,disk-full,disk-stalls"
    options = ("--minutes", "0.4", "--seed", "3", "--faults", faults, "--json", "--keep", "--dir", str(home))
    tree = json.loads(verdict(tmp_path, *options))
    assert (tree["recipients"]["lost"], tree["recipients"]["unexpected"]) == (0, 0)
    assert len(tree["faults"]) > 1
    assert str(home) not in Path("/proc/self/mounts").read_text("utf-8")
    assert sorted(path.name for path in (home / "nodes").iterdir()) == ["mx1", "mx2", "mx3"]
    assert all((home / "nodes" / name / "data" / FILE).exists() for name in ("mx1", "mx2", "mx3"))
    assert not (home / "equipment").exists()


def test_who_looks_around_in_the_directory_of_a_node_does_no_harm(tmp_path: Path):
    needs_disks()
    home = tmp_path / "lab"
    node, options = home / "nodes" / "mx2", ("--keep", "--dir", str(home))
    with chaos(tmp_path, "--minutes", "0.2", "--faults", "disk-low", *options) as running:
        wait_until((node / "data" / FILE).exists, "mx2 has a database", deadline=60)
        with subprocess.Popen(["sleep", "400"], cwd=node) as looking:
            try:
                told, errors = running.communicate(timeout=200)
            finally:
                looking.kill()
    assert running.returncode == 0, told + errors
    assert "lost 0, unexpected 0, duplicates 0" in told
    assert (node / "data" / FILE).exists()
    assert str(home) not in Path("/proc/self/mounts").read_text("utf-8")


@pytest.mark.skipif(bool(clocks.lacking()), reason=clocks.lacking())
def test_a_clock_that_is_set_shows_in_the_logs_and_does_no_harm(tmp_path: Path):
    home = tmp_path / "lab"
    faults = "clock,clock-start,clock-away"
    told = verdict(
        tmp_path, "--minutes", "0.6", "--seed", "5", "--faults", faults, "--keep", "--dir", str(home)
    )
    assert "lost 0, unexpected 0, duplicates 0" in told
    rows = [row for node in (home / "tracking").iterdir() for row in tracked(node)]
    off = [datetime.fromisoformat(row["date-time"]) - datetime.now(UTC) for row in rows]
    assert any(abs(by) > timedelta(hours=2) for by in off)
    assert any(abs(by) < timedelta(minutes=10) for by in off)


@pytest.mark.skipif(bool(clocks.lacking()), reason=clocks.lacking())
def test_nothing_is_left_of_the_clocks_when_chaos_is_interrupted_at_its_start(tmp_path: Path):
    home, shared = tmp_path / "lab", Path("/dev/shm")
    with chaos(tmp_path, "--minutes", "5", "--faults", "clock", "--dir", str(home)) as running:
        began: set[int] = set()

        def keeps() -> bool:
            began.update(processes_of(home))
            return any((shared / f"faketime_shm_{pid}").exists() for pid in began)

        wait_until(keeps, "a process with a clock of its own has begun", deadline=60)
        os.kill(running.pid, signal.SIGINT)
        running.communicate(timeout=200)
    assert processes_of(home) == []
    assert [path.name for pid in began for path in shared.glob(f"*faketime_*_{pid}")] == []
