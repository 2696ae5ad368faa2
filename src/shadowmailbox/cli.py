"""``shadowmailbox``: runs a mailbox service, and looks after its table of deliveries."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shadowrelay import __version__
from shadowrelay.cli import Commands
from shadowrelay.cli.loops import loop_factory
from shadowrelay.cli.viewing import console, counted, print_json, print_table

if TYPE_CHECKING:
    from shadowmailbox.settings import MailboxSettings

_Command = TypeVar("_Command", bound=Callable[..., Any])

_FILE = click.Path(path_type=Path, dir_okay=False)
_DIRECTORY = click.Path(path_type=Path, file_okay=False)
_DOMAINS = 20  # shown by ``show``


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="shadowmailbox")
@click.option("--config", "file", type=_FILE, help="Its settings, as TOML; options override them.")
@click.option("--deliver", metavar="URL", help="The store: lmtp://HOST:PORT, or lmtp:///PATH of a socket.")
@click.option("--dir", "directory", type=_DIRECTORY, help="Maildirs below DIR as the store; for labs.")
@click.option("--table", type=_FILE, help="File of the DeliveredTo table.")
@click.option("--inside", metavar="HOST:PORT", help="Where to take mail by LMTP.")
@click.option("--outside", metavar="HOST:PORT", help="Where to take mail by SMTP; with --dir alone.")
@click.option("--hostname", help="Its name; default: this host's.")
@click.option(
    "--track-duplicates", metavar="DURATION", help="How long deliveries are remembered: 1h, at most 49d."
)
@click.option("--sweep-interval", metavar="DURATION", help="Time between two sweeps of the table: 60s.")
@click.option("--admin", metavar="HOST:PORT", help="Where to serve metrics and health; default: nowhere.")
@click.option(
    "--ready-file", type=_FILE, help="A file to write, as JSON with the addresses, once mail is taken."
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]))
@click.pass_context
def mailbox(context: click.Context, /, file: Path | None, **options: Path | str | None) -> None:
    """Deliver each message to a store once: drop what the store has.

    It stands before a store that takes LMTP, such as Dovecot, or (for labs) keeps Maildirs,
    DIR/<domain>/<local part>. SIGTERM lets transactions finish. Port 0 is any free port.
    """
    given = {name: str(value) for name, value in options.items() if value is not None}
    if context.invoked_subcommand is not None:
        if given or file is not None:
            raise click.UsageError(f"give the options behind {context.invoked_subcommand}")
        return
    if file is None and not given:
        click.echo(context.get_help())
        context.exit(2)
    names = {"admin": "admin.listen", "log_level": "log.level"}
    _run(file, {names.get(name, name): value for name, value in given.items()})


def _run(file: Path | None, options: dict[str, str]) -> None:
    from shadowmailbox.delivered_to import TableUnusable
    from shadowmailbox.server import MailboxCannotListen
    from shadowmailbox.service import run_mailbox
    from shadowmailbox.settings import load_mailbox_settings
    from shadowrelay import logs

    settings = load_mailbox_settings(file, os.environ, options)
    logs.configure(level=settings.log.level.value, format=settings.log.format.value)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(run_mailbox(settings))
    except (MailboxCannotListen, TableUnusable, OSError) as error:
        raise click.ClickException(str(error)) from None


def _table_options(command: _Command) -> _Command:
    """Options that name a table; the command gets its path as ``table``."""
    config = click.option("--config", "file", type=_FILE, help="The settings of its service.")
    directory = click.option("--dir", "directory", type=_DIRECTORY, help="The directory of its Maildirs.")
    table = click.option("--table", "path", type=_FILE, help="Its file.")
    as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    return config(directory(table(as_json(command))))


def _table(file: Path | None, directory: Path | None, path: Path | None) -> Path:
    from shadowmailbox.server import TABLE_FILE

    if sum(one is not None for one in (file, directory, path)) != 1:
        raise click.UsageError("name the table by one of --config, --dir and --table")
    if file is not None:
        return _settings(file).table
    return path or (directory or Path()) / TABLE_FILE


def _settings(file: Path) -> MailboxSettings:
    from shadowmailbox.settings import load_mailbox_settings

    return load_mailbox_settings(file, os.environ)


def _time(context: click.Context, option: click.Parameter, text: str | None) -> datetime | None:
    """Callback of an option: a time (RFC 3339, or of this machine's zone), or a duration before now."""
    from shadowrelay.settings.values import parse_duration

    del context
    if text is None:
        return None
    try:
        return datetime.now(UTC) - parse_duration(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is no time such as 2026-11-26T09:00Z, and no duration such as 2d", param=option
        ) from None


@mailbox.command()
@_table_options
@click.option(
    "--recipient", "recipients", multiple=True, metavar="ADDRESS", help="Forget deliveries to it; repeatable."
)
@click.option("--all", "everybody", is_flag=True, help="Forget deliveries to everybody.")
@click.option("--since", callback=_time, metavar="TIME", help="Only deliveries from then on.")
@click.option("--until", callback=_time, metavar="TIME", help="Only deliveries before then.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def forget(
    file: Path | None,
    directory: Path | None,
    path: Path | None,
    recipients: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    *,
    as_json: bool,
    everybody: bool,
    yes: bool,
) -> None:
    """Forget what was delivered, so that it is delivered again when it comes again.

    For a store that lost mail: the service remembers what the lost store had, and would drop it. TIME
    is as 2026-11-26T09:00Z, or a duration before now, as 2d. Works while the service runs, and
    while it does not.
    """
    from shadowmailbox.control import spelt

    if bool(recipients) == everybody:
        raise click.UsageError("say whose deliveries are forgotten: --recipient ADDRESS, or --all")
    if since is not None and until is not None and since >= until:
        raise click.UsageError("--since is not before --until")
    table = _table(file, directory, path)
    request = {
        "recipients": [_address(one) for one in recipients] if recipients else None,
        "since": spelt(since) if since else None,
        "until": spelt(until) if until else None,
    }
    if not yes:
        found = _asked(table, {"do": "count", **request})["rows"]
        click.echo(
            f"{counted(found, 'delivery', 'deliveries')} would be forgotten: {_named(request)}.", err=True
        )
        if not found:
            return _told({"rows": 0}, as_json=as_json)
        click.confirm("Forget them?", abort=True, err=True)
    return _told(_asked(table, {"do": "forget", **request}), as_json=as_json)


@mailbox.command()
@_table_options
def show(file: Path | None, directory: Path | None, path: Path | None, *, as_json: bool) -> None:
    """Show what the table remembers: rows, the oldest and the newest, by domain of recipients."""
    found = _asked(_table(file, directory, path), {"do": "show", "domains": _DOMAINS})
    if as_json:
        return print_json(found)
    everybody = {"domain": "all", **found}
    rows = [
        [one["domain"], one["rows"], one["oldest"], one["newest"]] for one in (*found["domains"], everybody)
    ]
    print_table(
        console(), ("domain", "rows", "oldest", "newest"), rows if found["rows"] else (), "It is empty."
    )
    return None


def _told(done: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json({"forgotten": done["rows"]})
    elif done["rows"]:
        click.echo(f"{counted(done['rows'], 'delivery', 'deliveries')} forgotten.")
    else:
        click.echo("Nothing to forget.")


def _named(request: dict[str, Any]) -> str:
    who = ", ".join(request["recipients"]) if request["recipients"] else "all recipients"
    since, until = request["since"], request["until"]
    return " ".join(filter(None, [who, since and f"since {since}", until and f"until {until}"]))


def _address(text: str) -> str:
    """A recipient as the table spells it."""
    from shadowmailbox.maildir import mailbox_of
    from shadowrelay.wire.addresses import AddressError, read_path

    try:
        _, address, _ = read_path(f"<{text}>")
    except AddressError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--recipient") from None
    return mailbox_of(address, hostname="")


def _asked(table: Path, request: dict[str, Any]) -> dict[str, Any]:
    from shadowmailbox.control import asked
    from shadowmailbox.delivered_to import TableError

    try:
        return asyncio.run(asked(table, request))
    except (TableError, OSError) as error:
        raise click.ClickException(str(error)) from None
