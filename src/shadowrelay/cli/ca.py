"""``shadowrelay ca``: makes the certificates by which members know one another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from shadowrelay import authority

_directory = click.option(
    "--dir",
    "directory",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the authority (ca.pem, ca.key).",
)


@click.group()
def ca() -> None:
    """Make the cluster's own certificate authority, and certificates for its members."""


@ca.command("init")
@_directory
@click.option("--name", default="shadowrelay members", show_default=True, help="The authority's name.")
@click.option("--force", is_flag=True, help="Replace an authority. Its certificates become invalid.")
def init(directory: Path, name: str, *, force: bool) -> None:
    """Make an authority, valid for ten years."""
    try:
        pair = authority.init(directory, name=name, now=datetime.now(UTC), force=force)
    except (authority.AuthorityError, OSError) as problem:
        raise click.ClickException(str(problem)) from problem
    click.echo(f"wrote {pair.certificate}")
    click.echo(f"wrote {pair.key} (keep it off the members: it signs new certificates)")


@ca.command("issue")
@click.argument("server_name", metavar="NAME")
@_directory
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the certificate and its key go. Default: the authority's directory.",
)
@click.option("--san", "sans", multiple=True, help="A further DNS name or IP address; may be repeated.")
@click.option(
    "--days", type=click.IntRange(1, 3650), default=authority.SERVER_LIFETIME.days, show_default=True
)
@click.option("--force", is_flag=True, help="Replace an existing certificate and key.")
def issue(
    server_name: str, directory: Path, out: Path | None, sans: tuple[str, ...], days: int, *, force: bool
) -> None:
    """Issue a certificate for the member NAME (its FQDN), for both ends of the peer channel."""
    try:
        pair = authority.issue(
            directory,
            server_name,
            now=datetime.now(UTC),
            out=out,
            sans=sans,
            lifetime=timedelta(days=days),
            force=force,
        )
    except (authority.AuthorityError, OSError) as problem:
        raise click.ClickException(str(problem)) from problem
    click.echo(f"wrote {pair.certificate}")
    click.echo(f"wrote {pair.key}")
    click.echo(f"In the settings of {server_name.lower()}:")
    click.echo(f'peer.certificate = "{pair.certificate.absolute()}"')
    click.echo(f'peer.key = "{pair.key.absolute()}"')
    click.echo(f'peer.ca = "{authority.authority_pair(directory).certificate.absolute()}"')
