"""Commands that must not be disturbed: by another command on the same lab, or by Ctrl-C in the middle."""

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
    """One command at a time starts and stops processes of a lab; the next one waits. Makes the directory.

    If the body fails, directory and lock are removed again if they were made here. Raises LabError.
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
        os.close(handle)  # whom we waited for failed, and took the file away


@contextmanager
def undone_on_failure(directory: Path, names: Iterable[str]) -> Iterator[None]:
    """If the body fails, what it made under these names in the directory is removed again.

    So are the directory, and those above it, that were not there before, unless something else is in them.
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
    """A handler of SIGINT that remembers that it was called."""

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        self._handler = handler
        self.called = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.called = True
        self._handler(number, frame)


@contextmanager
def _insisting() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt at the end at the latest: finalizers, and libraries in C, drop exceptions
    that come up while they run.
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
    """Hold Ctrl-C, SIGTERM and SIGHUP back to the end: no process may be started and not be written down.

    Handlers are exchanged, not the signal mask: another thread may take a signal that this one blocks.
    Outside the main thread, where Python never delivers signals, nothing needs holding back.
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
    """Let SIGTERM, and the end of the terminal, end the command as Ctrl-C does, with everything tidied up.

    In the main thread only. What is ignored (nohup) stays ignored.
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
    """None is a handler that was not set by Python, and cannot be set again."""
    signal.signal(number, signal.SIG_DFL if handler is None else handler)
