"""A mailbox server loses its store, and Safety Net gives its mail back: exactly that, each message once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from running_lab import INSIDE, RunningLab, wait_until

from shadowlab import mail
from shadowlab.ports import free_ports

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SECOND = "berta@second.test"
QUICK = (
    "shadow_heartbeat_frequency=1s",
    "shadow_time_cap=3s",
    "reconcile_timeout=2s",
    "resubmit_overlap=10m",
    'accepted_domains=["inside.test", "second.test"]',
)


@dataclass
class Store:
    """A mailbox server of its own, which can lose all that it has."""

    directory: Path
    port: int
    other: int
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        ready = self.directory.with_suffix(".ready")
        ready.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "shadowmailbox", "--dir", str(self.directory)),
                *("--inside", f"127.0.0.1:{self.port}", "--outside", f"127.0.0.1:{self.other}"),
                *("--ready-file", str(ready), "--log-level", "warning"),
            ]
        )
        wait_until(ready.exists, "the mailbox server is ready")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def lose(self) -> None:
        """Its disk is gone; it comes back empty."""
        self.stop()
        shutil.rmtree(self.directory)
        self.start()

    def has(self) -> Counter[str]:
        """How often each message is there, by its token."""
        times, _ = mail.arrivals(self.directory), None
        return Counter({message_id: count for (message_id, _), count in times.items()})


@contextmanager
def two_stores(lab: RunningLab, *options: str, nodes: int = 3) -> Iterator[Store]:
    port, other = free_ports(2)
    store = Store(lab.directory.with_name("second"), port, other)
    store.start()
    route = (
        "host=127.0.0.1",
        f"port={port}",
        "protocol=lmtp",
        "inside=true",
        "tls=none",
        'domains=["second.test"]',
    )
    try:
        lab.up(*QUICK, *(f"routes.second.{one}" for one in route), *options, nodes=nodes)
        yield store
    finally:
        store.stop()


def ask(lab: RunningLab, name: str, *words: str) -> dict[str, Any]:
    """``shadowrelay resubmit`` at a node."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "shadowrelay",
            "resubmit",
            *words,
            "--admin",
            lab.cluster.node(name).admin,
            "--json",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def bring_back(lab: RunningLab, name: str, *more: str) -> dict[str, Any]:
    until = datetime.now(UTC) - timedelta(milliseconds=1)
    window = ("--since", "1h", "--until", until.isoformat())
    return ask(lab, name, "add", *window, "--to", "second", "--reason", "its disk is lost", "--yes", *more)


def filled(lab: RunningLab, store: Store, count: int = 6) -> Counter[str]:
    """Mail for both servers, from two nodes, all of it delivered and settled everywhere."""
    for name in ("mx1", "mx2"):
        lab.send(count // 2, to=name, recipients=(SECOND,))
        lab.send(1, to=name, recipients=(INSIDE,))
    wait_until(lambda: sum(store.has().values()) == count, "all is delivered")
    wait_until(lambda: all(lab.held(node.short) == 0 for node in lab.cluster.layout.nodes), "all is settled")
    return store.has()


def resubmitted(lab: RunningLab) -> list[dict[str, str]]:
    return [row for name in ("mx1", "mx2", "mx3") for row in lab.events(name, "RESUBMIT")]


def once_each(store: Store, expected: Counter[str]) -> None:
    wait_until(lambda: expected.keys() <= store.has().keys(), "all is back", 40)
    time.sleep(1)  # what comes twice comes at once
    assert store.has() == expected


def test_a_server_that_lost_its_store_gets_its_mail_of_the_window_while_new_mail_flows(lab: RunningLab):
    with two_stores(lab) as store:
        lost = filled(lab, store)
        elsewhere = mail.arrivals(lab.cluster.layout.mailbox.dir)
        store.lose()
        bring_back(lab, "mx3")
        lab.send(2, to="mx1", recipients=(SECOND,))
        wait_until(lambda: sum(store.has().values()) == len(lost) + 2, "old and new mail is there", 40)
        assert set(store.has().values()) == {1}
        assert lost.keys() <= store.has().keys()
        assert mail.arrivals(lab.cluster.layout.mailbox.dir) == elsewhere
        wait_until(lambda: len(resubmitted(lab)) >= len(lost), "it is logged")
        rows = resubmitted(lab)
        assert {row["source"] for row in rows} == {"SAFETYNET"}
        assert len(rows) == len(lost)


def test_when_the_owners_disk_is_lost_too_its_holder_answers(lab: RunningLab):
    with two_stores(lab) as store:
        lost = filled(lab, store)
        lab.cluster.kill("mx1")
        lab.cluster.wipe("mx1")
        store.lose()
        lab.cluster.start("mx1")
        bring_back(lab, "mx1")
        once_each(store, lost)


def test_an_owner_that_is_away_and_comes_back_in_the_middle_makes_nothing_twice(lab: RunningLab):
    with two_stores(lab, "resubmit_rate=2") as store:
        lost = filled(lab, store, 16)
        lab.cluster.kill("mx1")
        store.lose()
        full = lab.cluster.node("mx1").name
        wait_until(lambda: lab.peer("mx2", "mx1")["state"] == "unreachable", "its absence is noticed")
        bring_back(lab, "mx2", "--now", full)
        wait_until(lambda: sum(store.has().values()) >= 4, "some are back", 40)
        lab.cluster.start("mx1")
        once_each(store, lost)


def test_a_request_outlives_its_node_and_a_pause_outlives_a_restart_of_all(lab: RunningLab):
    with two_stores(lab, "resubmit_rate=2") as store:
        lost = filled(lab, store, 32)  # more than are made before a pause is heard
        store.lose()
        request = bring_back(lab, "mx3")["request"]["id"]
        wait_until(lambda: lab.events("mx1", "RESUBMIT"), "it reaches the owner")
        lab.cluster.kill("mx3")
        ask(lab, "mx1", "pause", request)
        wait_until(lambda: ask(lab, "mx2", "show", request)["request"]["state"] == "paused", "all know")
        for name in ("mx1", "mx2"):
            lab.cluster.kill(name)
        for name in ("mx1", "mx2", "mx3"):
            lab.cluster.start(name)
        wait_until(
            lambda: ask(lab, "mx3", "show", request)["request"]["state"] == "paused", "mx3 hears of it"
        )
        wait_until(lambda: lab.queued("mx1") == lab.queued("mx2") == 0, "what was made is mail")
        before = sum(store.has().values())
        assert before < len(lost)
        ask(lab, "mx2", "resume", request)
        once_each(store, lost)
