"""What signals do. None but SIGKILL ends a service without a word, and Ctrl-C never shows a traceback.

SIGHUP asks a node to read its settings again, from the moment its database is open. Before that, and in other
services, it changes nothing. Left alone, it would kill the node.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:  # a command must not wait for these before it knows of Ctrl-C
    import asyncio

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells count it: nothing was decided, nothing failed."""

STOPS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGPWR, signal.SIGXCPU})
"""A service that hears one of these finishes what is under way."""

_fatal: BinaryIO | None = None

_FATAL = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT})
_FATAL_TOO = frozenset({signal.SIGSYS, signal.SIGTRAP})  # faulthandler does not take these by itself
_HARMLESS = frozenset(
    {
        *(signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT),
        *(signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),  # they stop it, until it goes on
        *(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores them: whoever writes sees an error
    }
)
NOTED = frozenset(signal.valid_signals()) - STOPS - _FATAL - _FATAL_TOO - _HARMLESS - {signal.SIGKILL}
"""All others that would end the process. They change nothing, and are logged."""


def interrupted_at_once() -> None:
    """Ctrl-C ends a command that is still being loaded, or that is done already.

    No exception would do: one in the middle of an import is taken for another, or for no matter.
    """
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):
        signal.signal(signal.SIGINT, _interrupted)


def interrupted_as_usual() -> bool:
    """Ctrl-C is a KeyboardInterrupt again: the command is loaded, and may have things to put away. False if
    it was not for this module to say.
    """
    if signal.getsignal(signal.SIGINT) is not _interrupted:
        return False
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return True


def spoken_of() -> None:
    """For a process that will be a service: what ends it before it listens to signals itself is told."""
    # The thread that enables it gets a small stack for signals, which Python's handlers share: on the main
    # thread a few signals at once would overflow it, and kill the process.
    enabling = threading.Thread(target=_show_where_it_broke)
    enabling.start()
    enabling.join()
    for number in STOPS:
        signal.signal(number, _ended)
    for number in NOTED:
        signal.signal(number, _ignored)


def fatal_to(file: Path) -> None:
    """A fatal signal writes its traceback to that file from now on. Only in a process that is a service.

    The next start says what the file has: ``faulthandler`` knows one file at a time.
    """
    if not faulthandler.is_enabled() or signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, None):
        return
    global _fatal  # noqa: PLW0603 – it must stay open for as long as the process runs
    with suppress(OSError, RuntimeError, ValueError):
        _fatal = file.open("ab")
        faulthandler.enable(_fatal)
        for number in _FATAL_TOO:
            faulthandler.register(number, _fatal, chain=True)


@contextmanager
def heard(again: asyncio.Event | None = None) -> Iterator[asyncio.Event]:
    """While the loop runs: each signal is logged. The event is set by those that stop a service. ``again`` is
    set by SIGHUP.
    """
    import asyncio

    import structlog

    log = structlog.get_logger(__name__)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def note(number: int) -> None:
        if number in STOPS:
            log.info("stop_signal", signal=_name(number))
            stop.set()
        elif again is not None and number == signal.SIGHUP:
            log.info("reload_signal", signal=_name(number))
            again.set()
        else:
            log.warning("signal_ignored", signal=_name(number))

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        loop.call_soon_threadsafe(note, number)  # nothing can be logged in the middle of logging

    before = {number: signal.signal(number, handle) for number in STOPS | NOTED}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _show_where_it_broke() -> None:
    with suppress(OSError, RuntimeError, ValueError, AttributeError):  # it has no standard error
        faulthandler.enable()
        for number in _FATAL_TOO:
            faulthandler.register(number, chain=True)


def _interrupted(number: int, frame: FrameType | None) -> None:
    del number, frame
    _say("interrupted")
    os._exit(INTERRUPTED)


def _ended(number: int, frame: FrameType | None) -> None:
    del frame
    _say(f"ended by {_name(number)}")
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _ignored(number: int, frame: FrameType | None) -> None:
    del frame
    _say(f"{_name(number)} ignored")


def _say(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):
        os.write(sys.stderr.fileno(), f"{text}\n".encode())


def _name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"SIGRTMIN+{number - signal.SIGRTMIN}"
