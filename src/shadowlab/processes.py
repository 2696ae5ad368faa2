"""Handles processes that outlive the command that started them, and never mistakes them for others.

The kernel reuses pids. So each pid is kept with the arguments of its process: these have a path of this lab,
and no other process has them. They are compared, through a handle on that very process, before any signal is
sent.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from shadowlab.errors import LabError

_EXEC_DEADLINE = 5.0  # seconds until a process that was just started shows its arguments
_TAIL = 4096  # octets of a log that are read for its last lines


class ProcessState(StrEnum):
    """The state of a process, from the kernel."""

    RUNNING = "running"
    FROZEN = "frozen"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Process:
    """A pid, and what it must have been started with: a package and its arguments."""

    pid: int | None
    arguments: tuple[str, ...]

    @property
    def state(self) -> ProcessState:
        """The state; GONE also if the pid belongs to another process by now, or is a zombie."""
        if self.pid is None or not _is(self.pid, self.arguments):
            return ProcessState.GONE
        return state_of(self.pid)

    @property
    def alive(self) -> bool:
        return self.state is not ProcessState.GONE

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal. Returns False if the process is gone."""
        with self._handle() as handle:
            if handle is None:
                return False
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
                return True
            return False

    def forbid_writes(self) -> bool:
        """Make every write to a file fail (EFBIG). Returns False if the process is gone."""
        with self._handle() as handle:
            if handle is None or self.pid is None:
                return False
            with suppress(ProcessLookupError):
                _, most = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (0, most))
                return True
            return False

    def wait(self, timeout: float) -> bool:
        """Wait until it has ended, at most ``timeout`` seconds. Returns whether it has."""
        with self._handle() as handle:
            if handle is not None:
                waiting = select.poll()
                waiting.register(handle, select.POLLIN)
                if not waiting.poll(timeout * 1000):
                    return False
        if self.pid is not None:
            reap(self.pid)
        return True

    def wait_for(self, state: ProcessState, timeout: float) -> bool:
        """Wait until the kernel has acted on SIGSTOP or SIGCONT. Returns False if it has not in time."""
        deadline = time.monotonic() + timeout
        while self.state is not state:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    @contextmanager
    def _handle(self) -> Iterator[int | None]:
        """A handle on the process, verified after it was opened; None if the process is gone."""
        handle = None
        if self.pid is not None:
            with suppress(ProcessLookupError):
                handle = os.pidfd_open(self.pid)
        try:
            ours = handle is not None and self.pid is not None and _is(self.pid, self.arguments)
            yield handle if ours else None
        finally:
            if handle is not None:
                os.close(handle)


def start(arguments: Sequence[str], log: Path, environ: Mapping[str, str] = MappingProxyType({})) -> Process:
    """Run a package with its arguments in its own session, with output appended to ``log``. Raises LabError.

    SHADOWRELAY_ variables of this process are not passed on: they would overrule the files of every node.
    ``environ`` is for the new process.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("SHADOWRELAY_")}
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        pid = os.posix_spawn(
            sys.executable,
            # -P: never import a directory named shadowrelay in the working directory.
            [sys.executable, "-P", "-m", *arguments],
            {**inherited, **environ},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), appending, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGPIPE),
        )
    except OSError as problem:
        raise LabError(f"{' '.join(arguments[:2])} cannot be started: {problem}") from problem
    process = Process(pid, tuple(arguments))
    deadline = time.monotonic() + _EXEC_DEADLINE
    while not process.alive and state_of(pid) is not ProcessState.GONE and time.monotonic() < deadline:
        time.sleep(0.001)
    return process


def reap(pid: int) -> None:
    """Reap a child that has ended. A process with another parent is not a child."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def last_lines(log: Path, *, since: int, count: int = 15) -> list[str]:
    """The last lines of a log that were written after its first ``since`` octets."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(since, end - _TAIL))
            return file.read().decode("utf-8", "replace").splitlines()[-count:]
    except FileNotFoundError:
        return []


def size(log: Path) -> int:
    """The size of a log, in octets."""
    return log.stat().st_size if log.exists() else 0


def _is(pid: int, arguments: Sequence[str]) -> bool:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    found = line.decode("utf-8", "surrogateescape").removesuffix("\0").split("\0")
    return found[-len(arguments) :] == list(arguments)


def state_of(pid: int) -> ProcessState:
    """The state of the process with that pid; GONE for a zombie too."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return ProcessState.GONE
    match stat.rpartition(")")[2].split()[0]:
        case "Z" | "X" | "x":
            return ProcessState.GONE
        case "T" | "t":
            return ProcessState.FROZEN
        case _:
            return ProcessState.RUNNING
