"""What an interruption does: it ends the process at once, wherever there is nothing to put away."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
"""Exit status of a command that was ended in the middle of what it did: it says nothing."""


def at_once(number: int, frame: FrameType | None) -> None:
    """A signal handler, for the whole command but ``putting_away``.

    No exception would do: one in the middle of an import is taken for another, or for no matter.
    """
    del number, frame
    os.write(sys.stderr.fileno(), b"interrupted: no verdict\n")
    os._exit(INTERRUPTED)


@contextmanager
def putting_away() -> Iterator[None]:
    """While it lasts, an interruption is a KeyboardInterrupt, which has things put away."""
    before = signal.getsignal(signal.SIGINT)
    if before is not at_once:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, at_once)


@contextmanager
def insisting() -> Iterator[None]:
    """While it lasts, an interruption is seen at the end, even if a library has taken it for no matter."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is ask:  # Spark takes it for itself
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if asked:
        raise KeyboardInterrupt


@contextmanager
def put_off() -> Iterator[None]:
    """While it lasts, an interruption waits for the end; a second one does not."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked and callable(before):
            before(number, frame)
        asked.append(number)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is ask:
            signal.signal(signal.SIGINT, before)
    if asked and callable(before):
        before(asked[0], None)
