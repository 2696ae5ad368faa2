"""A node of several workers as processes: how they start, end, come back, and leave."""

from __future__ import annotations

import json
import os
import re
import signal
import smtplib
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from shadowlab.ports import free_ports
from shadowrelay.settings import to_toml

pytestmark = pytest.mark.lab


def wait_for(condition: Callable[[], Any], within: float = 60.0) -> Any:
    until = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < until, "it did not come to that in time"
        time.sleep(0.02)
    return found


def ports_in_a_row(count: int) -> int:
    """The first of free ports that follow each other."""
    for _ in range(50):
        (first,) = free_ports(1)
        taken = [socket.socket() for _ in range(count)]
        try:
            for number, one in enumerate(taken):
                one.bind(("127.0.0.1", first + number))
            return first
        except OSError:
            continue
        finally:
            for one in taken:
                one.close()
    raise AssertionError("no free ports in a row")


class Sink(socketserver.ThreadingTCPServer):
    """A next hop that takes all mail, from the moment it is made. ``subjects``: of what it took."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int) -> None:
        self.subjects: list[str] = []
        super().__init__(("127.0.0.1", port), _SinkSession)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class _SinkSession(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(b"220 sink.test\r\n")
        while line := self.rfile.readline():
            verb = line[:4].upper()
            if verb == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                content = b""
                while (line := self.rfile.readline()) not in (b".\r\n", b""):
                    content += line
                (subject,) = re.findall(rb"^Subject: (.*)\r$", content, re.MULTILINE)
                cast("Sink", self.server).subjects.append(subject.decode())
            self.wfile.write({b"QUIT": b"221 bye\r\n"}.get(verb, b"250 ok\r\n"))
            if verb == b"QUIT":
                return


class SupervisedNode:
    """``shadowrelay run`` with the settings of one node of several workers."""

    def __init__(self, directory: Path, workers: int, short: str = "mx1", **changes: Any) -> None:
        directory.mkdir(exist_ok=True)
        self.smtp = ports_in_a_row(6)
        self.admin = self.smtp + 1
        self.name = f"{short}.example.org"
        self.file, self.said = directory / "node.toml", directory / "said"
        self.data = directory / "data"
        self.tree: dict[str, Any] = {
            "name": self.name,
            "workers": workers,
            "data_dir": str(self.data),
            "relay_networks": ["127.0.0.0/8"],
            "minimum_free_disk": 0,
            "drain_timeout": "5s",
            "receive": {
                "default": {
                    "listen": f"127.0.0.1:{self.smtp}",
                    "tarpit_interval": "0s",
                    "max_acknowledgement_delay": "0s",
                }
            },
            "peer": {"listen": f"127.0.0.1:{self.smtp + 2}", "externally_secured": ["127.0.0.0/8"]},
            "admin": {"listen": f"127.0.0.1:{self.admin}"},
            "log": {"format": "json"},
        } | changes
        self.write()
        self.running: subprocess.Popen[bytes] | None = None

    def write(self, **changes: Any) -> None:
        self.tree |= changes
        self.file.write_text(to_toml(self.tree))

    def start(self) -> None:
        with self.said.open("ab") as said:
            self.running = subprocess.Popen(
                [sys.executable, "-m", "shadowrelay", "run", str(self.file)], stdout=said, stderr=said
            )

    def up(self) -> None:
        self.start()
        wait_for(lambda: self.serving() >= set(range(1, self.tree["workers"] + 1)))

    def said_of(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.said.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def serving(self) -> set[int]:
        return {line["worker"] for line in self.said_of("worker_serves")}

    def pid(self, number: int) -> int:
        """That of the newest process of a worker."""
        return int([line["pid"] for line in self.said_of("worker_started") if line["worker"] == number][-1])

    def send(self, *subjects: str) -> list[str]:
        """A message of each subject, in a session of its own; all must be taken."""
        for subject in subjects:
            with smtplib.SMTP("127.0.0.1", self.smtp, timeout=10) as client:
                client.sendmail("a@client.test", ["b@inside.test"], f"Subject: {subject}\r\n\r\nbody\r\n")
        return list(subjects)

    def signal(self, number: signal.Signals) -> None:
        assert self.running
        self.running.send_signal(number)

    def ended(self, within: float = 20.0) -> int:
        assert self.running
        return self.running.wait(within)

    def end(self) -> None:
        """Whatever became of it: nothing of it runs any more."""
        if self.running and self.running.poll() is None:
            self.running.kill()
            self.running.wait()
        for pid in {line["pid"] for line in self.said_of("worker_started")} if self.said.exists() else ():
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Does a worker run under that pid?"""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return b"--worker" in words and state != "Z"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., SupervisedNode]]:
    nodes: list[SupervisedNode] = []

    def make(workers: int, short: str = "mx1", **changes: Any) -> SupervisedNode:
        nodes.append(SupervisedNode(tmp_path / short, workers, short, **changes))
        return nodes[-1]

    yield make
    for node in nodes:
        node.end()


@pytest.mark.slow
def test_a_worker_that_is_killed_is_started_again_with_the_reason_and_all_end_in_order(
    made: Callable[..., SupervisedNode],
) -> None:
    node = made(2)
    node.up()
    before, other = node.pid(2), node.pid(1)
    os.kill(before, signal.SIGKILL)
    (told,) = wait_for(lambda: node.said_of("worker_ended"))
    assert (told["worker"], told["why"], told["again_in"]) == (2, "killed by SIGKILL", 1.0)
    wait_for(lambda: len(node.said_of("worker_serves")) == 3)
    assert node.pid(2) != before
    assert alive(other)
    assert node.pid(1) == other
    node.signal(signal.SIGTERM)
    assert node.ended() == 0
    assert not alive(other)
    assert not alive(node.pid(2))
    assert sorted(line["worker"] for line in node.said_of("node_stopped")) == [1, 2]
    assert [line["event"] for line in map(json.loads, node.said.read_text().splitlines()[-1:])] == [
        "supervisor_stopped"
    ]


@pytest.mark.slow
def test_workers_drain_and_end_when_their_supervisor_is_killed(made: Callable[..., SupervisedNode]) -> None:
    node = made(2)
    node.up()
    pids = [node.pid(1), node.pid(2)]
    node.signal(signal.SIGKILL)
    node.ended()
    wait_for(lambda: not any(map(alive, pids)))
    assert len(node.said_of("supervisor_gone")) == 2
    assert len(node.said_of("node_drained")) == 2


@pytest.mark.slow
def test_a_worker_that_is_frozen_is_killed_after_a_minute_and_serves_again(
    made: Callable[..., SupervisedNode],
) -> None:
    node = made(2)
    node.up()
    frozen, other = node.pid(2), node.pid(1)
    os.kill(frozen, signal.SIGSTOP)
    (told,) = wait_for(lambda: node.said_of("worker_ended"), within=90.0)
    assert (told["worker"], told["why"]) == (2, "it hung: no answer for 60 s; killed by SIGKILL")
    wait_for(lambda: len(node.said_of("worker_serves")) == 3)
    assert node.pid(1) == other
    assert alive(other)
    node.signal(signal.SIGTERM)
    assert node.ended() == 0


def test_wrong_settings_are_told_once_and_nothing_starts(made: Callable[..., SupervisedNode]) -> None:
    node = made(3, drain_timeout="soon")
    node.start()
    assert node.ended() == 2
    assert node.said.read_text().count("drain_timeout") == 1


@pytest.mark.slow
def test_a_worker_that_cannot_go_on_waits_longer_each_time_and_its_siblings_serve(
    made: Callable[..., SupervisedNode],
) -> None:
    node = made(2)
    (node.data / "worker-2").mkdir(parents=True)
    (node.data / "worker-2" / "content").write_text("no directory")
    node.start()
    wait_for(lambda: len(node.said_of("worker_ended")) >= 2)
    wait_for(lambda: node.serving() == {1})
    told = node.said_of("worker_ended")
    assert [line["again_in"] for line in told[:2]] == [1.0, 2.0]
    assert {line["why"] for line in told} == {"exit status 1: it could not go on"}
    node.signal(signal.SIGTERM)
    assert node.ended() == 0


@pytest.mark.slow
def test_a_settings_file_that_is_wrong_at_a_reload_changes_nothing(
    made: Callable[..., SupervisedNode],
) -> None:
    node = made(2)
    node.up()
    node.write(drain_timeout="soon", workers=3)
    node.signal(signal.SIGHUP)
    wait_for(lambda: len(node.said_of("reload_refused")) == 3)  # the supervisor's, and each worker's
    assert len(node.said_of("worker_started")) == 2
    node.signal(signal.SIGTERM)
    assert node.ended() == 0


def test_a_node_without_a_supervisor_says_that_more_workers_take_a_restart(
    made: Callable[..., SupervisedNode],
) -> None:
    node = made(1)
    node.start()
    wait_for(lambda: node.said_of("node_started"))
    assert not node.said_of("supervisor_started")
    node.write(workers=2)
    node.signal(signal.SIGHUP)
    (told,) = wait_for(lambda: node.said_of("reloaded"))
    assert told["restart"] == ["workers: 1 -> 2"], told
    node.signal(signal.SIGTERM)
    assert node.ended() == 0


def next_hop(port: int) -> dict[str, Any]:
    """Settings of a node that is quick to try again."""
    return {
        "routes": {"out": {"domains": ["*"], "host": "127.0.0.1", "port": port, "tls": "none"}},
        "shadow_heartbeat_frequency": "1s",
        "orphan_check_interval": "1s",
        "queue_glitch_retry_interval": "1s",
        "transient_failure_retry_interval": "1s",
        "outbound_connection_failure_retry_interval": "1s",
    }


def two_hosts(make: Callable[..., SupervisedNode], *counts: int, hop: int) -> list[SupervisedNode]:
    """Two nodes on two machines, which know each other."""
    nodes, first = [], [ports_in_a_row(4) for _ in counts]
    for number, count in enumerate(counts, 1):
        nodes.append(
            make(
                count,
                f"mx{number}",
                host=f"rack{number}",
                peer={"listen": f"127.0.0.1:{first[number - 1]}", "externally_secured": ["127.0.0.0/8"]},
                members=[
                    {
                        "name": f"mx{other}.example.org",
                        "host": f"rack{other}",
                        "address": f"127.0.0.1:{first[other - 1]}",
                        "workers": counts[other - 1],
                    }
                    for other in range(1, len(counts) + 1)
                    if other != number
                ],
                **next_hop(hop),
                reject_message_on_shadow_failure=True,
            )
        )
    return nodes


@pytest.mark.slow
def test_a_worker_that_goes_is_emptied_to_the_other_machine_and_ends_and_nothing_is_lost(
    made: Callable[..., SupervisedNode],
) -> None:
    (hop,) = free_ports(1)  # nobody is there: all mail stays
    node, other = two_hosts(made, 2, 2, hop=hop)
    node.up()
    other.up()
    sent = node.send(*(f"here {number}" for number in range(12)))
    sent += other.send(*(f"there {number}" for number in range(12)))
    node.write(workers=1)
    node.signal(signal.SIGHUP)
    (left,) = wait_for(lambda: node.said_of("worker_left"))
    assert left["worker"] == 2
    assert not alive(node.pid(2))
    assert alive(node.pid(1))
    assert node.said_of("worker_is_emptied")[0]["left"] != {}
    assert node.said_of("redirect_begins") == []
    sent += node.send("after")
    node.write(workers=3)
    node.signal(signal.SIGHUP)
    wait_for(lambda: node.serving() == {1, 2, 3})
    with Sink(hop) as sink:
        wait_for(lambda: len(sink.subjects) >= len(sent))
        for one in (node, other):
            one.signal(signal.SIGTERM)
        assert (node.ended(), other.ended()) == (0, 0)
        assert sorted(sink.subjects) == sorted(sent)


@pytest.mark.slow
def test_where_no_other_machine_is_there_a_sibling_takes_the_queue_of_a_worker_that_goes(
    made: Callable[..., SupervisedNode],
) -> None:
    (hop,) = free_ports(1)
    node = made(3, **next_hop(hop))
    node.up()
    sent = node.send(*(f"here {number}" for number in range(12)))
    node.write(workers=1)
    node.signal(signal.SIGHUP)
    wait_for(lambda: len(node.said_of("worker_left")) == 2)
    assert {line["to"] for line in node.said_of("redirect_begins")} == {node.name}
    with Sink(hop) as sink:
        wait_for(lambda: len(sink.subjects) >= len(sent))
        node.signal(signal.SIGTERM)
        assert node.ended() == 0
        assert sorted(sink.subjects) == sorted(sent)


@pytest.mark.slow
def test_a_node_that_starts_with_fewer_workers_empties_those_of_before(
    made: Callable[..., SupervisedNode],
) -> None:
    (hop,) = free_ports(1)
    node = made(2, **next_hop(hop))
    node.up()
    sent = node.send(*(f"here {number}" for number in range(8)))
    node.signal(signal.SIGTERM)
    assert node.ended() == 0
    node.write(workers=1)
    node.start()
    wait_for(lambda: node.said_of("worker_left"))
    with Sink(hop) as sink:
        wait_for(lambda: len(sink.subjects) >= len(sent))
        node.signal(signal.SIGTERM)
        assert node.ended() == 0
        assert sorted(sink.subjects) == sorted(sent)
    node.start()
    wait_for(lambda: len(node.said_of("node_started")) > 4)
    assert len(node.said_of("supervisor_started")) == 2  # a node of one worker again
