"""``shadowaudit ingest --tables``: the logs as tables, by Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib import import_module, metadata
from pathlib import Path

from shadowaudit.cli import beforehand, options
from shadowaudit.cli.ending import Ending, between_turns
from shadowaudit.cli.progress import Shown
from shadowaudit.core.verdict import counted
from shadowaudit.logs.manifest import open_logs
from shadowaudit.spark import places
from shadowaudit.spark.tables import store
from shadowaudit.spark.tables.findings import publish_findings
from shadowaudit.spark.tables.logs import Known
from shadowaudit.spark.tables.store import TablesError

Counts = tuple[int, int, int]
"""Logs, events and messages."""

_NAMED = 5  # logs with rows that cannot be read: the table `files` has all


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
    here = options.Places.of(where).here
    kept = "the tables are as they were"
    with options.told(f"interrupted: {kept}", what="ingest", so=kept), plainly(), ExitStack() as stack:
        shown = Shown()
        place = beforehand.tables_at(uri)
        beforehand.apart(place, where)
        current = store.state(place)
        if every:
            beforehand.awaited(where, shown)
        logs = [] if every else beforehand.found(where)
        options.tell_of_packed_logs(shown, here)

        def tell(version: int, counts: Counts, unread: Mapping[str, int]) -> None:
            tell_of_turn(version, counts, sum(unread.values()), as_json=as_json, timed=every is not None)
            tell_of_problems(shown, unread)
            options.tell_of_open_logs(shown, open_logs(here))

        if not every and current.version and not Known.of(current).new(logs):
            tell(current.version, (0, 0, 0), {})  # without Spark: quick
            return
        beforehand.writable(place)
        with shown.step("Starting Spark"):
            opened = stack.enter_context(
                import_module("shadowaudit.spark.session").session("spark", master=master, memory=memory)
            )
        shown.tasks = import_module("shadowaudit.spark.engine").Tasks(opened).now
        step = None if every else shown.step  # who watches sees each turn when it is done
        keeping = import_module("shadowaudit.spark.tables.ingest").Ingest.opened(opened, uri, step)
        if every:
            ending = stack.enter_context(between_turns())
            if _are_there(named, ending, every):
                import_module("shadowaudit.spark.tables.stream").follow(
                    keeping,
                    named,
                    lambda told: tell(told.version, told.counts, told.unread),
                    seconds=every,
                    ended=ending.wait,
                )
            return
        for told in keeping.batch(logs, lambda: datetime.now(UTC)):
            tell(told.version, told.counts, told.unread)


def there_are(uri: str) -> None:
    """Tables to publish something with: to be known before an audit begins."""
    with plainly():
        store.current(uri)


def publish(uri: str, out: Path) -> str:
    """Publish what an audit found with the tables at ``uri``. Returns a sentence that says so."""
    with plainly():
        version = publish_findings(uri, out, datetime.now(UTC))
    return f"Published: version {version} of the tables in {places.shown(uri)} has this verdict"


def _are_there(named: Sequence[str], ending: Ending, interval: float) -> bool:
    """True as soon as there are the places; False if an end was asked for before."""
    while True:
        try:
            places.find(named)
        except FileNotFoundError:
            if ending.wait(interval):
                return False
        else:
            return True


def tell_of_problems(shown: Shown, unread: Mapping[str, int]) -> None:
    """Say what is in no sum. ``unread``: how many rows of which log."""
    if unread:
        most = sorted(unread.items(), key=lambda one: (-one[1], one[0]))
        named = ", ".join(f"{uri} ({many:,})" for uri, many in most[:_NAMED])
        more = f" and {counted(len(most) - _NAMED, 'more file')}" if len(most) > _NAMED else ""
        them = "it" if sum(unread.values()) == 1 else "them"
        shown.tell(
            f"note: {counted(sum(unread.values()), 'row')} could not be read, and no sum has {them}: "
            f"{named}{more}. The column `problem` of the table `events` says why"
        )


def tell_of_turn(version: int, counts: Counts, unread: int, *, as_json: bool, timed: bool) -> None:
    """Print what a turn did, or that nothing was new. ``timed``: with the time, for it goes on."""
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if as_json:
        many = dict(zip(("logs", "events", "messages"), counts, strict=True))
        print(json.dumps({"at": now, "version": version, **many, "unreadable": unread}), flush=True)
        return
    spark = ".".join(metadata.version("pyspark").split(".")[:2])
    told = (counted(many, what) for many, what in zip(counts, ("file", "event", "message"), strict=True))
    what = " → ".join(told) if counts[0] else "nothing new"
    at = f"{now} " if timed else ""
    print(f"{at}Spark {spark}: {what} (version {version} of the tables)", flush=True)


@contextmanager
def plainly() -> Iterator[None]:
    """What a user can mend, as a sentence."""
    try:
        yield
    except (TablesError, FileNotFoundError) as problem:
        raise options.Refused(str(problem)) from None
