"""Runs ``python -m shadowlab`` and the command: first sets up signals, then loads the rest."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the built-in part of `signal`, which loads nothing

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from shadowrelay import signals


def main() -> None:
    """Run the command."""
    signals.interrupted_at_once()
    from shadowlab.cli import main as command

    command(prog_name="shadowlab")


if __name__ == "__main__":
    main()
