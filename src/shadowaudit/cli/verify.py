"""``shadowaudit verify``."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from shadowaudit.audit import Audit, Question
from shadowaudit.cli import options
from shadowaudit.cli.progress import Shown
from shadowaudit.cli.shown import show
from shadowaudit.core.facts import FileFacts
from shadowaudit.engine.session import session
from shadowaudit.logs.manifest import NoLogsError, find
from shadowaudit.logs.state import State
from shadowaudit.report.page import write_report


@click.command("verify")
@options.places
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("audit"),
    show_default=True,
    help="Where verdict.json, the tables and report.html go.",
)
@click.option(
    "--state",
    "state_dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep what was read, and read only files that are new.",
)
@click.option(
    "--since", type=options.Moment(), help="Only messages received from then on (2026-11-21T10:00Z)."
)
@click.option("--until", type=options.Moment(), help="Only messages received before.")
@click.option(
    "--allow-open",
    is_flag=True,
    help="Nodes are running: what is open at the end of a log is counted, not held against it.",
)
@click.option(
    "--lost",
    multiple=True,
    metavar="DATABASE-ID",
    help="This database's disk was lost, and the end of its log with it. Repeat for each.",
)
@click.option("--watch", is_flag=True, help="Go on: judge again whenever a log is closed. Needs --state.")
@click.option("--interval", default=10.0, show_default=True, help="Seconds between two looks, with --watch.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
@click.option("--no-report", is_flag=True, help="Write the tables, but no report.html.")
@options.engine
def command(
    places: tuple[Path, ...],
    out: Path,
    state_dir: Path | None,
    engine: str,
    master: str | None,
    memory: str,
    *,
    since: int | None,
    until: int | None,
    allow_open: bool,
    lost: tuple[str, ...],
    watch: bool,
    interval: float,
    as_json: bool,
    no_report: bool,
) -> None:
    """Prove from the logs below DIR that no acknowledged message was lost or doubled, or find the others.

    Give the directories of all nodes: what one node's log cannot tell, another's can.

    \b
    Exit status:
      0  proven
      1  the promise was broken: see violations.csv
      2  usage: nothing to read, no engine
      3  not provable: rows, files, nodes or the end of a log are missing (the report says which)

    A disk that was lost takes the end of its log with it, which looks like a file that somebody removed. Say
    --lost with its database id (HARECEIVE and RESUBMIT rows of other nodes name it): it is excused as far as
    holders promoted what it had.
    """
    if not places and state_dir is None:
        raise click.UsageError("say where the logs are: shadowaudit verify DIR…")
    if watch and state_dir is None:
        raise click.UsageError("--watch needs --state DIR, to read each file once")
    question = Question(lost=lost, allow_open=allow_open, since=since, until=until)
    with options.told():
        shown = Shown()
        state = State(state_dir or out / ".state")
        if state_dir is None:
            shutil.rmtree(state.directory, ignore_errors=True)
        if places:
            find(places)  # before an engine is started for nothing
        with shown.step(f"Starting {engine}"):
            opening = session(engine, master=master, memory=memory)
            opened = opening.__enter__()
        shown.session = opened
        audit = Audit(opened, state, out, shown, cores=options.cores())
        try:
            status = 0
            for verdict in _verdicts(audit, places, question, watch=watch, interval=interval):
                options.tell_of_open_logs(shown, places)
                if not no_report:
                    write_report(out, verdict)
                if as_json:
                    print(json.dumps(verdict.as_dict(), ensure_ascii=False), flush=True)
                else:
                    show(verdict, out, Console(), report=not no_report)
                status = verdict.status
        finally:
            opening.__exit__(None, None, None)
            if state_dir is None:
                shutil.rmtree(state.directory, ignore_errors=True)
    sys.exit(status)


def _verdicts(
    audit: Audit, places: Sequence[Path], question: Question, *, watch: bool, interval: float
) -> Any:
    """One verdict, or one after another until Ctrl-C."""
    before: list[FileFacts] | None = None
    while True:
        facts = _facts(audit, places, empty_is_fine=watch)
        if facts != before:
            before = facts
            yield audit.verify(facts, question)
        if not watch:
            return
        try:
            time.sleep(interval)
        except KeyboardInterrupt:
            return


def _facts(audit: Audit, places: Sequence[Path], *, empty_is_fine: bool) -> list[FileFacts]:
    """Of all that is there, and all that the state remembers: nodes delete old files."""
    audit.state.create()
    read: list[FileFacts] = []
    if places:
        try:
            read = audit.read(find(places))
        except NoLogsError:
            if not empty_is_fine:
                raise
    known = {one.path: one for one in audit.state.all()} | {one.path: one for one in read}
    if not known and not empty_is_fine:
        raise NoLogsError(f"{audit.state.directory} remembers no log: say which directories to read")
    return [known[path] for path in sorted(known)]
