"""``python -m shadowrelay``, and the command itself: as little as a signal needs, then the rest."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the part of `signal` that needs no loading
import sys

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from shadowrelay import signals


def main() -> None:
    """Run the command."""
    signals.interrupted_at_once()
    if sys.argv[1:2] == ["run"]:  # it goes on until it is told to stop
        signals.spoken_of()
    from shadowrelay.cli import main as command

    command(prog_name="shadowrelay")


if __name__ == "__main__":
    main()
