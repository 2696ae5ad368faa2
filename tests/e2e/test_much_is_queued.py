"""Pages of a long queue come at once, and mail is not slower while somebody reads them all the time.

100,000 messages; with ``SHADOWRELAY_QUEUED=1000000`` in the environment, as many.
"""

from __future__ import annotations

import os
import smtplib
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from full_queues import fill
from running_lab import OUTSIDE, RunningLab, text, wait_until

from shadowlab import layout, processes, starting

pytestmark = [pytest.mark.lab, pytest.mark.slow]

MESSAGES = int(os.environ.get("SHADOWRELAY_QUEUED", "100000"))
PATIENCE = 60 + MESSAGES / 1000  # seconds
LONGEST = 1.0  # seconds that a page may take
SLOWER = 0.9
TURN = 4.0  # seconds
SENDERS = 4
PAGES = (
    "/api/v1/queues",
    "/api/v1/messages",
    "/api/v1/messages?state=exposed",
    "/api/v1/status",
    "/api/v1/cluster/queues",
    "/api/v1/cluster/find?q=anna@inside.test",
    "/api/v1/cluster/find?q=nobody@inside.test",
    "/metrics",
)


def begin(lab: RunningLab, *names: str) -> None:
    at = lab.cluster.layout
    for name in names:
        process = processes.start(starting.process_of(at, name).arguments, at.log(name))
        at = at.with_pid(name, process.pid or 0)
    layout.save(at)


def read(lab: RunningLab, path: str) -> float:
    """How long that page takes."""
    began = time.monotonic()
    with urllib.request.urlopen(f"{lab.cluster.node('mx1').admin}{path}", timeout=PATIENCE) as answer:
        answer.read()
    return time.monotonic() - began


@contextmanager
def somebody_reads(lab: RunningLab, took: dict[str, list[float]]) -> Iterator[None]:
    """Page after page, with a moment between two, as a person does who never stops."""
    over = threading.Event()

    def reading() -> None:
        while not over.is_set():
            for path in PAGES:
                took.setdefault(path, []).append(read(lab, path))
                if over.wait(0.05):
                    return

    thread = threading.Thread(target=reading)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def acknowledged(lab: RunningLab, seconds: float) -> float:
    """Messages a second that the node takes from a few senders."""
    until, counts = time.monotonic() + seconds, [0] * SENDERS

    def sending(number: int) -> None:
        with smtplib.SMTP(*lab.cluster.node("mx1").smtp, timeout=60) as client:
            while time.monotonic() < until:
                client.sendmail("sender@outside.test", [OUTSIDE], text(f"{number}-{counts[number]}"))
                counts[number] += 1

    threads = [threading.Thread(target=sending, args=(number,)) for number in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def test_pages_of_a_long_queue_come_at_once_and_mail_is_not_slower_meanwhile(lab: RunningLab):
    lab.up(nodes=2)
    lab.cluster.refuse()
    names = ("mx1", "mx2")
    for name in names:
        lab.cluster.kill(name)
    fill(*(lab.cluster.node(name).data_dir / "transport.db" for name in names), MESSAGES, size=0)
    begin(lab, *names)
    wait_until(lambda: all(lab.said(name, "opening_ended")[1:] for name in names), "both are open", PATIENCE)
    wait_until(lambda: lab.queued("mx1") >= MESSAGES, "all are queued", PATIENCE)
    first = {path: read(lab, path) for path in PAGES}
    took: dict[str, list[float]] = {}
    acknowledged(lab, TURN)
    alone, beside = [], []
    for _ in range(3):
        alone.append(acknowledged(lab, TURN))
        with somebody_reads(lab, took):
            beside.append(acknowledged(lab, TURN))
    longest = {path: max(each) for path, each in took.items()}
    print(f"\n{MESSAGES} messages queued; the first time: {first}\nbeside mail, the longest: {longest}")
    print(f"acknowledged a second: alone {alone}, beside a reader {beside}")
    assert max(first.values()) < LONGEST, first
    assert max(longest.values()) < LONGEST, longest
    assert sum(beside) >= SLOWER * sum(alone), (alone, beside)
