"""``python -m shadowmailbox``, and the command itself: as little as a signal needs, then the rest."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the part of `signal` that needs no loading
import sys

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from shadowrelay import signals

TASKS = {"forget", "show"}
"""Commands that end by themselves; anything else serves until it is told to stop."""


def main() -> None:
    """Run the command."""
    signals.interrupted_at_once()
    if not TASKS & set(sys.argv[1:2]):  # an option may have such a value
        signals.spoken_of()
    from shadowmailbox.cli import mailbox as command

    command(prog_name="shadowmailbox")


if __name__ == "__main__":
    main()
