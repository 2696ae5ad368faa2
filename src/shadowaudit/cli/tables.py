"""``shadowaudit ingest --tables``: the logs as tables, by Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import astuple
from datetime import UTC, datetime
from importlib import import_module, metadata
from pathlib import Path

import click

from shadowaudit.cli import options
from shadowaudit.cli.ending import Ending, between_turns
from shadowaudit.cli.progress import Shown
from shadowaudit.core.verdict import counted
from shadowaudit.spark import places
from shadowaudit.spark.places import Log
from shadowaudit.spark.tables import store
from shadowaudit.spark.tables.findings import publish_findings
from shadowaudit.spark.tables.logs import Known
from shadowaudit.spark.tables.store import Place, TablesError


def keep(
    where: Sequence[Path | str],
    uri: str,
    *,
    master: str | None,
    memory: str,
    as_json: bool,
    every: float | None,
) -> None:
    """Read the logs that the tables lack, and tell of it; if told, ``every`` so many seconds."""
    named = [str(one) for one in where]
    with options.told("interrupted: the tables are as they were"), _plainly(), ExitStack() as stack:
        shown = Shown()
        place = Place.of(uri)
        manifest = place.manifest()
        logs = [] if every else places.find(named)
        if not every and not Known.of(place, manifest).new(logs):
            _tell(manifest.version, 0, 0, 0, as_json=as_json)  # without Spark: quick
            return
        with shown.step("Starting Spark"):
            opened = stack.enter_context(
                import_module("shadowaudit.spark.session").session("spark", master=master, memory=memory)
            )
        shown.tasks = import_module("shadowaudit.spark.tasks").Tasks(opened).now
        step = None if every else shown.step  # who watches sees each turn when it is done
        keeping = import_module("shadowaudit.spark.tables.ingest").Ingest.opened(opened, uri, step)
        if every:
            ending = stack.enter_context(between_turns())
            if _awaited(named, shown, ending, every):
                import_module("shadowaudit.spark.tables.stream").follow(
                    keeping,
                    named,
                    lambda told: _tell(*astuple(told), as_json=as_json),
                    seconds=every,
                    ended=ending.wait,
                )
            return
        for told in keeping.batch(logs, lambda: datetime.now(UTC)):
            _tell(*astuple(told), as_json=as_json)


def there_are(uri: str) -> None:
    """Tables to publish something with: to be known before an audit begins."""
    with _plainly():
        store.current(uri)


def publish(uri: str, out: Path) -> None:
    """Publish what an audit found with the tables at ``uri``."""
    with _plainly():
        publish_findings(uri, out, datetime.now(UTC))


def _awaited(named: Sequence[str], shown: Shown, ending: Ending, interval: float) -> list[Log]:
    """The logs there are, as soon as there are the places; none if an end was asked for before."""
    waiting = False
    while True:
        try:
            return places.find(named)
        except FileNotFoundError as problem:
            if not waiting:
                shown.tell(f"waiting for logs: {problem}")
            waiting = True
        if ending.wait(interval):
            return []


def _tell(version: int, logs: int, events: int, messages: int, *, as_json: bool) -> None:
    if as_json:
        told = {"version": version, "logs": logs, "events": events, "messages": messages}
        print(json.dumps(told), flush=True)
        return
    spark = ".".join(metadata.version("pyspark").split(".")[:2])
    counts = (counted(logs, "file"), counted(events, "event"), counted(messages, "message"))
    what = " → ".join(counts) if logs else "nothing new"
    print(f"Spark {spark}: {what} (version {version} of the tables)", flush=True)


@contextmanager
def _plainly() -> Iterator[None]:
    """What a user can mend, as a sentence."""
    try:
        yield
    except (TablesError, FileNotFoundError) as problem:
        raise _Refused(str(problem)) from None


class _Refused(click.ClickException):
    exit_code = options.USAGE
