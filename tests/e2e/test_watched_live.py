"""Nodes watched while they work: their event streams over a restart, and ``shadowrelay top``."""

from __future__ import annotations

import os
import threading
import time

import pytest
from click.testing import CliRunner
from running_lab import RunningLab, wait_until

from shadowrelay.admin.client import AdminClient, ApiError, NodeEvent
from shadowrelay.cli import main

pytestmark = pytest.mark.lab

TOKEN = "whoever-has-it-may-operate"


class Listener:
    """A program that listens to a node's events, and asks again with its last id."""

    def __init__(self, url: str) -> None:
        self.client = AdminClient(url, TOKEN, 20)
        self.heard: list[NodeEvent] = []
        self._last = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        wait_until(lambda: self.heard, "the stream begins")

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                for event in self.client.events(after=self._last):
                    self.heard.append(event)
                    self._last = event.id or self._last
            except ApiError:
                pass
            self._stop.wait(0.1)

    def rows(self, event: str = "") -> list[NodeEvent]:
        told = [one for one in list(self.heard) if not one.name and "sequence" in one.data]
        return [one for one in told if not event or one.data["event-id"] == event]

    def named(self, name: str) -> list[NodeEvent]:
        return [one for one in list(self.heard) if one.name == name]

    def close(self) -> None:
        self._stop.set()


@pytest.mark.slow
def test_who_listens_to_a_node_that_is_restarted_hears_each_event_once_and_top_fits_its_terminal(
    lab: RunningLab,
) -> None:
    lab.up(f"admin.token={TOKEN}", nodes=2)
    node = lab.cluster.node("mx1")
    listener = Listener(node.admin)
    lab.send(5)
    wait_until(lambda: len(listener.rows("RECEIVE")) == 5, "mail is told")
    began = time.monotonic()
    lab.cluster.stop("mx1")
    stopped = time.monotonic() - began
    wait_until(lambda: listener.named("end"), "the stream says that the node stops")
    lab.cluster.start("mx1")
    wait_until(lambda: len(listener.named("begin")) >= 2, "the listener is back")
    lab.send(3)
    wait_until(lambda: len(listener.rows("RECEIVE")) == 8, "mail is told again")
    listener.close()
    sequences = [one.data["sequence"] for one in listener.rows()]
    assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))
    assert not listener.named("gap")
    assert len({one.data["incarnation"] for one in listener.rows()}) == 2
    assert stopped < 5, "a listener does not hold up the stop"
    for width in (80, 100, 200):
        environ = {"SHADOWRELAY_ADMIN_TOKEN": TOKEN, "COLUMNS": str(width), "PATH": os.environ["PATH"]}
        asked = ["top", "--once", "--interval", "300ms", "--admin", node.admin]
        done = CliRunner(env=environ).invoke(main, [*asked, "--node", lab.cluster.node("mx2").admin])
        assert done.exit_code == 0, done.output
        lines = done.stdout.splitlines()
        assert max(map(len, lines)) <= width
        for name in ("mx1.lab.test", "mx2.lab.test"):
            assert [line for line in lines if line.startswith(name) and " ready " in line]
    lab.settle()
    lab.verify()
