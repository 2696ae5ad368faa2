"""``shadowaudit ingest``."""

from __future__ import annotations

import json
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import click

from shadowaudit.audit import Audit
from shadowaudit.cli import options
from shadowaudit.cli.ending import between_turns
from shadowaudit.cli.engines import AUTO, SPARK, chosen, started
from shadowaudit.cli.progress import Shown
from shadowaudit.cli.tables import keep
from shadowaudit.core.verdict import counted
from shadowaudit.logs.state import State


@click.command("ingest")
@options.places
@click.option(
    "--state",
    "state_dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where it is kept, on this machine.",
)
@click.option("--tables", metavar="URI", help="Keep events, messages and sums there as tables, by Spark.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
@options.watching
@options.engine("with --tables always Spark, with --state always here. No other fits.")
def command(
    places: tuple[Path | str, ...],
    state_dir: Path | None,
    tables: str | None,
    engine: str,
    master: str | None,
    memory: str,
    *,
    as_json: bool,
    watch: bool,
    interval: float,
) -> None:
    """Read the closed logs below DIR that are new, and keep what they say. Run it as often as you like.

    With --state: for shadowaudit verify --state DIR. With --tables: for queries, shadowaudit summary and
    whatever reads Delta tables; the work is always Spark's. A file that comes late is merged like any other.
    """
    asked = options.Places.of(places)
    if not places:
        raise click.UsageError("say where the logs are: shadowaudit ingest DIR… --state DIR")
    if tables is not None and state_dir is None:
        if engine not in (AUTO, SPARK):
            raise click.UsageError("--tables needs Spark: leave out --engine")
        seconds = interval if watch else None
        keep(places, tables, master=master, memory=memory, as_json=as_json, every=seconds)
        return
    if state_dir is None or tables is not None:
        raise click.UsageError("say where it is kept: --state DIR, or --tables URI")
    kept = "what was read is kept"
    name = chosen(engine, master=master, elsewhere=bool(asked.elsewhere), keeping=True)
    with options.told(f"interrupted: {kept}", what="ingest", so=kept), ExitStack() as stack:
        shown = Shown()
        state = State(state_dir)
        state.create()
        files = asked.found(watch=watch, shown=shown)
        options.tell_of_packed_logs(shown, asked.here)
        scratch = state_dir / "scratch"
        octets = sum(file.size for file in files)
        begun = started(name, shown, scratch, octets=octets, master=master, memory=memory)
        runs = stack.enter_context(begun)
        ending = stack.enter_context(between_turns()) if watch else None
        audit = Audit(runs, state_dir, shown, state)
        while True:
            fresh = [file for file in files if state.known(file) is None]
            if fresh:
                audit.read(files)
                audit.settle()
            if fresh or not watch:
                options.tell_of_open_logs(shown, asked.open_logs())
                _tell(len(files), len(fresh), as_json=as_json, timed=watch)
            if ending is None or ending.wait(interval):
                return
            files = asked.found(watch=watch)


def _tell(files: int, new: int, *, as_json: bool, timed: bool) -> None:
    """``timed``: with the time, for it goes on."""
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    text = f"{now} " if timed else ""
    text += f"{counted(new, 'new file')} read, {files - new:,} known"
    print(json.dumps({"at": now, "files": files, "new": new}) if as_json else text, flush=True)
