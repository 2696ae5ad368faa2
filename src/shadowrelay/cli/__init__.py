"""Runs the command line: one group, whose commands are imported only when they are used.

Exit status: 0 done, 1 the command failed, 2 wrong usage or wrong settings, 130 interrupted.
"""

from __future__ import annotations

import os
import shlex
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from shadowrelay import __doc__ as summary
from shadowrelay import __version__
from shadowrelay.signals import INTERRUPTED, interrupted_as_usual, interrupted_at_once

# A command NAME is the attribute NAME of the module `cli.NAME` (hyphens as underscores). Its line of help is
# here too, so that `--help` imports nothing.
COMMANDS = {
    "run": "Run a node.",
    "ca": "Make the cluster's own certificate authority, and certificates for its members.",
    "completion": "Print what a shell needs to complete these commands.",
    "config": "Check a settings file, show what is in force, where mail goes, or an example.",
    "drain": "Empty a node before it is stopped: deliver, hand over, say what is left.",
    "job": "Show and stop jobs: verbs on messages, on all nodes.",
    "member": "Add a member to a running cluster, or list the members.",
    "message": "Find messages, show one or its life; retry, suspend, resume, remove or bounce some.",
    "peer": "Show the members, or say that one is gone for good.",
    "reload": "Read the settings file of a running node again, or of all nodes.",
    "queue": "Show the queues of all nodes; retry, suspend, resume or empty one.",
    "redirect": "Move a node's queue to one member.",
    "redundancy": "Switch shadow redundancy on or off for all members, or show it.",
    "recipients": "Check a recipients file, or show what becomes of an address.",
    "resubmit": "Bring delivered mail back from Safety Net.",
    "safety-net": "Show the Safety Net of a node.",
    "scrub": "Read all that a node keeps now, and say what is damaged.",
    "settings": "Set settings for all members of a running cluster, or show them.",
    "shadow": "Show the shadow queues of a node.",
    "user": "Add, list and remove users who may log in to send.",
    "time": "Show whether a node trusts its wall clock, or confirm the time.",
    "status": "Show how the nodes are: exposure, backlog, copies, members.",
    "top": "Show what nodes do, live.",
}

MOVED = {"lab": "shadowlab", "mailbox": "shadowmailbox"}
"""Commands that became programs."""


class Commands(click.Group):
    """A program: settings errors give exit status 2, Ctrl-C 130; unwritable output gives a sentence."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the program; print a sentence if its output cannot be written."""
        try:
            try:
                return super().main(*args, **extra)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
        except OSError:
            if not (why := _unprintable()):
                raise
            click.echo(f"Error: the output cannot be written: {why}", err=True)
            sys.exit(1)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Load the command. From here on Ctrl-C is an exception that the command may catch."""
        found = super().resolve_command(ctx, args)
        if interrupted_as_usual():
            ctx.call_on_close(interrupted_at_once)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # the command did not catch it
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)
        except (click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except Exception as error:
            # Imported here, because it imports pydantic, which `--help` does not need.
            from shadowrelay.settings import SettingsInvalid

            if isinstance(error, SettingsInvalid):
                _refuse(error.errors)
            raise


class LazyCommands(Commands):
    """Imports ``shadowrelay.cli.NAME`` when NAME is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name in MOVED:
            return _moved(cmd_name)
        if cmd_name not in COMMANDS:
            return None
        command = getattr(
            import_module(f"{__name__}.{cmd_name.replace('-', '_')}"), cmd_name.replace("-", "_")
        )
        if not isinstance(command, click.Command):
            raise TypeError(f"{cmd_name} is not a command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _moved(name: str) -> click.Command:
    """A command that says what to type instead, with any arguments."""

    @click.command(name, context_settings={"ignore_unknown_options": True}, add_help_option=False)
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    def command(words: tuple[str, ...]) -> NoReturn:
        click.echo(f"shadowrelay {name} is now: {shlex.join([MOVED[name], *words])}", err=True)
        sys.exit(2)

    return command


def _unprintable() -> str:
    """Why standard output cannot be written; empty if it can. Drops what is still in its buffer."""
    try:
        print(flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error.strerror or str(error)
    return ""


def _refuse(errors: list[Any]) -> NoReturn:
    for error in errors:
        click.echo(str(error), err=True)
    sys.exit(2)


@click.group(
    cls=LazyCommands,
    help=summary,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="shadowrelay")
def main() -> None:
    pass
