"""``shadowaudit verify``."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from shadowaudit.cli import options
from shadowaudit.cli.ending import Ending, between_turns
from shadowaudit.cli.engines import chosen, started
from shadowaudit.cli.options import Places
from shadowaudit.cli.progress import Shown
from shadowaudit.core.facts import FileFacts
from shadowaudit.core.findings import MEANING, Severity
from shadowaudit.core.verdict import INCOMPLETE, PROVEN, VIOLATED, Verdict, counted
from shadowaudit.interruption import insisting
from shadowaudit.logs.manifest import NoLogsError, passed_over

if TYPE_CHECKING:
    from shadowaudit.audit import Audit, Question


@click.command("verify")
@options.places
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("audit"),
    show_default=True,
    help="Where verdict.json, the tables and report.html go.",
)
@click.option(
    "--state",
    "state_dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep what was read, and read only files that are new.",
)
@click.option(
    "--tables",
    metavar="URI",
    help="Publish what is found with the tables there (ingest --tables makes them).",
)
@click.option(
    "--since", type=options.Moment(), help="Only messages received from then on (2026-11-21T10:00Z)."
)
@click.option("--until", type=options.Moment(), help="Only messages received before.")
@click.option(
    "--allow-open",
    is_flag=True,
    help="Nodes are running: what is open at the end of their newest databases' logs is counted, not held "
    "against them.",
)
@click.option(
    "--lost",
    multiple=True,
    type=options.Lost(),
    metavar="DATABASE-ID|NODE",
    help="This database's disk was lost, or set back, and the end of its log with it; or this node's disk, "
    "with all its workers. Repeat for each.",
)
@options.watching
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
@click.option("--no-report", is_flag=True, help="Write the tables, but no report.html.")
@options.engine("Spark with --master, under spark-submit or for a URI; else here.")
def command(
    places: tuple[Path | str, ...],
    out: Path,
    state_dir: Path | None,
    tables: str | None,
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
      2  usage: nothing to read, no engine; or the audit itself failed
      3  not provable: rows, files, nodes or the end of a log are missing (the report says which), or no
         message was received in the time asked for

    With --watch, Ctrl-C ends it after the verdict under way, with that one's status. Without, Ctrl-C gives
    none, and status 130.

    A disk that was lost takes the end of its log with it, which looks like a file that somebody removed. Say
    --lost with its database id (HARECEIVE and RESUBMIT rows of other nodes name it), or with the name of the
    node: then all databases that its workers have no more. It is excused as far as holders promoted what it
    had. The proof is then of the messages in the logs, and says what is in none.

    What is counted is what the logs show: a delivery whose reply never came, and rows in the end of a log
    that is lost, are not counted as duplicates.
    """
    if not places and state_dir is None:
        raise click.UsageError("say where the logs are: shadowaudit verify DIR…")
    if watch and state_dir is None:
        raise click.UsageError("--watch needs --state DIR, to read each file once")
    if not places and state_dir is not None and not state_dir.exists():
        raise click.UsageError(f"there is no state in {state_dir}: say where the logs are, or where it is")
    if since is not None and until is not None and since >= until:
        raise click.UsageError("--until has to be later than --since: no message is received in between")
    asked = options.Places.of(places)
    name = chosen(engine, master=master, elsewhere=bool(asked.elsewhere), keeping=state_dir is not None)
    status = options.USAGE
    with options.told(), ExitStack() as stack:
        shown = Shown()
        files = asked.found(watch=watch, shown=shown) if places else []
        if watch:
            options.tell_of_packed_logs(shown, asked.here)
        else:
            options.refuse_packed_logs(asked.here, partial(_read_before, state_dir))
        if tables is not None:
            from shadowaudit.cli.tables import publish, there_are

            there_are(tables)
        out.mkdir(parents=True, exist_ok=True)
        if places and not files:  # before an engine is started for nothing
            shown.tell("no closed log yet: waiting for one")
        scratch = out / ".scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        octets = sum(file.size for file in files)
        begun = started(name, shown, scratch, octets=octets, master=master, memory=memory)
        runs = stack.enter_context(begun)
        # Loaded while the processes of the engine load what they need.
        with insisting():
            from shadowaudit.audit import Audit, Question
            from shadowaudit.logs.state import State
            from shadowaudit.report.page import write_report
        question = Question(lost=lost, allow_open=allow_open, since=since, until=until)
        ending = stack.enter_context(between_turns()) if watch else None
        audit = Audit(runs, out, shown, State(state_dir) if state_dir is not None else None)
        for verdict in _verdicts(audit, asked, question, ending, interval=interval):
            options.tell_of_open_logs(shown, asked.open_logs())
            if not no_report:
                write_report(out, verdict)
            if tables is not None:
                shown.tell(publish(tables, out))
            if as_json:
                print(json.dumps(verdict.as_dict(), ensure_ascii=False), flush=True)
            else:
                at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}" if watch else ""
                show(verdict, out, Console(), report=not no_report, at=at)
            status = verdict.status
    sys.exit(status)


def _read_before(state_dir: Path | None) -> set[str]:
    """The logs that the state remembers."""
    if state_dir is None or not state_dir.exists():
        return set()
    from shadowaudit.logs.state import State

    return {one.path for one in State(state_dir).all()}


def _verdicts(
    audit: Audit, places: Places, question: Question, ending: Ending | None, *, interval: float
) -> Iterator[Verdict]:
    """One verdict; with ``ending`` one whenever there is something new, until an end is asked for."""
    before: list[FileFacts] = []
    while True:
        opened = places.open_logs()  # first: they may be closed meanwhile
        facts = _facts(audit, places, watch=ending is not None)
        if facts != before:
            before = facts
            over = passed_over(places.here)
            yield audit.verify(facts, replace(question, opened=opened, passed_over=over))
        if ending is None or ending.wait(interval):
            return


def _facts(audit: Audit, places: Places, *, watch: bool) -> list[FileFacts]:
    """Of all that is there, and all that the state remembers: nodes delete old files."""
    files = places.found(watch=watch) if places.here or places.elsewhere else []
    if audit.state is None:
        return audit.read(files)
    audit.state.create()
    read = audit.read(files) if files else []
    known = {one.path: one for one in audit.state.all()} | {one.path: one for one in read}
    if not known and not watch:
        raise NoLogsError(f"{audit.state.directory} remembers no log: say which directories to read")
    return [known[path] for path in sorted(known)]


_COLOUR = {Severity.VIOLATION: "red", Severity.UNPROVEN: "yellow", Severity.NOTE: "cyan"}
_SIGN = {PROVEN: "[bold green]✓", VIOLATED: "[bold red]✗", INCOMPLETE: "[bold yellow]?"}
_MOST = 12


def show(verdict: Verdict, out: Path, console: Console, *, report: bool, at: str = "") -> None:
    """The verdict in a sentence, what it leaves out, then why: problems first, then what is allowed.

    ``at``: the time, where one verdict follows another.
    """
    totals = verdict.totals
    given_back = f"{many:,} given back; " if (many := totals.get("resubmitted", 0)) else ""
    console.print(
        f"{at}{' ' if at else ''}{_SIGN[verdict.status]} {escape(verdict.sentence)}[/]",
        highlight=False,
        soft_wrap=True,
    )
    for caveat in verdict.caveats:
        console.print(f"  not in the proof: {escape(caveat)}", highlight=False, style="dim", soft_wrap=True)
    console.print(
        f"{counted(verdict.files, 'file')} of {verdict.servers}: "
        f"{counted(totals.get('rows', 0), 'row')} about "
        f"{counted(totals.get('messages', 0), 'message')}; {totals.get('delivered', 0):,} deliveries; "
        f"{given_back}{totals.get('suspects', 0):,} judged row by row",
        highlight=False,
        soft_wrap=True,
    )
    for gap in verdict.evidence.gaps[:_MOST]:
        console.print(f"[yellow]missing[/] {escape(gap.what)}", highlight=False, soft_wrap=True)
        console.print(
            f"        {escape(gap.where)}: {escape(gap.so)}", highlight=False, style="dim", soft_wrap=True
        )
    if len(verdict.evidence.gaps) > _MOST:
        console.print(
            f"        and {len(verdict.evidence.gaps) - _MOST:,} more: see verdict.json", style="dim"
        )
    if verdict.classes:
        console.print(_table(verdict))
    for note in verdict.evidence.notes:
        console.print(f"[cyan]note[/] {escape(note)}", highlight=False, soft_wrap=True)
    name = "report.html" if report else "verdict.json"
    console.print(f"Report: {escape(str(out / name))}", highlight=False, soft_wrap=True)
    console.print(escape(verdict.work), highlight=False, style="dim", soft_wrap=True)


def _table(verdict: Verdict) -> Table:
    table = Table("", "found", "means", box=None, pad_edge=False)
    for what, many in verdict.found:
        colour = _COLOUR[verdict.severity(what)]
        table.add_row(f"{many:,}", f"[{colour}]{what}[/]", MEANING[what][1])
    return table
