"""What processes use, as the kernel tells in /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_GONE = (FileNotFoundError, ProcessLookupError)


def family(pid: int) -> list[int]:
    """A process, its children and theirs, of those that are there now."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(*_GONE):
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found & (parents.keys() | {pid}))


def cpu_seconds(pids: Iterable[int]) -> float:
    """Of these processes, and of their children that have ended."""
    total = 0
    for pid in pids:
        with suppress(*_GONE):
            total += sum(map(int, _stat(pid)[11:15]))
    return total / _TICK


def cpu_seconds_beside(pids: Iterable[int]) -> float:
    """Of all threads of these processes but the first of each. A thread that has ended counts no more."""
    total = 0
    for pid in pids:
        with suppress(*_GONE):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                if thread.name != str(pid):
                    with suppress(*_GONE):
                        total += sum(map(int, _fields(thread / "stat")[11:13]))
    return total / _TICK


def resident(pid: int) -> int:
    """Octets of memory that are resident."""
    return _status(pid, "VmRSS")


def peak(pid: int) -> int:
    """The most octets that were resident since the peak was forgotten."""
    return _status(pid, "VmHWM")


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5", "ascii")


def proportional(pids: Iterable[int]) -> int:
    """Octets of resident memory, what is shared counted once among those who share it."""
    total = 0
    for pid in pids:
        with suppress(*_GONE):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


@contextmanager
def highest(measure: Callable[[], int], every: float = 0.25) -> Iterator[list[int]]:
    """Measure now and then while the block runs, and at its end, which may come before the first look; the
    list holds one number, the highest so far.
    """
    found = [measure()]
    done = threading.Event()

    def watch() -> None:
        last = False
        while not last:
            last = done.wait(every)
            found[0] = max(found[0], measure())

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield found
    finally:
        done.set()
        watching.join()


def _stat(pid: int) -> list[str]:
    """The fields of ``stat`` from the third on, which is the state."""
    return _fields(Path(f"/proc/{pid}/stat"))


def _fields(stat: Path) -> list[str]:
    return stat.read_text("utf-8", "replace").rpartition(")")[2].split()


def _status(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)
