"""Commands that must not be disturbed: by another command on the same lab, or by Ctrl-C in the middle."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from shadowrelay.lab.errors import LabError

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """One command at a time starts and stops processes of a lab; the next one waits. Makes the directory.

    Raises LabError.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise LabError(f"{directory}: {problem.strerror}") from problem
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back: a process must not be started without being written down."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, with everything tidied up. In the main thread only."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        with suppress(TypeError):  # a handler that was not set by Python cannot be set again
            signal.signal(signal.SIGTERM, before)
