"""The lab's commands, as they are typed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from running_lab import RunningLab, processes_of, wait_until

from shadowrelay.cli import main

pytestmark = pytest.mark.lab


def command(lab: RunningLab, *words: str, status: int = 0) -> str:
    """Type it; returns what it printed, all of it."""
    done = CliRunner().invoke(main, ["lab", *words, "--dir", str(lab.directory)])
    assert done.exit_code == status, done.output
    return done.output


def states(lab: RunningLab) -> dict[str, str]:
    tree = json.loads(command(lab, "status", "--json"))
    return {node["name"].partition(".")[0]: node["state"] for node in tree["nodes"]}


def contents(lab: RunningLab) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((lab.directory / "lab.json").read_text())
    return tree


def test_a_lab_is_broken_and_healed_by_commands(lab: RunningLab):
    assert "SMTP 127.0.0.1:" in command(lab, "up", "--set", "log.level=debug")
    tree = contents(lab)
    assert [node["name"] for node in tree["nodes"]] == ["mx1.lab.test", "mx2.lab.test", "mx3.lab.test"]
    assert [node["site"] for node in tree["nodes"]] == ["site-a", "site-a", "site-b"]
    assert len({node["host"] for node in tree["nodes"]}) == 3
    assert 'level = "debug"' in Path(tree["nodes"][2]["config"]).read_text()
    assert "runs already" in command(lab, "up")
    assert contents(lab) == tree
    assert "lab down" in command(lab, "up", "--set", "log.level=info", status=1)
    assert "has 3 nodes" in command(lab, "up", "--nodes", "4", status=1)

    database = lab.status("mx1").database_id
    assert "runs: kill or stop it" in command(lab, "wipe", "mx1", status=1)
    command(lab, "kill", "mx1.lab.test")
    command(lab, "freeze", "3")
    assert states(lab) == {"mx1": "down", "mx2": "up", "mx3": "frozen"}
    assert "thaw" in command(lab, "up", status=1)
    assert "thaw it first" in command(lab, "stop", "mx3", status=1)
    assert "down already" in command(lab, "stop", "mx1", status=1)
    command(lab, "thaw", "mx3")

    data, tracking = Path(tree["nodes"][0]["data_dir"]), Path(tree["nodes"][0]["tracking_dir"])
    assert any(data.iterdir())
    (tracking / "MSGTRK-mx1.lab.test-0-1.LOG").touch()
    told = command(lab, "wipe", "mx1")
    assert f"database {database} is gone" in told
    assert f"--lost {database}" in told
    assert not data.exists()
    assert [path.name for path in tracking.iterdir()] == ["MSGTRK-mx1.lab.test-0-1.LOG"]
    assert "database" not in command(lab, "wipe", "mx1"), "there is none any more"
    assert "answers" in command(lab, "start", "mx1")
    assert "runs already" in command(lab, "start", "mx1")

    command(lab, "mailbox", "refuse")
    table = command(lab, "status")
    assert "refuses mail" in table
    assert len([line for line in table.splitlines() if line.startswith("mx") and " up " in line]) == 3
    command(lab, "mailbox", "accept")

    command(lab, "stop", "mx2")
    assert states(lab)["mx2"] == "down"
    command(lab, "down")
    assert processes_of(lab.directory) == []
    assert set(states(lab).values()) == {"down"}


def test_a_frozen_node_does_not_outlive_the_lab(lab: RunningLab):
    lab.up(nodes=2)
    lab.cluster.freeze("mx2")
    assert lab.cluster.down() == []
    assert processes_of(lab.directory) == []


def test_a_node_that_does_not_come_up_shows_its_log_and_takes_the_others_with_it(lab: RunningLab):
    lab.up(nodes=2)
    lab.cluster.down()
    with socket.create_server(lab.cluster.node("mx2").smtp):
        told = command(lab, "up", status=1)
    assert "mx2 has ended; the last lines of" in told
    assert str(lab.cluster.node("mx2").smtp[1]) in told
    assert processes_of(lab.directory) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_leaves_no_process(lab: RunningLab, number: signal.Signals):
    typed = [sys.executable, "-m", "shadowrelay", "lab", "up", "--dir", str(lab.directory)]
    starting = subprocess.Popen(typed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_until(lambda: processes_of(lab.directory), "the first process is started")
    os.kill(starting.pid, number)
    starting.communicate(timeout=60)
    assert starting.returncode == 1
    assert processes_of(lab.directory) == []


def test_a_wrong_setting_is_told_before_anything_starts(lab: RunningLab):
    assert "unknown setting" in command(lab, "up", "--set", "safety_net_holdtime=1h", status=2)
    assert "each node" in command(lab, "up", "--set", "admin.listen=127.0.0.1:1", status=1)
    assert processes_of(lab.directory) == []


def test_without_a_lab_a_command_says_how_to_make_one(lab: RunningLab):
    assert "lab up --dir" in command(lab, "status", status=1)
