from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shadowlab import processes
from shadowlab.errors import LabError
from shadowlab.guard import locked, terminable, undisturbed
from shadowlab.processes import Process, ProcessState


@pytest.fixture
def mailbox(tmp_path: Path) -> Iterator[Process]:
    """A mailbox server that is starting."""
    arguments = ["shadowmailbox", "--dir", str(tmp_path / "mail"), "--inside", "127.0.0.1:0"]
    started = processes.start([*arguments, "--outside", "127.0.0.1:0"], tmp_path / "logs" / "mailbox.log")
    yield started
    started.signal(signal.SIGKILL)
    assert started.wait(5)


def test_a_process_is_frozen_thawed_and_killed(mailbox: Process):
    assert mailbox.state is ProcessState.RUNNING
    assert mailbox.signal(signal.SIGSTOP)
    assert mailbox.wait_for(ProcessState.FROZEN, 5)
    assert not mailbox.wait(0.01)
    assert mailbox.signal(signal.SIGCONT)
    assert mailbox.wait_for(ProcessState.RUNNING, 5)
    mailbox.signal(signal.SIGKILL)
    assert mailbox.wait(5)
    assert mailbox.state is ProcessState.GONE
    assert not mailbox.signal(signal.SIGTERM)


def test_a_process_has_a_session_of_its_own_and_no_settings_from_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SHADOWRELAY_NAME", "intruder.example.net")
    started = processes.start(["shadowmailbox", "--dir", str(tmp_path)], tmp_path / "log")
    assert started.pid is not None
    assert os.getsid(started.pid) == started.pid
    environ = Path(f"/proc/{started.pid}/environ").read_bytes()
    started.signal(signal.SIGKILL)
    assert started.wait(5)
    assert b"PATH=" in environ
    assert b"SHADOWRELAY_" not in environ


def test_a_recycled_pid_is_never_signalled(mailbox: Process):
    with subprocess.Popen(["/bin/sleep", "60"]) as stranger:
        recycled = Process(stranger.pid, mailbox.arguments)
        assert recycled.state is ProcessState.GONE
        assert not recycled.signal(signal.SIGKILL)
        assert not recycled.forbid_writes()
        assert recycled.wait(0)
        assert stranger.poll() is None
        assert resource.prlimit(stranger.pid, resource.RLIMIT_FSIZE)[0] != 0
        stranger.kill()


def test_the_process_of_another_lab_is_a_stranger(mailbox: Process, tmp_path: Path):
    other = Process(mailbox.pid, (*mailbox.arguments[:3], str(tmp_path / "other"), *mailbox.arguments[4:]))
    assert not other.signal(signal.SIGKILL)
    assert mailbox.alive


@pytest.mark.parametrize("pid", [None, 2**22 - 1])
def test_a_pid_that_there_is_not_is_gone(pid: int | None):
    gone = Process(pid, ("shadowrelay", "run", "/nowhere"))
    assert gone.state is ProcessState.GONE
    assert not gone.signal(signal.SIGKILL)
    assert gone.wait(0)


def test_a_child_that_has_ended_is_gone_before_anybody_waits_for_it(tmp_path: Path):
    ended = processes.start(["shadowrelay", "--version"], tmp_path / "log")
    deadline = time.monotonic() + 30
    while ended.alive and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ended.state is ProcessState.GONE
    assert ended.wait(1)


def test_only_the_last_lines_of_this_start_are_shown(tmp_path: Path):
    log = tmp_path / "log"
    assert processes.last_lines(log, since=0) == []
    log.write_text("".join(f"before {number}\n" for number in range(1000)))
    since = processes.size(log)
    with log.open("a") as file:
        file.write("".join(f"line {number}\n" for number in range(20)))
    assert processes.last_lines(log, since=since) == [f"line {number}" for number in range(5, 20)]
    assert processes.last_lines(log, since=processes.size(log)) == []


def test_commands_on_one_lab_wait_for_one_another(tmp_path: Path):
    taking = (
        "import sys, pathlib\n"
        "from shadowlab.guard import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): print('mine', flush=True)\n"
    )
    command = [sys.executable, "-c", taking, str(tmp_path / "lab")]
    with locked(tmp_path / "lab"):
        other = subprocess.Popen(command, stdout=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            other.communicate(timeout=0.5)
    assert other.communicate(timeout=10)[0] == b"mine\n"


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match="file"), locked(tmp_path / "file" / "lab"):
        pass


def test_ctrl_c_waits_until_a_process_is_written_down():
    done = []

    def writing_down() -> None:
        with undisturbed():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            done.append("written")

    with pytest.raises(KeyboardInterrupt):
        writing_down()
    assert done == ["written"]


def test_sigterm_ends_a_command_as_ctrl_c_does():
    def command() -> None:
        with terminable():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        command()
    assert signal.getsignal(signal.SIGTERM) is before
