"""``python -m shadowaudit``, and the command itself: as little as an interruption needs, then the rest."""

from __future__ import annotations

import signal
import sys
import traceback

from shadowaudit.interruption import at_once
from shadowaudit.printing import extra_of, unprintable

_FAILED = 2


def main() -> None:
    """Run the command. Whatever happens, a status of 1 is said by a command alone: there it is an answer."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, at_once)
    try:
        from shadowaudit.cli import main as command

        try:
            command()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except SystemExit as status:
        ended = status
    except Exception as problem:
        ended = _failed(problem)
    else:
        return
    raise ended


def _failed(problem: Exception) -> SystemExit:
    """Say what went wrong: in a sentence, if what is printed finds no room, or an extra is not installed."""
    if isinstance(problem, OSError) and (why := unprintable()):
        print(f"Error: {why}", file=sys.stderr)
    elif extra := extra_of(problem):
        print(f"Error: shadowaudit needs {extra}", file=sys.stderr)
    else:
        traceback.print_exception(problem)
    return SystemExit(_FAILED)


if __name__ == "__main__":
    main()
