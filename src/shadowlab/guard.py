"""Guards commands from other commands on the same lab, and from Ctrl-C in the middle."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from shadowlab.errors import LabError

_ENDS = (signal.SIGTERM, signal.SIGHUP)
_INTERRUPTS = (signal.SIGINT, *_ENDS)
_LOCK = ".lock"


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Let one command at a time start and stop processes of a lab; the next one waits. Makes the directory.

    If the body fails, it removes the directory and lock that it made. Raises LabError.
    """
    with undone_on_failure(directory, [_LOCK]):
        handle = _held(directory)
        try:
            yield
        finally:
            os.close(handle)


def _held(directory: Path) -> int:
    while True:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise LabError(f"{directory}: {problem.strerror}") from problem
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)  # the command that we waited for failed, and removed the file


@contextmanager
def undone_on_failure(directory: Path, names: Iterable[str]) -> Iterator[None]:
    """If the body fails, remove what it made under these names in the directory.

    Also remove the directory and those above it, if they were not there before and have nothing else in them.
    A Ctrl-C that got lost in the body fails it at its end.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    fresh = [path for name in names if not (path := directory / name).exists()]
    try:
        with _insisting():
            yield
    except BaseException:
        with undisturbed():
            for path in fresh:
                shutil.rmtree(path, ignore_errors=True)
                with suppress(OSError):
                    path.unlink()
            for path in missing:
                with suppress(OSError):
                    path.rmdir()
        raise


class _Noting:
    """A handler of SIGINT that remembers whether it was called."""

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        self._handler = handler
        self.called = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.called = True
        self._handler(number, frame)


@contextmanager
def _insisting() -> Iterator[None]:
    """Raise KeyboardInterrupt for a Ctrl-C at the end at the latest: finalizers and C libraries drop
    exceptions that are raised while they run.
    """
    handler = signal.getsignal(signal.SIGINT)
    interrupts = handler is signal.default_int_handler or isinstance(handler, _Noting)
    if not interrupts or not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    noting = _Noting(handler)
    signal.signal(signal.SIGINT, noting)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if noting.called:
        raise KeyboardInterrupt


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold back Ctrl-C, SIGTERM and SIGHUP to the end: every process that is started must be written down.

    It exchanges handlers, not the signal mask: another thread may take a signal that this one blocks. Outside
    the main thread it does nothing, because Python delivers signals to the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held_back: list[int] = []

    def hold_back(number: int, frame: FrameType | None) -> None:
        del frame
        held_back.append(number)

    before = {number: signal.signal(number, hold_back) for number in _INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            _restore(number, handler)
        for late in dict.fromkeys(held_back):
            signal.raise_signal(late)


@contextmanager
def terminable() -> Iterator[None]:
    """Make SIGTERM and SIGHUP end the command as Ctrl-C does, with everything tidied up.

    For the main thread only. Ignored signals (nohup) stay ignored.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    heard = [number for number in _ENDS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            _restore(number, handler)


def _restore(number: int, handler: Any) -> None:
    """Set a handler again. None means one that Python did not set, which cannot be set again."""
    signal.signal(number, signal.SIG_DFL if handler is None else handler)
