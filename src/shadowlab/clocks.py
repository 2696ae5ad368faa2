"""Gives a process its own wall clock, by libfaketime (Debian package faketime).

It changes only CLOCK_REALTIME. The clocks that measure silence and elapsed time go on: on a real machine
nobody can set them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from shadowlab.errors import LabError
from shadowlab.layout import CLOCKS
from shadowlab.processes import ProcessState, state_of

TAKES_EFFECT = 1.2  # seconds until a process sees its new time

STEPS = (timedelta(minutes=15), timedelta(hours=20), timedelta(days=365))
"""How far chaos sets a clock, ahead or behind. Times in logs are corrected by one of them."""

RIGHT = timedelta(0)

_SHARED = Path("/dev/shm")  # noqa: S108 (libfaketime keeps its files there)
_LIBRARY = "*/faketime/libfaketimeMT.so.1"


class LabClock:
    """The wall clock of the processes that are started with ``environ``; of a node, if its lab has clocks."""

    def __init__(self, directory: Path, node: str) -> None:
        """``node``: its short name; ``directory``: the lab's."""
        self._file = directory / CLOCKS / node

    def set(self, ahead: timedelta) -> None:
        """Set the clock so far ahead of the machine's, or behind it. Raises LabError."""
        if reason := lacking():
            raise LabError(f"a node has no clock of its own: {reason}")
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh = self._file.with_name(f"{self._file.name}.new")
            fresh.write_text(f"{ahead.total_seconds():+.0f}\n", "ascii")
            fresh.replace(self._file)
        except OSError as problem:
            raise LabError(f"{self._file}: {problem.strerror}") from problem

    @property
    def there(self) -> bool:
        return self._file.exists()

    @property
    def environ(self) -> Mapping[str, str]:
        """Variables for a process; none if the lab has no clocks."""
        if not self.there:
            return {}
        return {
            "LD_PRELOAD": str(_library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "NO_FAKE_STAT": "1",  # a file has the times that its writers gave it, whatever the clock says now
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # for waits on the monotonic clock, which is the real one
        }


def corrected(at: float, near: float) -> float:
    """A time by a clock that may have been set by one of the steps, as the right clock has it.

    That is the time nearest to ``near``. All are seconds since 1970.
    """
    steps = (way * step.total_seconds() for step in (RIGHT, *STEPS) for way in (1, -1))
    return min((at - step for step in steps), key=lambda time: abs(time - near))


def sweep(since: float, kept: Path = _SHARED) -> None:
    """Remove the files that the library keeps for a process and leaves behind when the process is killed.

    Only those of processes that began after ``since`` (seconds since 1970) and are gone.
    """
    for path in (*kept.glob("faketime_shm_*"), *kept.glob("sem.faketime_sem_*")):
        pid = path.name.rpartition("_")[2]
        with suppress(OSError):  # removed already, or another user's
            if pid.isdecimal() and state_of(int(pid)) is ProcessState.GONE and path.stat().st_mtime >= since:
                path.unlink()


def lacking() -> str:
    """What this machine lacks for such clocks; empty if nothing."""
    return "" if _library() else "libfaketime is not installed (Debian package faketime)"


def _library() -> Path | None:
    return next(iter(Path("/usr/lib").glob(_LIBRARY)), None)
