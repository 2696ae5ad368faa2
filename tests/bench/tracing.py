"""System calls of processes, as ``strace -c`` counts them."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from .smtp_tools import BenchError

_WAITS = ("epoll_wait", "epoll_pwait", "epoll_pwait2")
"""What an event loop calls once a turn."""

_LINE = re.compile(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(?P<calls>\d+)\s+(?:\d+\s+)?(?P<name>\w+)\s*")


class Counts(NamedTuple):
    """System calls, and turns of the event loop; None where they were not counted."""

    system_calls: float | None
    turns: float | None

    def each(self, messages: int) -> Counts:
        return Counts(*(None if one is None else round(one / messages, 1) for one in self))


def counts(summary: str) -> Counts:
    """What a summary of ``strace -c`` says."""
    lines = [found for line in summary.splitlines() if (found := _LINE.fullmatch(line))]
    called = {found["name"]: int(found["calls"]) for found in lines if found["name"] != "total"}
    return Counts(sum(called.values()), sum(called.get(name, 0) for name in _WAITS))


def missing() -> str | None:
    """Why system calls cannot be counted here, as a sentence."""
    return None if shutil.which("strace") else "there is no strace: system calls and loop turns are not told"


@contextmanager
def system_calls(groups: Sequence[Sequence[int | None]], directory: Path) -> Iterator[list[Counts]]:
    """Count while the block runs; the list has the counts of each group of processes after it. Raises
    BenchError where strace cannot attach.
    """
    found: list[Counts] = []
    if missing():
        yield found
        return
    files = [directory / f"strace-{number}" for number in range(len(groups))]
    tracing: list[subprocess.Popen[bytes]] = []
    try:
        for pids, file in zip(groups, files, strict=True):
            which = [part for pid in pids for part in ("-p", str(pid))]
            tracing.append(_attached([*("strace", "-f", "-c", "-o", str(file)), *which], pids))
        yield found
    finally:
        for one in tracing:
            one.terminate()
        for one in tracing:
            one.wait(30)
    found += [counts(file.read_text("utf-8", "replace")) for file in files]


def _attached(command: Sequence[str], pids: Sequence[int | None]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,  # Ctrl-C is for us: we end it
    )
    deadline = time.monotonic() + 30
    while not all(_tracer(pid) == process.pid for pid in pids):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise BenchError("strace cannot attach: may this user trace processes here?")
        time.sleep(0.02)
    return process


def _tracer(pid: int | None) -> int:
    line = re.search(r"TracerPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text("utf-8"))
    return int(line[1]) if line else 0
