"""Processor time of single processes, limited by control groups (version 1 or 2)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from .smtp_tools import BenchError

_PERIOD = 100_000  # microseconds
_WEIGHT = 64  # times that of other processes: on a busy machine, too, a process gets its share
_NUMBERS = count(1)
_PATIENCE = 10.0  # seconds until a group whose processes have ended can be removed


@dataclass(frozen=True, slots=True)
class _Version:
    """Where groups are made, and how one is told its quota."""

    parent: Path
    limit: Callable[[Path, int], None]


class Quotas:
    """Gives each of several processes a share of one core. Made by ``quotas``, which removes them."""

    def __init__(self, version: _Version) -> None:
        self._version = version
        self._made: list[Path] = []

    def limit(self, pid: int, share: float) -> None:
        """That process, all its threads and its later children have ``share`` of a core from now on. Raises
        BenchError.
        """
        group = self._version.parent / f"shadowrelay-bench-{os.getpid()}-{next(_NUMBERS)}"
        try:
            group.mkdir()
            self._made.append(group)
            self._version.limit(group, round(_PERIOD * share))
            (group / "cgroup.procs").write_text(str(pid), "ascii")
        except OSError as error:
            raise _impossible(error) from error

    def remove(self) -> None:
        """Remove all groups; what still runs in one is put back where it was."""
        deadline = time.monotonic() + _PATIENCE
        for group in self._made:
            while group.exists():
                with suppress(OSError):
                    for pid in (group / "cgroup.procs").read_text("ascii").split():
                        (self._version.parent / "cgroup.procs").write_text(pid, "ascii")
                with suppress(OSError):
                    group.rmdir()
                    break
                if time.monotonic() > deadline:
                    raise BenchError(f"{group} cannot be removed: rmdir it once its processes have ended")
                time.sleep(0.05)
        self._made.clear()


@contextmanager
def quotas() -> Iterator[Quotas]:
    """Quotas while the block runs, which ends the processes. Raises BenchError where there can be none."""
    made = Quotas(_version())
    try:
        yield made
    finally:
        made.remove()


def missing() -> str | None:
    """Why there can be no quotas here, as a sentence."""
    try:
        with quotas() as made, subprocess.Popen(["sleep", "60"]) as sleeper:
            try:
                made.limit(sleeper.pid, 0.5)
            finally:
                sleeper.kill()
    except BenchError as problem:
        return str(problem)
    return None


def _version() -> _Version:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text("utf-8").splitlines()]
    for _, place, kind, options, *_ in mounts:
        if kind == "cgroup" and "cpu" in options.split(","):
            return _Version(_own(Path(place), "cpu"), _limit_1)
    for _, place, kind, *_ in mounts:
        controllers = Path(place) / "cgroup.controllers"
        if kind == "cgroup2" and controllers.exists() and "cpu" in controllers.read_text("ascii").split():
            with suppress(OSError):
                (Path(place) / "cgroup.subtree_control").write_text("+cpu", "ascii")
            return _Version(Path(place), _limit_2)
    raise BenchError("there are no quotas of processor time: no control group here has the controller cpu")


def _own(root: Path, controller: str) -> Path:
    """The group of this process, in a hierarchy of version 1."""
    for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") and (found := root / path.lstrip("/")).is_dir():
            return found
    return root


def _limit_1(group: Path, quota: int) -> None:
    (group / "cpu.cfs_period_us").write_text(str(_PERIOD), "ascii")
    (group / "cpu.cfs_quota_us").write_text(str(quota), "ascii")
    (group / "cpu.shares").write_text(str(1024 * _WEIGHT), "ascii")


def _limit_2(group: Path, quota: int) -> None:
    (group / "cpu.max").write_text(f"{quota} {_PERIOD}", "ascii")
    (group / "cpu.weight").write_text(str(100 * _WEIGHT), "ascii")


def _impossible(error: OSError) -> BenchError:
    return BenchError(
        f"quotas of processor time cannot be set (it takes root, and a writable cgroup): {error}"
    )
