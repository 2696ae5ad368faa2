"""``shadowaudit ingest``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from shadowaudit.audit import Audit
from shadowaudit.cli import options
from shadowaudit.cli.ending import between_turns
from shadowaudit.cli.progress import Shown
from shadowaudit.engine.choice import Chosen
from shadowaudit.logs.manifest import Found, open_logs
from shadowaudit.logs.state import State


@click.command("ingest")
@options.places
@click.option(
    "--state",
    "state_dir",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where it is kept. On a cluster: a directory that all machines see under this path.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
@options.watching
@options.engine
def command(
    places: tuple[Path, ...],
    state_dir: Path,
    engine: str,
    master: str | None,
    memory: str,
    *,
    as_json: bool,
    watch: bool,
    interval: float,
) -> None:
    """Read the closed logs below DIR that are new, and keep what they say. Run it as often as you like.

    Then: shadowaudit verify --state DIR. A file that comes late is merged like any other.
    """
    if not places:
        raise click.UsageError("say where the logs are: shadowaudit ingest DIR… --state DIR")
    with options.told("interrupted: what was read is kept"), ExitStack() as stack:
        shown = Shown()
        state = State(state_dir)
        state.create()
        files = options.found(places, watch=watch, shown=shown)
        options.tell_of_packed_logs(shown, places)
        ending = audit = None
        if watch or _fresh(state, files):
            chosen = stack.enter_context(Chosen(engine, shown.step, master, memory))
            shown.session = lambda: chosen.opened
            audit = Audit(chosen, state, state_dir, shown, cores=options.cores())
            ending = stack.enter_context(between_turns()) if watch else None
        while True:
            fresh = _fresh(state, files)
            if fresh and audit:
                audit.read(files)
                audit.settle()
            if fresh or not watch:
                options.tell_of_open_logs(shown, open_logs(places))
                _tell(len(files), len(fresh), as_json=as_json)
            if ending is None or ending.wait(interval):
                return
            files = options.found(places, watch=watch)


def _fresh(state: State, files: Sequence[Found]) -> list[Found]:
    return [file for file in files if state.known(file) is None]


def _tell(files: int, new: int, *, as_json: bool) -> None:
    text = (
        json.dumps({"files": files, "new": new})
        if as_json
        else f"{new} new files read, {files - new} were known"
    )
    print(text, flush=True)
