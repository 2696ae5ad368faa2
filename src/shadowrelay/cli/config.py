"""``shadowrelay config``: checks a settings file, shows the settings in force, or where mail goes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shadowrelay.database.opening import switches_in
from shadowrelay.settings import (
    SETTINGS_PATH_VARIABLE,
    Effective,
    effective,
    load_settings,
    settings_warnings,
)
from shadowrelay.settings.certificates import certificates_ending
from shadowrelay.settings.switched import told
from shadowrelay.settings.ways import RecipientWay, ways_of

if TYPE_CHECKING:
    from rich.table import Table

settings_file = click.argument(
    "file", type=click.Path(path_type=Path, dir_okay=False), envvar=SETTINGS_PATH_VARIABLE
)


@click.group(short_help="Check a settings file, show the settings in force, or where mail goes.")
def config() -> None:
    """Check a settings file, show the settings in force, or where mail goes.

    SHADOWRELAY_* environment variables count, as they do when the node starts.
    """


@config.command()
@settings_file
def check(file: Path) -> None:
    """Print OK, or every error of FILE; exit status 0 or 2.

    If the node's database is there, what was set for all members is compared with FILE too.
    """
    settings = load_settings(file, os.environ)
    for warning in (
        *settings_warnings(settings),
        *certificates_ending(settings, datetime.now(UTC)),
        *told(settings, switches_in(settings.data_dir)),
    ):
        click.echo(f"warning: {warning}", err=True)
    click.echo("OK")


@config.command()
@settings_file
@click.option("--json", "as_json", is_flag=True, help="Print JSON: key to value, source and detail.")
def show(file: Path, *, as_json: bool) -> None:
    """Print the settings in force with FILE, and where each came from. Secrets are masked."""
    settings = list(effective(load_settings(file, os.environ)))
    if as_json:
        click.echo(json.dumps({setting.key: _as_json(setting) for setting in settings}, indent=2))
    else:
        _print_table(settings)


@config.command()
@settings_file
@click.argument("addresses", metavar="ADDRESS...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: an object for each address.")
def route(file: Path, addresses: tuple[str, ...], *, as_json: bool) -> None:
    """Print where a message to these recipients goes with FILE: route, next hop, path of sites, hosts.

    Recipients with the same next hop share a copy. Exit status 1 if no route leads to one of them.
    """
    for address in addresses:
        if not all(address.rpartition("@")):
            raise click.BadParameter(f"{address} is no address", param_hint="ADDRESS")
    found = ways_of(load_settings(file, os.environ), addresses)
    if as_json:
        click.echo(json.dumps([asdict(way) for way in found], indent=2))
    else:
        _print_ways(found)
    if not all(way.route for way in found):
        raise SystemExit(1)


def _print_ways(found: list[RecipientWay]) -> None:
    from rich.table import Table

    table = Table("recipient", "route", "next hop", "path (cost)", "hosts", box=None, pad_edge=False)
    for way in found:
        path = f"{' → '.join(way.path)} ({way.cost})" if way.path else "–"
        hosts = "; then ".join(", ".join(group) for group in way.hosts)
        table.add_row(way.address, way.route or "no route", way.next_hop or "–", path, hosts or "–")
    _print(table)


def _as_json(setting: Effective) -> dict[str, object]:
    origin = setting.origin
    return {"value": setting.value, "source": origin.kind, "detail": origin.detail or None}


def _print_table(settings: list[Effective]) -> None:
    from rich.table import Table

    table = Table("setting", "value", "from", box=None, pad_edge=False)
    for setting in settings:
        table.add_row(setting.key, _as_text(setting.value), str(setting.origin))
    _print(table)


def _print(table: Table) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 240  # a pipe has no width: keep each row on one line, for grep
    console.print(table)


def _as_text(value: object) -> str:
    match value:
        case None | []:
            return "–"
        case bool():
            return str(value).lower()
        case list():
            return ", ".join(map(str, value))
        case _:
            return str(value)
