"""No signal but SIGKILL ends a service without a word, and Ctrl-C shows no traceback."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shadowlab.ports import free_ports
from shadowrelay.settings import to_toml
from tests.service.test_service import wait_for

pytestmark = pytest.mark.lab

# What the kernel does with a process that says nothing about it, by signal(7).
STOPPING = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGPWR, signal.SIGXCPU}
BROKEN = {
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGABRT,
    signal.SIGSYS,
    signal.SIGTRAP,
}
HALTING = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
OTHERS = set(signal.valid_signals()) - STOPPING - BROKEN - HALTING - {signal.SIGKILL}

AT_IMPORT = """
import os, signal, sys
from importlib import import_module

program, at, number = sys.argv.pop(1), sys.argv.pop(1), int(sys.argv.pop(1))

class Signal:
    def find_spec(self, name, *_):
        if name == at:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), number)

signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the shell said
sys.meta_path.insert(0, self := Signal())
import_module(f"{program}.__main__").main()
raise SystemExit(f"{at} was not imported")
"""


class Service:
    """A process, and what it says."""

    def __init__(self, directory: Path, ready: str, program: str, *arguments: object) -> None:
        self.said = directory / "said"
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", program, *map(str, arguments)], stdout=said, stderr=said
            )
        wait_for(lambda: ready in self.text())

    def text(self) -> str:
        return self.said.read_text()

    def told(self, event: str) -> list[str]:
        lines = [json.loads(line) for line in self.text().splitlines() if line.startswith("{")]
        return [line["signal"] for line in lines if line["event"] == event]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def node(directory: Path) -> Service:
    smtp, admin, hop = free_ports(3)
    settings = {
        "name": "mx1.example.org",
        "data_dir": str(directory / "data"),
        "minimum_free_disk": 0,
        "drain_timeout": "1s",
        "receive": {"default": {"listen": f"127.0.0.1:{smtp}"}},
        "routes": {"out": {"domains": ["*"], "host": "127.0.0.1", "port": hop, "tls": "none"}},
        "admin": {"listen": f"127.0.0.1:{admin}"},
        "log": {"format": "json"},
    }
    (directory / "node.toml").write_text(to_toml(settings))
    return Service(directory, "node_started", "shadowrelay", "run", directory / "node.toml")


def mailbox(directory: Path) -> Service:
    options = ["--dir", directory / "mail", "--inside", "127.0.0.1:0", "--outside", "127.0.0.1:0"]
    return Service(directory, "mailbox_server_ready", "shadowmailbox", *options)


SERVICES = pytest.mark.parametrize("service", [node, mailbox], ids=lambda one: one.__name__)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[Callable[[Path], Service]], Service]]:
    with ExitStack() as ends:

        def start(service: Callable[[Path], Service]) -> Service:
            running = service(tmp_path)
            ends.callback(running.end)
            return running

        yield start


def name(number: int) -> str:
    return (
        signal.Signals(number).name
        if number in iter(signal.Signals)
        else f"SIGRTMIN+{number - signal.SIGRTMIN}"
    )


@SERVICES
def test_a_hangup_and_every_other_signal_that_would_kill_a_service_is_logged_and_changes_nothing(
    started, service: Callable[[Path], Service]
) -> None:
    running = started(service)
    harmless = {
        signal.SIGPIPE,
        signal.SIGXFSZ,
        signal.SIGCHLD,
        signal.SIGURG,
        signal.SIGWINCH,
        signal.SIGCONT,
    }
    for number in sorted(OTHERS):
        running.process.send_signal(number)
    heard = {signal.SIGHUP} if service is node else set()  # a node reads its settings again
    expected = sorted(map(name, OTHERS - harmless - heard))
    wait_for(lambda: sorted(running.told("signal_ignored")) == expected)
    assert running.told("reload_signal") == [*map(name, heard)]
    assert {"SIGUSR1", "SIGUSR2", "SIGALRM", "SIGIO", "SIGRTMAX"} <= set(expected)
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(20) == 0


@SERVICES
@pytest.mark.parametrize("number", sorted(STOPPING), ids=name)
@pytest.mark.slow
def test_what_stops_a_service_is_logged_before_it_stops_in_order(
    started, service: Callable[[Path], Service], number: int
) -> None:
    running = started(service)
    running.process.send_signal(number)
    assert running.process.wait(20) == 0
    assert running.told("stop_signal") == [name(number)]


@pytest.mark.parametrize("number", sorted(BROKEN), ids=name)
def test_what_breaks_a_service_shows_where_it_was(started, number: int) -> None:
    running = started(mailbox)
    running.process.send_signal(number)
    assert running.process.wait(20) == -number
    assert "most recent call first" in running.text()


def while_loading(
    at: str, number: int, *arguments: object, program: str = "shadowrelay"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", AT_IMPORT, program, at, str(int(number)), *map(str, arguments)],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("program", "at"),
    [
        ("shadowrelay", "shadowrelay.signals"),
        ("shadowrelay", "click"),
        ("shadowrelay", "shadowrelay.cli.status"),
        ("shadowrelay", "http.client"),
        ("shadowlab", "shadowrelay.signals"),
        ("shadowlab", "click"),
        ("shadowlab", "shadowlab.cluster"),
        ("shadowmailbox", "shadowrelay.signals"),
        ("shadowmailbox", "click"),
    ],
)
def test_ctrl_c_while_a_command_is_loaded_shows_no_traceback(program: str, at: str) -> None:
    done = while_loading(
        at, signal.SIGINT, "show" if program == "shadowmailbox" else "status", program=program
    )
    assert (done.returncode, done.stderr, done.stdout) in {
        (130, "interrupted\n", ""),
        (-signal.SIGINT, "", ""),  # before there was anything that could say so; a shell shows 130
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT], ids=name)
def test_a_service_that_is_ended_while_it_is_loaded_says_by_what(tmp_path: Path, number: int) -> None:
    done = while_loading("structlog", number, "run", tmp_path / "node.toml")
    assert (done.returncode, done.stderr) == (-number, f"ended by {name(number)}\n")


@pytest.mark.slow
def test_a_hangup_while_a_service_is_loaded_is_ignored(tmp_path: Path) -> None:
    done = while_loading("structlog", signal.SIGHUP, "run", tmp_path / "node.toml")
    assert done.returncode == 2, "there are no settings"
    assert done.stderr.startswith("SIGHUP ignored\n")
