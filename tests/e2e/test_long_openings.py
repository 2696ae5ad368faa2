"""Queues whose opening takes longer than the time span: nobody is taken for dead, and all answer."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest
from full_queues import fill
from running_lab import RunningLab, wait_until

from shadowlab import layout, processes, starting

pytestmark = [pytest.mark.lab, pytest.mark.slow]

MESSAGES = 20_000  # on each node, and as many held for the other one
PATIENCE = 120.0  # seconds
SILENCE = 2.0  # seconds: one on a machine that nobody else uses
NODES = ("mx1", "mx2")


@pytest.fixture
def full(lab: RunningLab) -> RunningLab:
    """Two nodes that were killed, with long queues, and a time span shorter than their opening took once."""
    return filled(lab, span=2)


def filled(lab: RunningLab, span: int) -> RunningLab:
    lab.up(f"shadow_resubmit_time_span={span}s", nodes=2)
    lab.cluster.refuse()
    for name in NODES:
        lab.cluster.kill(name)
    one, other = (lab.cluster.node(name).data_dir / "transport.db" for name in NODES)
    fill(one, other, MESSAGES)
    fill(other, one, MESSAGES)
    return lab


def begin(lab: RunningLab, *names: str) -> None:
    """Start nodes side by side, and wait for nothing."""
    at = lab.cluster.layout
    for name in names:
        process = processes.start(starting.process_of(at, name).arguments, at.log(name))
        at = at.with_pid(name, process.pid or 0)
    layout.save(at)


class Asked:
    """The longest that an answer took, by node and what was asked; from the first answer on."""

    def __init__(self, lab: RunningLab) -> None:
        self.longest: dict[tuple[str, str], float] = {}
        self._urls = {name: lab.cluster.node(name).admin for name in NODES}
        self._over = threading.Event()

    def ask(self, name: str, path: str) -> None:
        while not self._over.wait(0.1):
            began = time.monotonic()
            try:
                with urllib.request.urlopen(f"{self._urls[name]}{path}", timeout=PATIENCE) as answer:
                    answer.read()
            except urllib.error.HTTPError:
                pass  # 503 is an answer
            except OSError:
                assert (name, path) not in self.longest, f"{name} answers no more"
                continue
            took = time.monotonic() - began
            self.longest[name, path] = max(took, self.longest.get((name, path), 0.0))

    @contextmanager
    def all_the_time(self) -> Iterator[None]:
        paths = ("/healthz/live", "/healthz/ready", "/api/v1/status", "/metrics")
        threads = [threading.Thread(target=self.ask, args=(name, path)) for name in NODES for path in paths]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()


def moment(lab: RunningLab, name: str, event: str, **fields: str) -> float:
    """When a node said that last."""
    said = [line for line in lab.said(name, event) if fields.items() <= line.items()]
    return datetime.fromisoformat(said[-1]["timestamp"]).timestamp()


def is_open(lab: RunningLab, name: str, openings: int = 1) -> bool:
    return len(lab.said(name, "opening_ended")) >= openings + 1  # and that of the empty database


def nobody_was_taken_for_dead(lab: RunningLab) -> None:
    for name in NODES:
        assert lab.said(name, "promotion_pending") == []
        assert lab.events(name, "RESUBMIT") == []
        assert (lab.queued(name), lab.held(name)) == (MESSAGES, MESSAGES)


def test_two_nodes_with_long_queues_start_and_neither_is_taken_for_dead(full: RunningLab):
    lab, asked = full, Asked(full)
    begin(lab, *NODES)
    with asked.all_the_time():
        wait_until(lambda: all(is_open(lab, name) for name in NODES), "both are open", PATIENCE)
        time.sleep(3.0)  # longer than the time span
    for name in NODES:
        greets = moment(lab, name, "connector_listening", connector="members")
        assert greets - moment(lab, name, "database_opened") < 1.0
        assert greets < moment(lab, name, "opening_ended")
        assert moment(lab, name, "connector_listening", connector="default") > moment(
            lab, name, "opening_ended"
        )
    assert len(asked.longest) == 8
    assert max(asked.longest.values()) < SILENCE, asked.longest
    nobody_was_taken_for_dead(lab)


def test_a_node_with_a_long_queue_starts_beside_one_that_lives_and_is_killed_in_the_middle(lab: RunningLab):
    filled(lab, span=10)  # longer than two processes take to begin: what is killed is silent meanwhile
    begin(lab, *NODES)
    wait_until(lambda: all(is_open(lab, name) for name in NODES), "both are open", PATIENCE)
    lab.cluster.kill("mx1")
    begin(lab, "mx1")
    wait_until(lambda: len(lab.said("mx1", "database_opened")) == 3, "it opens its database", PATIENCE)
    lab.cluster.kill("mx1")
    asked = Asked(lab)
    with asked.all_the_time():
        begin(lab, "mx1")
        wait_until(lambda: is_open(lab, "mx1", 2), "it is open", PATIENCE)
        time.sleep(11.0)
    assert max(asked.longest.values()) < SILENCE, asked.longest
    nobody_was_taken_for_dead(lab)
    assert len(lab.said("mx1", "opening_ended")) == 3, "the one that was killed never ended"


def test_a_node_that_is_stopped_in_the_middle_of_its_opening_ends_at_once(full: RunningLab):
    lab = full
    begin(lab, "mx1")
    wait_until(lambda: len(lab.said("mx1", "database_opened")) == 2, "it opens its database", PATIENCE)
    lab.cluster.stop("mx1")
    assert not is_open(lab, "mx1")
    assert lab.said("mx1", "node_stopped")
