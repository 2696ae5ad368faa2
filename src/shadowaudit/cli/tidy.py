"""``shadowaudit tidy``."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import click

from shadowaudit.cli import beforehand
from shadowaudit.cli.tables import plainly
from shadowaudit.core.verdict import counted
from shadowaudit.spark import places
from shadowaudit.spark.tables import publishing, store
from shadowaudit.spark.tables.schemas import TABLES


@click.command("tidy")
@click.option("--tables", "uri", metavar="URI", required=True, help="Where `shadowaudit ingest` keeps them.")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="HOURS",
    help="From now on, earlier versions can be read for so long (at first 1).",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(uri: str, keep: int | None, *, as_json: bool) -> None:
    """Put small data files of the tables together, and remove those that no version that is kept has.

    Neither Java nor Spark is needed. Run it daily where `shadowaudit ingest --watch` goes on.
    """
    place = beforehand.tables_at(uri)
    with plainly():
        before = _files(store.current(uri))
        version = publishing.tidy(place, datetime.now(UTC), keep)
        after = _files(store.current(uri))
    if as_json:
        print(json.dumps({"tables": places.shown(uri), "version": version, "before": before, "files": after}))
    else:
        print(f"{counted(before, 'data file')} → {after:,} (version {version} of the tables)")


def _files(current: store.Current) -> int:
    return sum(len(current.files(name)) for name in TABLES)
