"""Nodes are upgraded one at a time, under load, in either order: nothing is lost, and nothing taken over."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from running_lab import RunningLab, wait_until

from shadowlab.chaos.clients import ChaosClient
from shadowlab.chaos.history import History, SendOutcome
from shadowlab.chaos.running import Collector, dropped
from shadowlab.chaos.verdict import ChaosVerdict, weigh
from shadowlab.layout import MAILBOX
from shadowlab.probing import message
from shadowrelay.database.opening import CONTENT, FILE

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SCHEMA_BEFORE = 7
NODES = ("mx1", "mx2")
ENOUGH = 8  # messages that wait, of each node
CLIENTS, INTERVAL = 4, 0.2  # seconds between the messages of each


class Load:
    """Clients that send to both nodes, and all that comes of it."""

    def __init__(self, lab: RunningLab, history: History) -> None:
        self.history = history
        self._log = lab.cluster.layout.log(MAILBOX)
        self._over, self._drained = threading.Event(), threading.Event()
        nodes = {name: lab.cluster.node(name).smtp for name in NODES}
        self._clients = [
            ChaosClient(number, 29, nodes, history, self._over, INTERVAL) for number in range(CLIENTS)
        ]
        self._collector = Collector(lab.cluster.layout.mailbox.dir, history, self._drained)
        for thread in (*self._clients, self._collector):
            thread.start()

    def taken_by(self, name: str) -> int:
        """Messages that the node answered 250."""
        return sum(
            one.node == name and one.outcome is SendOutcome.ACKNOWLEDGED
            for one in tuple(self.history.attempts)
        )

    def end(self) -> None:
        """Nothing is sent any more."""
        self._over.set()
        for client in self._clients:
            client.join()

    def close(self) -> None:
        self.end()
        self._drained.set()
        self._collector.join()

    def verdict(self) -> ChaosVerdict:
        """When everything has arrived."""
        self._drained.set()
        self._collector.join()
        self._collector.collect()
        for arrival in dropped(self._log):
            self.history.tell(arrival)
        history = self.history
        return weigh(
            history.acknowledged(),
            history.attempted(),
            history.arrived(),
            history.arrived(damaged=True),
            history.addressed(),
        )


@contextmanager
def load_on(lab: RunningLab) -> Iterator[Load]:
    history = History(lab.directory / "history.jsonl")
    made = Load(lab, history)
    try:
        yield made
    finally:
        made.close()
        history.close()


def schema(lab: RunningLab, name: str) -> int:
    """Of the database of a node that is down."""
    with closing(sqlite3.connect(lab.cluster.node(name).data_dir / FILE)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def whole(lab: RunningLab) -> bool:
    """Every message has two copies, and the nodes hear each other."""
    seen = [lab.status(name) for name in NODES]
    return all(
        one.exposed == one.asking == 0 and all(peer["state"] == "reachable" for peer in one.peers)
        for one in seen
    )


def copies_go_both_ways(lab: RunningLab, load: Load) -> None:
    """Each node takes mail, with a copy at the other one, and none of it is exposed at any moment."""
    before = {name: load.taken_by(name) for name in NODES}
    deadline = time.monotonic() + 30
    while not all(load.taken_by(name) >= before[name] + ENOUGH for name in NODES):
        assert time.monotonic() < deadline, "a node takes no mail"
        assert [lab.status(name).exposed for name in NODES] == [0, 0]
        time.sleep(0.1)


def in_files(lab: RunningLab, name: str) -> set[str]:
    """Messages whose contents stand in files."""
    return {file.name[:36] for file in (lab.cluster.node(name).data_dir / CONTENT).glob("*.eml")}


def digests_of(lab: RunningLab, name: str, ids: Collection[str]) -> list[Mapping[str, Any] | None]:
    """As the node shows them, of messages that it has, or has had."""
    return [(message(lab.cluster.node(name), one) or {})["digests"] for one in ids]


def upgrade(lab: RunningLab, load: Load, name: str) -> None:
    """A stop, the other program, and all is well again; what waited in its queue goes out then, once."""
    lab.cluster.refuse()
    some = partial(wait_until, deadline=60.0)  # of what the load sends, one in sixteen is stored in a file
    some(lambda: len(set(lab.ids(name)) - in_files(lab, name)) >= ENOUGH, "mail waits in the database")
    some(lambda: len(set(lab.ids(name)) & in_files(lab, name)) >= 2, "and some in files")
    some(lambda: lab.held(name) >= ENOUGH, "it holds copies for the other one")
    before = set(lab.ids(name))
    lab.cluster.stop(name)
    assert schema(lab, name) == SCHEMA_BEFORE
    lab.cluster.start(name)
    wait_until(lambda: whole(lab), f"two copies of everything, now that {name} is upgraded", deadline=5)
    copies_go_both_ways(lab, load)
    assert before <= set(lab.ids(name))
    assert all(digests is None or digests["late"] for digests in digests_of(lab, name, before))

    lab.cluster.accept()
    wait_until(lambda: not before & set(lab.ids(name)), "what had waited is settled")
    assert all(digests and digests["late"] for digests in digests_of(lab, name, before))
    copies_go_both_ways(lab, load)


@pytest.mark.parametrize("first", NODES)
def test_nodes_are_upgraded_one_after_the_other_under_load(lab: RunningLab, program_before: Path, first: str):
    environ = {"PYTHONPATH": str(program_before)}
    # A restart takes a few seconds, and more on a busy machine.
    lab.up(
        "drain_timeout=0s", "shadow_resubmit_time_span=30s", nodes=2, environs=dict.fromkeys(NODES, environ)
    )
    with load_on(lab) as load:
        wait_until(lambda: len(load.history.arrivals) > ENOUGH, "mail flows")
        for name in (first, *(other for other in NODES if other != first)):
            upgrade(lab, load, name)
        load.end()
        wait_until(lambda: all(lab.queued(n) == lab.held(n) == 0 for n in NODES), "all settled", deadline=40)
        verdict = load.verdict()
    assert verdict.held, verdict
    assert not verdict.duplicated
    assert verdict.acknowledged > 100
    assert [lab.events(name, "RESUBMIT") for name in NODES] == [[], []]
