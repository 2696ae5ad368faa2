"""``python -m tests.pages.command_reference`` writes docs/reference/commands.md out of the commands."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from shadowlab.cli import main as lab
from shadowmailbox.cli import mailbox
from shadowrelay.cli import COMMANDS, main

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"
HEAD = """\
# Commands

<!-- Made by: .venv/bin/python -m tests.pages.command_reference -->

`shadowrelay COMMAND`; each takes `--help`. Those that look at a node ask its [admin API](api.md), which
`--admin` or `SHADOWRELAY_ADMIN` names. [`shadowlab COMMAND`](#shadowlab) starts, breaks and heals a cluster
on one machine. [`shadowmailbox`](#shadowmailbox) runs a [mailbox service](mailbox.md).

| exit status | of all commands |
|---|---|
| 0 | done. A list may be empty, and a node that does not answer is a line that says so |
| 1 | failed, refused, or not done to its end; or what was asked for is not there. Standard error says why |
| 2 | wrong usage or wrong settings: nothing was done |
| 130 | interrupted by Ctrl-C |

On a terminal, tables are as wide as it is: columns that find no room go below their row. Times are in
the zone of the machine, or in UTC with `--utc`: on a terminal short (`3 min ago`, `21:07:31 CET` today,
else the date too), in a pipe, where a row is one line, whole and with the offset
(`2026-11-21T21:07:31.000+01:00`). JSON has them in UTC.
`--json` prints single things as one document, and lists over all nodes as JSON Lines: one object a line.
`NO_COLOR` switches colours off. `shadowrelay completion` helps the shell to complete words.

| command | |
|---|---|
"""


def page() -> str:
    context = click.Context(main, info_name="shadowrelay")
    summary = "".join(f"| [`{name}`](#shadowrelay-{name}) | {text} |\n" for name, text in COMMANDS.items())
    return HEAD + summary + "".join((*_described(main, context), *_lab(), *_mailbox()))


def _lab() -> Iterator[str]:
    yield f"\n## shadowlab\n\n{_text(lab)}\n"
    yield from _described(lab, click.Context(lab, info_name="shadowlab"), above=1)


def _mailbox() -> Iterator[str]:
    context = click.Context(mailbox, info_name="shadowmailbox")
    yield from _one(mailbox, context, above=1)


def _described(group: click.Group, context: click.Context, above: int = 0) -> Iterator[str]:
    """The commands of a group, below ``above`` more headings than their names tell."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from _one(command, click.Context(command, info_name=name, parent=context), above)


def _one(command: click.Command, inner: click.Context, above: int) -> Iterator[str]:
    yield f"\n{'#' * min(_depth(inner) + above + 1, 4)} {inner.command_path}\n\n"
    if isinstance(command, click.Group) and not command.invoke_without_command:
        yield f"{_text(command)}\n"
    else:
        usage = " ".join(command.collect_usage_pieces(inner))
        yield f"    {inner.command_path} {usage}".rstrip() + f"\n\n{_text(command)}\n"
        yield from _options(command, inner)
    if isinstance(command, click.Group):
        yield from _described(command, inner, above)


def _depth(context: click.Context) -> int:
    return 0 if context.parent is None else 1 + _depth(context.parent)


def _text(command: click.Command) -> str:
    """Its help as Markdown: what stands in columns there is code here."""
    blocks = []
    for block in inspect.cleandoc(command.help or "").split("\n\n"):
        if block.startswith("\b"):
            blocks.append("\n".join(f"    {line}".rstrip() for line in block.splitlines()[1:]))
        else:
            blocks.append(block.replace("*", "\\*").replace("<", "\\<"))
    return "\n\n".join(blocks)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    rows = [
        found
        for parameter in command.params
        if isinstance(parameter, click.Option) and (found := parameter.get_help_record(context))
    ]
    if rows:
        yield "\n| option | |\n|---|---|\n"
        for option, text in rows:
            escaped = " ".join(text.split()).replace("|", "\\|").replace("*", "\\*").replace("<", "\\<")
            yield f"| `{option.replace('|', chr(92) + '|')}` | {escaped} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
