"""Ctrl-C in a command that goes on and on: it ends between two turns, not in the middle of one."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOOK = 0.1


class Ending:
    """Whether an end was asked for."""

    def __init__(self) -> None:
        self._asked = False

    def wait(self, seconds: float) -> bool:
        """Let that time pass. True, and at once, when an end was asked for."""
        end = time.monotonic() + seconds
        while not self._asked and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK))
        return self._asked

    def ask(self, number: int, frame: FrameType | None) -> None:
        """A signal handler. The next signal ends the command as ever."""
        del number, frame
        self._asked = True
        for one in _SIGNALS:
            signal.signal(one, signal.default_int_handler)
        os.write(sys.stderr.fileno(), b"Ends after this turn; Ctrl-C again: at once.\n")


@contextmanager
def between_turns() -> Iterator[Ending]:
    """While it lasts, the first SIGINT or SIGTERM only asks for an end.

    Enter it when the engine has started: Spark takes SIGINT for itself.
    """
    ending = Ending()
    before = [signal.signal(one, ending.ask) for one in _SIGNALS]
    try:
        yield ending
    finally:
        for one, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(one, handler)
