"""``shadowrelay mailbox``: runs a mailbox server for labs."""

from __future__ import annotations

import asyncio
import re
import socket
from datetime import timedelta
from pathlib import Path

import click

from shadowrelay import logs
from shadowrelay.cli.loops import loop_factory
from shadowrelay.cli.viewing import duration
from shadowrelay.database.delivered_to import TableUnusable
from shadowrelay.mailbox.server import MailboxCannotListen, MailboxOptions, run


def _address(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, int]:
    del ctx
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+)):([0-9]{1,5})", value)
    if found is None or int(found[3]) > 65535:
        raise click.BadParameter(f"{value!r} is not HOST:PORT or [IPV6]:PORT", param=param)
    return found[1] or found[2], int(found[3])


@click.command(short_help="Run a small mailbox server for labs.")
@click.option("--dir", "directory", type=click.Path(path_type=Path, file_okay=False), required=True)
@click.option(
    "--inside", callback=_address, metavar="HOST:PORT", required=True, help="Where to listen for LMTP."
)
@click.option(
    "--outside", callback=_address, metavar="HOST:PORT", required=True, help="Where to listen for SMTP."
)
@click.option("--hostname", default=socket.getfqdn, help="Its name; default: this host's.")
@click.option(
    "--track-duplicates",
    callback=duration,
    metavar="DURATION",
    default="1h",
    show_default=True,
    help="How long deliveries are remembered, at most 49d.",
)
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file to write, as JSON with both addresses, once the server takes mail.",
)
@click.option(
    "--log-level", default="info", show_default=True, type=click.Choice(["debug", "info", "warning"])
)
def mailbox(
    directory: Path,
    inside: tuple[str, int],
    outside: tuple[str, int],
    hostname: str,
    track_duplicates: timedelta,
    ready_file: Path | None,
    log_level: str,
) -> None:
    """Deliver into Maildirs, DIR/<domain>/<local part>, each message once.

    While the file DIR/REFUSE exists, MAIL and RCPT are answered 451. Port 0 is any free port. SIGTERM lets
    transactions finish.
    """
    logs.configure(level=log_level)
    options = MailboxOptions(
        directory=directory,
        hostname=hostname,
        inside=inside,
        outside=outside,
        track_duplicates=track_duplicates,
        ready_file=ready_file,
    )
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(run(options))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--track-duplicates") from None
    except (MailboxCannotListen, TableUnusable, OSError) as error:
        raise click.ClickException(str(error)) from None
