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

from shadowlab.cli import main
from shadowlab.layout import MAILBOX, lost_in
from shadowlab.ports import free_ports

pytestmark = pytest.mark.lab


def command(lab: RunningLab, *words: str, status: int = 0) -> str:
    """Type it; returns what it printed, all of it."""
    done = CliRunner().invoke(main, [*words, "--dir", str(lab.directory)])
    assert done.exit_code == status, done.output
    return done.output


def states(lab: RunningLab) -> dict[str, str]:
    tree = json.loads(command(lab, "status", "--json"))
    return {node["name"].partition(".")[0]: node["state"] for node in tree["nodes"]}


def contents(lab: RunningLab) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((lab.directory / "lab.json").read_text())
    return tree


@pytest.mark.slow
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

    for words in (("kill", "mx9"), ("wipe", "mx9"), ("cut", "mx1", "mx9")):
        assert "no node 'mx9' in this lab: it has mx1, mx2, mx3" in command(lab, *words, status=2)

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
    assert f"Audit: shadowlab audit --dir {lab.directory}" in told
    assert lost_in(lab.directory) == (database,), "what the audit is told was lost"
    assert not data.exists()
    assert not list(tracking.glob(".*")), "the log that was open is gone"
    assert (tracking / "MSGTRK-mx1.lab.test-0-1.LOG").exists(), "what was closed is there"
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


@pytest.mark.slow
def test_a_frozen_node_does_not_outlive_the_lab(lab: RunningLab):
    lab.up(nodes=2)
    lab.cluster.freeze("mx2")
    assert lab.cluster.down() == []
    assert processes_of(lab.directory) == []


@pytest.mark.slow
def test_a_node_that_does_not_come_up_shows_its_log_and_takes_the_others_with_it(lab: RunningLab):
    lab.up(nodes=2)
    lab.cluster.down()
    with socket.create_server(lab.cluster.node("mx2").smtp):
        told = command(lab, "up", status=1)
    assert "mx2 has ended; the last lines of" in told
    assert str(lab.cluster.node("mx2").smtp[1]) in told
    assert processes_of(lab.directory) == []


@pytest.mark.parametrize("words", [("up",), ("chaos", "--minutes", "0.1")])
def test_a_new_lab_with_a_wrong_setting_leaves_nothing_behind(lab: RunningLab, words: tuple[str, ...]):
    assert "unknown setting" in command(lab, *words, "--set", "safety_net_holdtime=1h", status=2)
    assert not lab.directory.exists()


def test_a_demonstration_that_is_interrupted_at_its_start_leaves_nothing(tmp_path: Path):
    typed = [sys.executable, "-m", "shadowlab", "demo"]
    running = subprocess.Popen(
        typed, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    wait_until(lambda: processes_of(tmp_path), "the first process is started")
    os.kill(running.pid, signal.SIGINT)
    told, _ = running.communicate(timeout=60)
    assert running.returncode == 130, told.decode()
    assert processes_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_start_leaves_no_process(lab: RunningLab, number: signal.Signals):
    heard = ["env", "--default-signal"]  # under nohup SIGHUP is ignored, by whatever is started here too
    typed = [*heard, sys.executable, "-m", "shadowlab", "up", "--dir", str(lab.directory)]
    starting = subprocess.Popen(typed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_until(lambda: processes_of(lab.directory), "the first process is started")
    os.kill(starting.pid, number)
    starting.communicate(timeout=60)
    assert starting.returncode == 130
    assert processes_of(lab.directory) == []
    assert not lab.directory.exists()


def test_a_setting_of_the_labs_own_is_told_before_anything_starts(lab: RunningLab):
    assert "each node" in command(lab, "up", "--set", "admin.listen=127.0.0.1:1", status=2)
    assert processes_of(lab.directory) == []
    assert not lab.directory.exists()


def test_a_wrong_setting_is_told_at_once_while_the_lab_runs(lab: RunningLab):
    lab.up(nodes=1)
    before = lab.cluster.node("mx1").config.read_text()
    told = command(lab, "up", "--set", "wrongkey=7", "--set", "drain_timeout=soon", status=2)
    assert told.splitlines() == [
        "wrongkey = 7 (--set): unknown setting; allowed: the keys in docs/reference/settings.md",
        'drain_timeout = "soon" (--set): not a duration; allowed: a duration such as 500ms, 15s, 2m, 1h30m '
        "or 2d, from 0s to 1h",
    ]
    assert "lab down" in command(lab, "up", "--set", "drain_timeout=7s", status=1)
    assert lab.cluster.node("mx1").config.read_text() == before


@pytest.mark.slow
def test_a_new_lab_that_does_not_come_up_leaves_nothing_behind_but_what_was_there(lab: RunningLab):
    home = lab.directory / "deep" / "er"
    on_one_port = ("--set", f"receive.second.listen=127.0.0.1:{free_ports(1)[0]}")
    failed = CliRunner().invoke(main, ["up", "--dir", str(home), *on_one_port])
    assert failed.exit_code == 1
    assert "has ended; the last lines of" in failed.output
    assert processes_of(home) == []
    assert not lab.directory.exists()
    (lab.directory / "logs").mkdir(parents=True)
    (lab.directory / ".notes").write_text("mine")
    assert "has ended; the last lines of" in command(lab, "up", *on_one_port, status=1)
    assert sorted(path.name for path in lab.directory.iterdir()) == [".notes", "logs"]


@pytest.mark.parametrize("words", [("up",), ("demo",), ("chaos", "--minutes", "0.1")])
def test_a_new_lab_has_its_directory_to_itself(lab: RunningLab, words: tuple[str, ...]):
    lab.directory.mkdir()
    (lab.directory / "notes.txt").write_text("mine")
    told = command(lab, *words, status=1)
    assert "has other things in it, such as notes.txt" in told
    assert [path.name for path in lab.directory.iterdir()] == ["notes.txt"]


@pytest.mark.slow
def test_a_lab_that_was_there_keeps_everything_when_it_does_not_come_up(lab: RunningLab):
    lab.up(nodes=2)
    lab.cluster.down()
    with socket.create_server(lab.cluster.node("mx2").smtp):
        command(lab, "up", status=1)
    lab.up()


@pytest.mark.slow
def test_a_stop_that_takes_long_says_what_it_waits_for(lab: RunningLab):
    lab.up("drain_timeout=5s", nodes=2)
    lab.cluster.freeze(MAILBOX)
    lab.send(1)
    assert "waits for members and next hops that do not answer: 20 s at most" in command(lab, "stop", "mx1")
    lab.cluster.thaw(MAILBOX)


@pytest.mark.parametrize("words", [("start", "mx1"), ("down",), ("heal",), ("cut", "mx1", "mx2")])
def test_a_command_without_a_lab_makes_no_directory(lab: RunningLab, words: tuple[str, ...]):
    assert "lab up --dir" in command(lab, *words, status=1)
    assert not lab.directory.exists()


def test_without_a_lab_a_command_says_how_to_make_one(lab: RunningLab):
    assert "lab up --dir" in command(lab, "status", status=1)


@pytest.mark.slow
def test_an_audit_of_a_lab_that_lost_a_disk_needs_no_argument(
    lab: RunningLab, capfd: pytest.CaptureFixture[str]
):
    lab.up("tracking.max_file_age=2s")
    lab.cluster.refuse()
    lab.send(3)
    wait_until(lambda: list((lab.directory / "tracking" / "mx1").glob("MSGTRK*.LOG")), "it closes a log")
    database = lab.status("mx1").database_id
    command(lab, "kill", "mx1")
    assert "shadowlab audit" in command(lab, "wipe", "mx1")
    command(lab, "start", "mx1")
    lab.cluster.accept()
    wait_until(lambda: lab.status("mx3").queued == 0 == lab.status("mx3").shadow_held, "all is delivered")
    command(lab, "down")
    capfd.readouterr()
    command(lab, "audit")
    told = capfd.readouterr().out.splitlines()
    assert told[0].startswith("✓ Proven of the 3 messages"), told
    assert told[1].startswith("  not in the proof: "), told
    assert database in told[1], told
    assert (lab.directory / "audit" / "report.html").exists()
    (lab.directory / "lost-databases").unlink()
    command(lab, "audit")  # its own logs tell, too, which database is gone
