"""``shadowaudit ingest``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from shadowaudit.cli import options
from shadowaudit.cli.progress import Shown
from shadowaudit.engine.ingest import ingest
from shadowaudit.engine.session import session
from shadowaudit.logs.manifest import find
from shadowaudit.logs.state import State


@click.command("ingest")
@options.places
@click.option(
    "--state",
    "state_dir",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where it is kept. On a cluster: a directory that all machines see under this path.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
@options.engine
def command(
    places: tuple[Path, ...], state_dir: Path, engine: str, master: str | None, memory: str, *, as_json: bool
) -> None:
    """Read the closed logs below DIR that are new, and keep what they say. Run it as often as you like.

    Then: shadowaudit verify --state DIR. A file that comes late is merged like any other.
    """
    if not places:
        raise click.UsageError("say where the logs are: shadowaudit ingest DIR… --state DIR")
    with options.told():
        shown = Shown()
        files = find(places)
        state = State(state_dir)
        state.create()
        fresh = [file for file in files if state.known(file) is None]
        if fresh:
            with (
                shown.step(f"Reading {len(fresh)} new files"),
                session(engine, master=master, memory=memory) as opened,
            ):
                shown.session = opened
                ingest(lambda: opened, state, files, slices=options.cores())
        options.tell_of_open_logs(shown, places)
    if as_json:
        print(json.dumps({"files": len(files), "new": len(fresh)}))
    else:
        print(f"{len(fresh)} new files read, {len(files) - len(fresh)} were known")
