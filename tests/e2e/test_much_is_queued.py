"""Pages of a long queue come at once, and mail is not slower because somebody reads them.

100,000 messages; with ``SHADOWRELAY_QUEUED=1000000`` in the environment, as many. Each page is read once with
nothing beside it. Then an operator reads: a page a second, one after the other, as the console asks while
it is open. Mail with and without the reader takes turns, so that what else the machine does hits both.
"""

from __future__ import annotations

import os
import smtplib
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from statistics import median

import pytest
from full_queues import fill
from running_lab import OUTSIDE, RunningLab, text, wait_until

from shadowlab import layout, processes, starting
from tests.bench.proc import cpu_seconds

pytestmark = [pytest.mark.lab, pytest.mark.slow]

MESSAGES = int(os.environ.get("SHADOWRELAY_QUEUED", "100000"))
PATIENCE = 60 + MESSAGES / 1000  # seconds
FILLING = MESSAGES / 1000  # seconds, on a slow machine
LONGEST = 1.0  # seconds that a page may take
SLOWER = 0.9
TURNS = 6  # of each, the one first or the other
TURN = 4.0  # seconds
PAUSE = 1.0  # seconds between two pages
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
    """A page a second. The next reader goes on where this one ended."""
    over = threading.Event()

    def reading() -> None:
        while not over.is_set():
            path = min(PAGES, key=lambda path: len(took.get(path, ())))
            took.setdefault(path, []).append(read(lab, path))
            over.wait(PAUSE)

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


def spent(lab: RunningLab) -> float:
    """Processor seconds of both nodes since their start."""
    return cpu_seconds([lab.cluster.process(name).pid or 0 for name in ("mx1", "mx2")])


@pytest.mark.timeout(300 + FILLING + 2 * PATIENCE)
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
    rates: dict[bool, list[float]] = {False: [], True: []}  # with a reader, or without
    costs: dict[bool, list[float]] = {False: [], True: []}  # milliseconds of the processors for each message
    for number in range(2 * TURNS):
        reader = number % 4 in {1, 2}
        before = spent(lab)
        with somebody_reads(lab, took) if reader else nullcontext():
            rate = acknowledged(lab, TURN)
        rates[reader].append(rate)
        costs[reader].append(1000 * (spent(lab) - before) / (rate * TURN))
    # Once a page waits for what else the machine does; every time it waits for the queue.
    usual = {path: median(each) for path, each in took.items()}
    print(f"\n{MESSAGES} messages queued; the first time: {_short(first)}")
    print(f"beside mail, the median: {_short(usual)}")
    for what, each in (("acknowledged a second", rates), ("processor ms a message", costs)):
        print(f"{what}: alone {median(each[False]):.1f}, beside a reader {median(each[True]):.1f}: {each}")
    assert max(first.values()) < LONGEST, first
    assert max(usual.values()) < LONGEST, usual
    # Other tests take the machine for whole turns; a reader who slows mail down does so in each of his.
    assert max(rates[True]) >= SLOWER * median(rates[False]), rates


def _short(seconds: dict[str, float]) -> dict[str, float]:
    return {path: round(each, 3) for path, each in seconds.items()}
