"""The command ``shadowaudit``. Each command is a module, imported when it is used."""

from __future__ import annotations

from importlib import import_module

import click

COMMANDS = ("verify", "ingest", "explain", "summary", "tidy", "doctor")


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        found = import_module(f"shadowaudit.cli.{cmd_name}").command
        assert isinstance(found, click.Command)
        return found


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="shadowrelay", prog_name="shadowaudit")
def main() -> None:
    """Was any acknowledged message lost, delivered twice, or held only once?

    The answer comes from the message tracking logs of all nodes (MSGTRK*.LOG), and is a proof, or names
    what is missing for one. Exchange's own logs are read as well.

    \b
    First try:
      shadowaudit doctor                           is everything here that it needs?
      shadowlab generate --messages 1000 --faults lost=2,duplicate=1 logs
      shadowaudit verify logs                      finds them; the report is audit/report.html
      shadowaudit explain MESSAGE-ID logs          one message's journey
    """
