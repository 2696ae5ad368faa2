"""``scripts/prove``: one command per way of breaking the relay; each module exports it as ``command``."""

from __future__ import annotations

from importlib import import_module

import click

PROOFS = {
    "explore": "tests.exploration.cli",
    "kill-points": "tests.proof.kill_points",
    "system-calls": "tests.proof.system_calls",
    "power-cuts": "tests.proof.power_cuts",
    "mutants": "tests.proof.mutants",
    "fuzz": "tests.fuzzing.cli",
}


class Proofs(click.Group):
    """Imports a proof only when it is asked for: some need tools that not every machine has."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(PROOFS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in PROOFS:
            return None
        command: click.Command = import_module(PROOFS[cmd_name]).command
        return command


@click.command(cls=Proofs, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Break the relay on this machine, and prove that nothing acknowledged was lost.

    Every proof ends by itself, prints a table (--json: the same as JSON), and exits 0 only when the promise
    was kept. All of it stays on loopback, and in namespaces and file systems made for it.
    """


main(prog_name="scripts/prove")
