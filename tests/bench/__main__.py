"""``scripts/bench``: one command per thing to measure; each module exports it as ``command``."""

from __future__ import annotations

from importlib import import_module

import click

BENCHES = {"relay": "tests.bench.relay", "calls": "tests.bench.calls", "audit": "tests.bench.audit"}
DEFAULT = "relay"

_HELP = ("-h", "--help")


class Benches(click.Group):
    """Imports a bench only when it is asked for; without a name it is the relay's."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(BENCHES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in BENCHES:
            return None
        command: click.Command = import_module(BENCHES[cmd_name]).command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and (args[0] in _HELP or not args[0].startswith("-"))
        return super().parse_args(ctx, args if named else [DEFAULT, *args])


@click.command(cls=Benches, context_settings={"help_option_names": list(_HELP)})
def main() -> None:
    """Measure on this machine, and say which machine it is. Without a command: relay.

    Every bench ends by itself, prints one table (--json: the same as JSON), stays on loopback and in a
    temporary directory, and stops whatever it started, on Ctrl-C too.
    """


if __name__ == "__main__":
    main(prog_name="scripts/bench")
