"""``shadowrelay config``: checks a settings file, or shows the settings in force."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from shadowrelay.settings import (
    SETTINGS_PATH_VARIABLE,
    Effective,
    effective,
    load_settings,
    settings_warnings,
)

settings_file = click.argument(
    "file", type=click.Path(path_type=Path, dir_okay=False), envvar=SETTINGS_PATH_VARIABLE
)


@click.group(short_help="Check a settings file, or show the settings in force.")
def config() -> None:
    """Check a settings file, or show the settings in force.

    SHADOWRELAY_* environment variables count, as they do when the node starts.
    """


@config.command()
@settings_file
def check(file: Path) -> None:
    """Print OK, or every error of FILE; exit status 0 or 2."""
    settings = load_settings(file, os.environ)
    for warning in settings_warnings(settings):
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


def _as_json(setting: Effective) -> dict[str, object]:
    origin = setting.origin
    return {"value": setting.value, "source": origin.kind, "detail": origin.detail or None}


def _print_table(settings: list[Effective]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("setting", "value", "from", box=None, pad_edge=False)
    for setting in settings:
        table.add_row(setting.key, _as_text(setting.value), str(setting.origin))
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 200  # a pipe has no width: keep each setting on one line, for grep
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
