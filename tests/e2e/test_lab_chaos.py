"""A short run of chaos, as it is typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from running_lab import processes_of, wait_until

from shadowrelay.database.opening import FILE
from shadowrelay.lab import clocks, disks
from shadowrelay.lab.mail import tracked

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def chaos(tmp_path: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "shadowrelay", "lab", "chaos", *options],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_short_run_loses_nothing_and_leaves_nothing(tmp_path: Path):
    faults = "kill,disk-lost,writes-fail,slow,reset"
    running = chaos(tmp_path, "--minutes", "0.4", "--seed", "5", "--faults", faults, "--json")
    told, errors = running.communicate(timeout=200)
    assert running.returncode == 0, told + errors
    tree = json.loads(told)
    assert tree["held"]
    assert tree["seed"] == 5
    assert tree["recipients"]["delivered"] >= tree["recipients"]["acknowledged"] > 20
    assert (tree["recipients"]["lost"], tree["recipients"]["unexpected"]) == (0, 0)
    assert tree["faults"]
    assert set(tree["faults"]) <= set(faults.split(","))
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []


def test_ctrl_c_in_the_middle_of_a_fault_heals_it_and_gives_the_verdict(tmp_path: Path):
    home = tmp_path / "lab"
    running = chaos(tmp_path, "--minutes", "5", "--faults", "freeze-long", "--dir", str(home))
    try:
        wait_until(
            lambda: any(_frozen(pid) for pid in processes_of(home)), "the first node is frozen", deadline=60
        )
        os.kill(running.pid, signal.SIGINT)
        told, errors = running.communicate(timeout=200)
    finally:
        running.kill()
    assert running.returncode == 0, told + errors
    assert "Verdict (interrupted)" in told
    assert "lost 0, unexpected 0" in told
    assert processes_of(home) == []


def test_an_unknown_fault_is_refused_with_those_that_there_are(tmp_path: Path):
    told, errors = (running := chaos(tmp_path, "--faults", "earthquake")).communicate(timeout=60)
    assert running.returncode == 2
    assert "disk-lost" in told + errors


def _frozen(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def test_disks_of_their_own_are_cut_and_full_and_stall_and_are_plain_directories_at_the_end(tmp_path: Path):
    if reason := disks.lacking():
        pytest.skip(f"nodes need disks of their own, and {reason}")
    home = tmp_path / "lab"
    faults = "power-cut,disk-fails,disk-full,disk-stalls"
    options = ("--minutes", "0.4", "--seed", "3", "--faults", faults, "--json", "--keep", "--dir", str(home))
    running = chaos(tmp_path, *options)
    told, errors = running.communicate(timeout=200)
    assert running.returncode == 0, told + errors
    tree = json.loads(told)
    assert (tree["recipients"]["lost"], tree["recipients"]["unexpected"]) == (0, 0)
    assert len(tree["faults"]) > 1
    assert str(home) not in Path("/proc/self/mounts").read_text("utf-8")
    assert sorted(path.name for path in (home / "nodes").iterdir()) == ["mx1", "mx2", "mx3"]
    assert all((home / "nodes" / name / "data" / FILE).exists() for name in ("mx1", "mx2", "mx3"))
    assert not (home / "equipment").exists()


@pytest.mark.skipif(bool(clocks.lacking()), reason=clocks.lacking())
def test_a_clock_that_is_set_shows_in_the_logs_and_does_no_harm(tmp_path: Path):
    home = tmp_path / "lab"
    running = chaos(tmp_path, "--minutes", "0.3", "--faults", "clock", "--keep", "--dir", str(home))
    told, errors = running.communicate(timeout=200)
    assert running.returncode == 0, told + errors
    assert "lost 0, unexpected 0, duplicates 0" in told
    rows = [row for node in (home / "tracking").iterdir() for row in tracked(node)]
    off = [datetime.fromisoformat(row["date-time"]) - datetime.now(UTC) for row in rows]
    assert any(abs(by) > timedelta(hours=2) for by in off)
    assert any(abs(by) < timedelta(hours=1) for by in off)
