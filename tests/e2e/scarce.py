"""Mail at nodes that are short of something: what senders are told, mail that comes all the time."""

from __future__ import annotations

import shutil
import smtplib
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running_lab import INSIDE, RunningLab, wait_until

from shadowlab.mail import CLIENT

FULL = "452 4.3.1 Insufficient system resources"


def reply_to_mail(lab: RunningLab, name: str, source: str = "127.0.0.1") -> str:
    """What a sender is told before it sends its content."""
    host, port = lab.cluster.node(name).smtp
    with smtplib.SMTP(host, port, local_hostname=CLIENT, source_address=(source, 0)) as client:
        client.ehlo()
        code, text = client.mail("sender@outside.test")
        return f"{code} {text.decode()}"


@contextmanager
def mail_comes(lab: RunningLab) -> Iterator[None]:
    """All the time, to both nodes, from a client that is in no relay network."""
    over = threading.Event()

    def send() -> None:
        while not over.wait(0.1):
            for name in ("mx1", "mx2"):
                lab.offer(to=name, recipients=(INSIDE,))

    sending = threading.Thread(target=send)
    sending.start()
    try:
        yield
    finally:
        over.set()
        sending.join()


def traced(process: str) -> bool:
    """Somebody traces every thread of it."""
    found = [path.read_text("ascii") for path in Path(f"/proc/{process}/task").glob("*/status")]
    return bool(found) and not any("TracerPid:\t0\n" in each for each in found)


@contextmanager
def slow_disk(lab: RunningLab, name: str) -> Iterator[None]:
    """Each sync of this node takes a fifth of a second longer."""
    if shutil.which("strace") is None:
        pytest.skip("there is no strace (apt-get install strace)")
    calls = "fsync,fdatasync"
    slowed = ["-e", f"trace={calls}", "-e", f"inject={calls}:delay_enter=200ms"]
    process = str(lab.cluster.process(name).pid)
    tracer = subprocess.Popen(["strace", "-f", "-qq", "-o", "/dev/null", *slowed, "-p", process])
    try:
        wait_until(lambda: traced(process), "strace has all its threads")
        yield
        assert tracer.poll() is None, "strace slowed it down to the end"
    finally:
        tracer.terminate()
        tracer.wait(30)
