"""``shadowrelay completion``: prints what a shell needs to complete the commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(short_help="Print what a shell needs to complete these commands.")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print what SHELL needs to complete these commands, their options, next hops and members.

    bash: eval "$(shadowrelay completion bash)" in ~/.bashrc. zsh: the same with zsh, in ~/.zshrc. fish:
    shadowrelay completion fish > ~/.config/fish/completions/shadowrelay.fish
    """
    from shadowrelay.cli import main

    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(f"there is nothing for {shell}")
    click.echo(found(main, {}, "shadowrelay", "_SHADOWRELAY_COMPLETE").source())
