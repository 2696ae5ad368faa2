"""A node as a process: how it starts, how it stops, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import smtplib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from scripted_hop import ScriptedHop

from shadowlab.ports import free_ports
from shadowrelay.database.opening import CannotOpen, lock
from shadowrelay.settings import to_toml

pytestmark = pytest.mark.lab

MESSAGE = b"Subject: hello\r\n\r\nbody\r\n"


class Process:
    """``shadowrelay run`` with the settings of a node alone. Its 250s wait for ``delay`` at most."""

    def __init__(self, directory: Path, *, delay: str = "30s", **changes: Any) -> None:
        self.smtp, self.admin, hop = free_ports(3)
        self.directory = directory
        self.file = directory / "node.toml"
        tree: dict[str, Any] = {
            "name": "mx1.example.org",
            "data_dir": str(directory / "data"),
            "relay_networks": ["127.0.0.0/8"],
            "minimum_free_disk": 0,
            "drain_timeout": "5s",
            "receive": {
                "default": {
                    "listen": f"127.0.0.1:{self.smtp}",
                    "tarpit_interval": "0s",
                    "max_acknowledgement_delay": delay,
                }
            },
            "routes": {"out": {"domains": ["*"], "host": "127.0.0.1", "port": hop, "tls": "none"}},
            "admin": {"listen": f"127.0.0.1:{self.admin}"},
            "log": {"format": "json"},
        }
        self.file.write_text(to_toml(tree | changes))
        self.said = directory / "said"
        self.running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.said.open("ab") as said:
            self.running = subprocess.Popen(
                [sys.executable, "-m", "shadowrelay", "run", str(self.file)], stdout=said, stderr=said
            )

    def up(self, *, limits: Mapping[int, tuple[int, int]] | None = None) -> None:
        """Start, and wait until it takes mail. ``limits`` of its resources: set while it is still loading, as
        nothing may run between fork and exec in a process with threads.
        """
        self.start()
        assert self.running
        for which, limit in (limits or {}).items():
            resource.prlimit(self.running.pid, which, limit)
        wait_for(lambda: "node_started" in self.text())

    def text(self) -> str:
        return self.said.read_text()

    def log(self) -> list[str]:
        """The events of its diagnostic log."""
        return [json.loads(line)["event"] for line in self.text().splitlines() if line.startswith("{")]

    def signal(self, number: signal.Signals) -> None:
        assert self.running
        self.running.send_signal(number)

    def ended(self, within: float = 30.0) -> int:
        assert self.running
        return self.running.wait(within)

    def client(self) -> smtplib.SMTP:
        return smtplib.SMTP("127.0.0.1", self.smtp, timeout=10)

    def tracked(self) -> str:
        return "".join(file.read_text() for file in self.tracking("*"))

    def tracking(self, pattern: str) -> list[Path]:
        return list((self.directory / "data" / "tracking").glob(pattern))


def wait_for(condition: Callable[[], Any], within: float = 60.0) -> None:
    until = time.monotonic() + within
    while not condition():
        assert time.monotonic() < until, "it did not come to that in time"
        time.sleep(0.02)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    yield process
    if process.running and process.running.poll() is None:
        process.running.kill()
        process.running.wait()


@pytest.mark.slow
async def test_a_node_that_is_killed_knows_for_whom_its_mailbox_server_had_answered(tmp_path: Path) -> None:
    answers = [b"250 2.1.5 first\r\n", b"250 2.1.5 second\r\n"]  # for one of two, then for the other one
    async with ScriptedHop(DOT=answers) as hop:
        route = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none", "protocol": "lmtp"}
        node = Process(tmp_path, delay="0s", routes={"in": route})
        try:
            await asyncio.to_thread(node.up)
            await asyncio.to_thread(send, node, "b@example.net", "c@example.net")
            await asyncio.to_thread(wait_for, lambda: len(hop.contents) == 1)
            await asyncio.to_thread(wait_for, lambda: "DELIVER" in node.tracked())
            node.signal(signal.SIGKILL)
            await asyncio.to_thread(node.ended)
            await asyncio.to_thread(node.start)
            await asyncio.to_thread(wait_for, lambda: len(hop.contents) == 2)
        finally:
            node.signal(signal.SIGKILL)
            await asyncio.to_thread(node.ended)
    rcpts = [command.split(" ")[1] for command in hop.commands if command.startswith("RCPT")]
    assert rcpts == ["TO:<b@example.net>", "TO:<c@example.net>", "TO:<c@example.net>"]


def send(node: Process, *recipients: str) -> None:
    with node.client() as client:
        client.sendmail("a@example.org", recipients, MESSAGE)


def in_transaction(client: smtplib.SMTP) -> None:
    """Up to the middle of the content."""
    client.ehlo()
    client.mail("a@example.org")
    client.rcpt("b@example.net")
    assert client.docmd("DATA")[0] == 354
    client.send(MESSAGE)


@pytest.mark.slow
def test_a_term_lets_a_transaction_finish_and_turns_others_away(node: Process) -> None:
    node.up()
    busy, idle = node.client(), node.client()
    idle.ehlo()
    in_transaction(busy)
    node.signal(signal.SIGTERM)
    assert idle.getreply()[0] == 421
    wait_for(lambda: "node_stopping" in node.text())
    with pytest.raises(smtplib.SMTPConnectError) as refused:
        node.client()
    assert refused.value.smtp_code == 421
    node.signal(signal.SIGTERM)  # a second one does not hurry it
    busy.send(b".\r\n")
    assert busy.getreply()[0] == 250
    assert busy.getreply()[0] == 421
    assert node.ended() == 0
    assert "node_stopped" in node.log()
    assert node.tracking("MSGTRK-*.LOG")
    assert not node.tracking(".*.open")
    log = b"".join(path.read_bytes() for path in node.tracking("MSGTRK-*.LOG"))
    assert log.count(b",RECEIVE,") == 1


@pytest.mark.slow
def test_a_transaction_that_takes_too_long_is_cut_off_at_the_end_of_the_drain(tmp_path: Path) -> None:
    node = Process(tmp_path, drain_timeout="1s")
    node.up()
    busy = node.client()
    in_transaction(busy)
    node.signal(signal.SIGINT)
    assert busy.getreply()[0] == 421
    assert node.ended() == 0
    assert "RECEIVE" not in "".join(path.read_text() for path in node.tracking("MSGTRK-*.LOG"))


def test_what_was_acknowledged_is_there_after_a_kill(node: Process) -> None:
    node.up()
    with node.client() as client:
        client.sendmail("a@example.org", ["b@example.net"], MESSAGE)
        node.signal(signal.SIGKILL)
    assert node.ended() == -signal.SIGKILL
    node.said.unlink()
    node.up()
    node.signal(signal.SIGTERM)
    assert node.ended() == 0
    log = b"".join(path.read_bytes() for path in node.tracking("MSGTRK-*.LOG"))
    assert log.count(b",RECEIVE,") == 1
    assert b"BOOTLOADER,LOAD" in log


def test_a_node_may_have_as_many_descriptors_as_the_administrator_allows(node: Process) -> None:
    node.up(limits={resource.RLIMIT_NOFILE: (256, 1500)})
    assert node.running
    assert resource.prlimit(node.running.pid, resource.RLIMIT_NOFILE) == (1500, 1500)


@pytest.mark.parametrize("port", ["smtp", "admin"])
@pytest.mark.slow
def test_a_port_in_use_is_told(node: Process, port: str) -> None:
    with socket.create_server(("127.0.0.1", getattr(node, port))):
        node.start()
        assert node.ended() == 1
    assert "address already in use" in node.text().lower()
    assert f"Error: {'receive.default' if port == 'smtp' else port}.listen: cannot listen on" in node.text()
    assert str(getattr(node, port)) in node.text()
    assert "Traceback" not in node.text()


def test_wrong_settings_are_told_before_anything_is_touched(tmp_path: Path) -> None:
    node = Process(tmp_path, drain_timeout="soon")
    node.start()
    assert node.ended() == 2
    assert "drain_timeout" in node.text()
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_a_data_directory_in_use_is_told(node: Process) -> None:
    node.up()
    other = Process(node.directory)  # the same data directory, other ports
    other.said = node.directory / "other"
    other.start()
    assert other.ended() == 1
    assert "another process uses the data directory" in other.text()
    assert "Traceback" not in other.text()
    node.signal(signal.SIGTERM)
    assert node.ended() == 0
    try:
        os.close(lock(node.directory / "data"))
    except CannotOpen:
        pytest.fail("the directory is still locked")


def send_until_it_fails(node: Process) -> int:
    """How many messages were acknowledged."""
    for acknowledged in range(200):
        try:
            with node.client() as client:
                client.sendmail("a@example.org", ["b@example.net"], MESSAGE + b"x\r\n" * 20_000)
        except (smtplib.SMTPException, OSError):
            return acknowledged
    raise AssertionError("it never failed")


@pytest.mark.slow
def test_a_disk_that_fails_ends_the_node_with_the_reason(node: Process) -> None:
    """It exits, so that the holders take over; nothing was acknowledged that is not there."""
    limit = 3_000_000
    node.up(limits={resource.RLIMIT_FSIZE: (limit, resource.RLIM_INFINITY)})
    acknowledged = send_until_it_fails(node)
    assert node.ended() == 1
    assert "Error: transport database" in node.text()
    assert "the disk reports an I/O error" in node.text()
    node.said.unlink()
    node.up()
    node.signal(signal.SIGTERM)
    assert node.ended() == 0
    log = b"".join(path.read_bytes() for path in node.tracking("MSGTRK-*.LOG"))
    assert acknowledged > 5
    assert log.count(b",RECEIVE,") >= acknowledged


def test_a_tracking_directory_that_cannot_be_written_ends_the_node_and_is_named(tmp_path: Path) -> None:
    """A directory in which nobody may create a file, not root either."""
    node = Process(tmp_path, tracking={"directory": "/proc/self/fdinfo"})
    node.start()
    assert node.ended() == 1
    assert "Error: tracking.directory: cannot write to /proc/self/fdinfo: " in node.text()
    assert "start the node again" in node.text()


def test_a_corrupt_database_is_set_aside_loudly(node: Process) -> None:
    (node.directory / "data").mkdir()
    (node.directory / "data" / "transport.db").write_bytes(b"not a database at all\n" * 500)
    node.up()
    assert "corrupt_database_set_aside" in node.log()
    assert list((node.directory / "data").glob("transport.db.corrupt-*"))
    node.signal(signal.SIGTERM)
    assert node.ended() == 0
