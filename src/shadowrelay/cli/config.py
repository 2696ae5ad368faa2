"""``shadowrelay config``: checks a settings file, shows the settings in force, or where mail goes."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shadowrelay.database.opening import FILE, switches_in
from shadowrelay.settings import (
    SETTINGS_PATH_VARIABLE,
    Effective,
    effective,
    load_settings,
    settings_warnings,
)
from shadowrelay.settings.certificates import certificates_ending
from shadowrelay.settings.data_directory import checked
from shadowrelay.settings.switched import told
from shadowrelay.settings.ways import RecipientWay, ways_of

if TYPE_CHECKING:
    from rich.table import Table

settings_file = click.argument(
    "file", type=click.Path(path_type=Path, dir_okay=False), envvar=SETTINGS_PATH_VARIABLE
)


@click.group(short_help="Check a settings file, show what is in force, where mail goes, or an example.")
def config() -> None:
    """Check a settings file, show the settings in force, or where mail goes; print an example, or a unit.

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
        *checked(settings, FILE),
        *settings_warnings(settings),
        *certificates_ending(settings, datetime.now(UTC)),
        *told(settings, switches_in(settings.data_dir)),
    ):
        click.echo(f"warning: {warning}", err=True)
    click.echo("OK")


_EXAMPLES = {
    "": ("head", "all", "receive", "inside", "world", "members"),
    "mx": ("head", "mx", "receive_mx", "inside", "members"),
    "outbound": ("head", "outbound", "receive", "world", "members"),
    "behind": ("head", "behind", "receive_behind", "world", "members"),
}
_INSTALLED = "/opt/shadowrelay/venv"
_ROOT = "/opt/shadowrelay"
_SETTINGS = "/etc/shadowrelay/settings.toml"


@config.command()
@click.option("--mx", "kind", flag_value="mx", help="It takes the mail of your domains from the Internet.")
@click.option("--outbound", "kind", flag_value="outbound", help="It sends your machines' mail to the world.")
@click.option("--behind", "kind", flag_value="behind", help="It stands behind another server, as Postfix.")
def example(kind: str | None) -> None:
    """Print a settings file with comments, for a node of that kind. Without an option it does both.

    To have a node: shadowrelay config example --mx >settings.toml, adapt it, shadowrelay config check
    settings.toml, shadowrelay run settings.toml.
    """
    for part in _EXAMPLES[kind or ""]:
        click.echo(_example(f"{part}.toml"), nl=False)


@config.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), default=_SETTINGS)
def unit(file: Path) -> None:
    """Print a systemd unit that runs the node with the settings FILE, by the program that prints it.

    Its user is shadowrelay, which has to exist: useradd --system shadowrelay.
    """
    where = Path(sys.prefix)
    program = where / "bin" / "shadowrelay"
    text = _example("shadowrelay.service").replace(_SETTINGS, _word(file.absolute()))
    root = where.parent if where.name in {"venv", ".venv"} and where.parent != where.parent.parent else where
    text = text.replace(f"ExecPaths={_ROOT} ", f"ExecPaths={_word(root)} ")
    click.echo(text.replace(f"{_INSTALLED}/bin/shadowrelay", _word(program)), nl=False)


def _word(path: Path) -> str:
    """A path as one word of a unit (systemd.syntax(7)): a percent sign begins a specifier there."""
    text = str(path).replace("%", "%%")
    if re.fullmatch(r"[^\s\"'\\\\]+", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _example(name: str) -> str:
    return resources.files("shadowrelay.cli").joinpath("examples", name).read_text("utf-8")


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
