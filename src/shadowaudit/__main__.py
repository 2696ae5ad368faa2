"""``python -m shadowaudit``, and the command itself: as little as an interruption needs, then the rest."""

from __future__ import annotations

import signal
import sys
import traceback

from shadowaudit.interruption import at_once

_FAILED = 2


def main() -> None:
    """Run the command. Whatever happens, a status of 1 is said by a command alone: there it is an answer."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, at_once)
    try:
        from shadowaudit.cli import main as command

        command()
    except Exception:
        traceback.print_exc()
        sys.exit(_FAILED)


if __name__ == "__main__":
    main()
