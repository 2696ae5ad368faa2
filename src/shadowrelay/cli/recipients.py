"""``shadowrelay recipients``: checks a recipients file, or shows what becomes of an address."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from shadowrelay.cli.viewing import counted
from shadowrelay.core.recipients import AddressBook, Becomes, Expanded, Resolved
from shadowrelay.reception.recipient_files import BookLimits, RecipientsInvalid, oddities, read_recipients
from shadowrelay.wire.addresses import AddressError, read_path

_DEFAULT = BookLimits()

_SAID = {
    Becomes.MAILBOX: "goes to the next hop of its domain",
    Becomes.LIST: "is a list",
    Becomes.UNKNOWN: "nobody has this address: it is refused with 550 5.1.1",
    Becomes.LOOP: "aliases lead back to it: it is refused",
}


def _with_limits(command: Callable[..., None]) -> Callable[..., None]:
    """Options for what the settings say about the file."""

    @click.option("--delimiter", default="", help="As recipient_delimiter in the settings.")
    @click.option("--max-depth", default=_DEFAULT.most_depth, show_default=True, help="As max_list_depth.")
    @click.option(
        "--max-members", default=_DEFAULT.most_members, show_default=True, help="As max_list_members."
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @wraps(command)
    def run(*args: Any, delimiter: str, max_depth: int, max_members: int, **more: Any) -> None:
        command(*args, limits=BookLimits(delimiter, max_depth, max_members), **more)

    return run


@click.group()
def recipients() -> None:
    """Check a recipients file, or show what becomes of an address.

    A node sees a changed file within a second. While the new file has an error, the node uses the one before.
    """


@recipients.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_with_limits
def check(file: Path, limits: BookLimits, *, as_json: bool) -> None:
    """Print how much FILE has, and warn of oddities. Exit status 0, or 2 if a node would refuse FILE."""
    try:
        book = read_recipients(file, limits)
    except (RecipientsInvalid, OSError) as error:
        wrong = _sentence(error)
        if as_json:
            click.echo(json.dumps({"ok": False, "error": wrong, "file": str(file)}))
        else:
            click.echo(f"{file}: {wrong}", err=True)
        sys.exit(2)
    odd = list(oddities(book))
    counts = {"aliases": len(book.aliases), "lists": len(book.lists), "known_domains": len(book.known)}
    if as_json:
        click.echo(json.dumps({"ok": True, "file": str(file), **counts, "warnings": odd}))
        return
    for one in odd:
        click.echo(f"warning: {one}", err=True)
    kinds = zip(counts.values(), (("alias", "aliases"), ("list",), ("known domain",)), strict=True)
    click.echo(f"OK: {', '.join(counted(count, *names) for count, names in kinds)}")


@recipients.command()
@click.argument("address")
@click.option(
    "--file",
    required=True,
    envvar="SHADOWRELAY_RECIPIENTS_FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file, as recipients_file in the settings.",
)
@_with_limits
def resolve(address: str, file: Path, limits: BookLimits, *, as_json: bool) -> None:
    """Show what becomes of ADDRESS: the aliases on its way, and the members if it is a list.

    Exit status 0, or 1 if nobody has the address.
    """
    try:
        _, given, rest = read_path(f"<{address}>")
        if rest or "@" not in given:
            raise AddressError("Address needs a domain")
        book = read_recipients(file, limits)
    except AddressError as error:
        raise click.BadParameter(f"{error}", param_hint="ADDRESS") from None
    except (RecipientsInvalid, OSError) as error:
        click.echo(f"{file}: {_sentence(error)}", err=True)
        sys.exit(2)
    found = book.resolve(given)
    expanded = book.expand(found.address) if found.what is Becomes.LIST else None
    if as_json:
        click.echo(json.dumps(_tree(book, found, expanded)))
    else:
        _print(book, found, expanded)
    if found.what in (Becomes.UNKNOWN, Becomes.LOOP):
        sys.exit(1)


def _sentence(error: Exception) -> str:
    return str(error.strerror) if isinstance(error, OSError) else str(error)


def _tree(book: AddressBook, found: Resolved, expanded: Expanded | None) -> dict[str, Any]:
    tree: dict[str, Any] = {"what": found.what.value, "address": found.address, "steps": list(found.steps)}
    if expanded:
        tree["owner"] = book.owner(found.address) or None
        tree["members"] = [{"address": one.address, "unknown": one.unknown} for one in expanded.members]
        tree["loops"] = list(expanded.loops)
    return tree


def _print(book: AddressBook, found: Resolved, expanded: Expanded | None) -> None:
    for step in found.steps[1:]:
        click.echo(f"alias of {step}")
    click.echo(f"{found.address}: {_SAID[found.what]}")
    for one in expanded.members if expanded else ():
        click.echo(
            f"  {one.address}" + (" (nobody has this address: each message bounces)" if one.unknown else "")
        )
    for loop in expanded.loops if expanded else ():
        click.echo(f"  {loop} is met again inside itself, and expanded once")
    if expanded:
        owner = book.owner(found.address)
        click.echo(f"  reports on members go to {owner or 'the sender'}")
