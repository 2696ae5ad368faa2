"""Processor time or memory of single processes, limited by control groups (version 1 or 2)."""

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
class Controller:
    """What is limited, and how a group of either version is told its limit."""

    name: str
    version_1: Callable[[Path, float], None]
    version_2: Callable[[Path, float], None]


@dataclass(frozen=True, slots=True)
class _Version:
    """Where groups are made, and how one is told its limit."""

    parent: Path
    limit: Callable[[Path, float], None]


class Quotas:
    """Gives each of several processes a share of one core, or octets of memory. Made by ``quotas``, which
    removes them.
    """

    def __init__(self, version: _Version) -> None:
        self._version = version
        self._made: list[Path] = []

    def limit(self, pid: int, most: float) -> Path:
        """That process, all its threads and its later children have ``most`` (a share of a core, or octets)
        from now on. Returns their group. Raises BenchError.
        """
        group = self._version.parent / f"shadowrelay-bench-{os.getpid()}-{next(_NUMBERS)}"
        try:
            group.mkdir()
            self._made.append(group)
            self._version.limit(group, most)
            (group / "cgroup.procs").write_text(str(pid), "ascii")
        except OSError as error:
            raise _impossible(error) from error
        return group

    @contextmanager
    def begun_within(self, most: float) -> Iterator[Path]:
        """What this process starts meanwhile has ``most``, from its first moment on. Yields its group."""
        group = self.limit(os.getpid(), most)
        try:
            yield group
        finally:
            (self._version.parent / "cgroup.procs").write_text(str(os.getpid()), "ascii")

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


def _cpu_1(group: Path, share: float) -> None:
    (group / "cpu.cfs_period_us").write_text(str(_PERIOD), "ascii")
    (group / "cpu.cfs_quota_us").write_text(str(round(_PERIOD * share)), "ascii")
    (group / "cpu.shares").write_text(str(1024 * _WEIGHT), "ascii")


def _cpu_2(group: Path, share: float) -> None:
    (group / "cpu.max").write_text(f"{round(_PERIOD * share)} {_PERIOD}", "ascii")
    (group / "cpu.weight").write_text(str(100 * _WEIGHT), "ascii")


def _memory_1(group: Path, octets: float) -> None:
    (group / "memory.limit_in_bytes").write_text(str(int(octets)), "ascii")


def _memory_2(group: Path, octets: float) -> None:
    (group / "memory.max").write_text(str(int(octets)), "ascii")
    (group / "memory.swap.max").write_text("0", "ascii")


CPU = Controller("cpu", _cpu_1, _cpu_2)
MEMORY = Controller("memory", _memory_1, _memory_2)


@contextmanager
def quotas(of: Controller = CPU) -> Iterator[Quotas]:
    """Quotas while the block runs, which ends the processes. Raises BenchError where there can be none."""
    made = Quotas(_version(of))
    try:
        yield made
    finally:
        made.remove()


def missing(of: Controller = CPU) -> str | None:
    """Why there can be no quotas here, as a sentence."""
    try:
        with quotas(of) as made, subprocess.Popen(["sleep", "60"]) as sleeper:
            try:
                made.limit(sleeper.pid, 0.5 if of is CPU else 1 << 30)
            finally:
                sleeper.kill()
    except BenchError as problem:
        return str(problem)
    return None


def _version(of: Controller) -> _Version:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text("utf-8").splitlines()]
    for _, place, kind, options, *_ in mounts:
        if kind == "cgroup" and of.name in options.split(","):
            return _Version(_own(Path(place), of.name), of.version_1)
    for _, place, kind, *_ in mounts:
        controllers = Path(place) / "cgroup.controllers"
        if kind == "cgroup2" and controllers.exists() and of.name in controllers.read_text("ascii").split():
            with suppress(OSError):
                (Path(place) / "cgroup.subtree_control").write_text(f"+{of.name}", "ascii")
            return _Version(Path(place), of.version_2)
    raise BenchError(f"there are no quotas: no control group here has the controller {of.name}")


def _own(root: Path, controller: str) -> Path:
    """The group of this process, in a hierarchy of version 1."""
    for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") and (found := root / path.lstrip("/")).is_dir():
            return found
    return root


def _impossible(error: OSError) -> BenchError:
    return BenchError(f"quotas cannot be set (it takes root, and a writable cgroup): {error}")
