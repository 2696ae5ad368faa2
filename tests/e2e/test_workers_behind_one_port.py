"""Nodes of several workers: mail through one port, and a worker that is killed under load."""

from __future__ import annotations

import smtplib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from signal import SIGKILL
from typing import Any

import pytest
from running_lab import INSIDE, RunningLab, wait_until

from shadowlab import mail
from shadowlab.mail import Letter

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def received(lab: RunningLab, name: str) -> list[int]:
    """How many messages each worker of a node took from clients."""
    return [
        sum(
            row["event-id"] == "RECEIVE" and row["source"] == "SMTP"
            for row in mail.tracked(place.tracking_dir)
        )
        for place in lab.cluster.node(name).places
    ]


class Clients:
    """Clients that send to one port, each message on a connection of its own; they note what got a 250."""

    def __init__(self, lab: RunningLab, name: str, count: int) -> None:
        self._lab = lab
        self._server = lab.cluster.node(name).smtp
        self._stop = threading.Event()
        self.taken: list[tuple[float, float]] = []  # Unix times: a connection began, and got its 250
        self._threads = [threading.Thread(target=self._send, daemon=True) for _ in range(count)]

    @contextmanager
    def sending(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join(60)

    def _send(self) -> None:
        while not self._stop.is_set():
            letter = Letter(mail.token("e2e"), "sender@outside.test", (INSIDE,))
            began = time.time()
            with (
                suppress(OSError, smtplib.SMTPException),
                smtplib.SMTP(*self._server, local_hostname="client.test", timeout=30) as client,
            ):
                client.send_message(mail.written(letter), letter.sender, letter.recipients)
                self.taken.append((began, time.time()))
                self._lab.acknowledged.append(letter)


def audited(lab: RunningLab) -> None:
    """The nodes stop, and the audit of all their logs finds no fault."""
    lab.cluster.down()
    command = [sys.executable, "-m", "shadowaudit", "verify", str(lab.directory / "tracking")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def delivered(lab: RunningLab) -> None:
    """All that was acknowledged arrived, and none is in a mailbox twice. Who got no 250 may have sent again,
    so more may have arrived. What a worker had sent when it was killed, it sends again.
    """
    wait_until(lambda: lab.count().lost == 0, "all delivered", 60)
    wait_until(
        lambda: all(lab.queued(name) == lab.held(name) == 0 for name in ("mx1", "mx2")), "all settled", 60
    )
    found = lab.count()
    assert (found.lost, found.duplicates) == (0, found.dropped), str(found)


def test_two_hosts_of_two_workers_share_the_mail_of_a_port_and_deliver_it_once(lab: RunningLab) -> None:
    lab.up(nodes=2, workers=2)
    clients = Clients(lab, "mx1", 8)
    with clients.sending():
        wait_until(lambda: len(clients.taken) >= 200, "200 messages were taken", 60)
    lab.verify()
    taken = len(lab.acknowledged)
    wait_until(lambda: sum(received(lab, "mx1")) == taken, "the logs have it")
    first, second = received(lab, "mx1")
    assert min(first, second) >= 0.2 * taken
    assert received(lab, "mx2") == [0, 0]
    audited(lab)


def test_of_four_workers_one_is_killed_under_load_and_nothing_that_was_acknowledged_is_lost(
    lab: RunningLab,
) -> None:
    lab.up(nodes=2, workers=4)
    clients = Clients(lab, "mx1", 8)

    def taken_since(moment: float) -> list[float]:
        return [at for began, at in tuple(clients.taken) if began > moment]

    def started_again() -> list[dict[str, Any]]:
        told = lab.said("mx1", "worker_serves")
        return [line for line in told if line["worker"] == 3 and line["pid"] != victim.pid]

    with clients.sending():
        wait_until(lambda: len(clients.taken) >= 100, "100 messages were taken", 60)
        victim = lab.cluster.workers("mx1")[3]
        victim.signal(SIGKILL)
        killed = time.time()
        wait_until(lambda: taken_since(killed), "siblings take mail")
        wait_until(started_again, "it is started again", 60)
        serves = datetime.fromisoformat(started_again()[0]["timestamp"]).timestamp()
        assert min(taken_since(killed)) < serves, "siblings take mail before it does"
        before = received(lab, "mx1")[2]
        wait_until(lambda: received(lab, "mx1")[2] > before, "it takes mail again", 60)
    delivered(lab)
    audited(lab)
