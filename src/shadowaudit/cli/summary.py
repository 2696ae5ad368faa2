"""``shadowaudit summary``."""

from __future__ import annotations

import json
import os
import shutil
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from shadowaudit.cli import options
from shadowaudit.interruption import INTERRUPTED, putting_away
from shadowaudit.spark import places
from shadowaudit.spark.tables import store
from shadowaudit.summary import text
from shadowaudit.summary.computing import summarize
from shadowaudit.summary.gold import NoSuchNodeError, read
from shadowaudit.summary.model import Asked


class Day(click.ParamType[date]):
    """A day as ISO 8601, in UTC: the tables know no less."""

    name = "day"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> date:
        if isinstance(value, date):
            return value
        try:
            return datetime.strptime(str(value), "%Y-%m-%d").replace(tzinfo=UTC).date()
        except ValueError:
            self.fail(f"{value!r} is no day: write it as 2026-11-21 (UTC)", param, ctx)


@click.command("summary")
@click.option("--tables", "uri", metavar="URI", required=True, help="Where `shadowaudit ingest` keeps them.")
@click.option("--since", type=Day(), help="From this day on (2026-11-21, UTC).")
@click.option("--until", type=Day(), help="Only days before this one.")
@click.option("--node", metavar="NAME", help="Only what this node did.")
@click.option(
    "--top",
    default=10,
    show_default=True,
    type=click.IntRange(min=1),
    help="Show so many domains, next hops and reasons.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a page with charts, too.",
)
def command(
    uri: str,
    since: date | None,
    until: date | None,
    node: str | None,
    top: int,
    *,
    as_json: bool,
    html: Path | None,
) -> None:
    """Sum up the mail in the tables: volume, domains, sizes, latencies, deferrals, bounces, promotions.

    Neither Java nor Spark is needed. A day is one in UTC. Exit status: 0, or 2 if the tables cannot be read.
    """
    if since is not None and until is not None and since >= until:
        raise click.UsageError("--until has to be later than --since: there is no day in between")
    asked = Asked(since=since, until=until, node=node, top=top)
    shown = places.shown(uri)
    try:
        current = store.current(uri)
        summary = summarize(read(current, asked), asked)
    except (store.TablesError, NoSuchNodeError) as problem:
        raise options.Refused(str(problem)) from None
    except (OSError, pa.ArrowInvalid) as problem:
        raise options.Refused(f"the tables in {shown} cannot be read: {problem}") from None
    version = current.version
    if html is not None:
        from shadowaudit.summary.page import page

        _write(html, page(summary, shown, version, current.made_at))
    if as_json:
        told = {"tables": shown, "version": version, "made_at": current.made_at, **summary.as_dict()}
        print(json.dumps(told, ensure_ascii=False))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print("\n".join(text.lines(summary, shown, version, width)))


def _write(path: Path, page: str) -> None:
    """Whole or not at all."""
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with putting_away():
            try:
                made.write_text(page, "utf-8")
                made.replace(path)
            finally:
                made.unlink(missing_ok=True)
    except OSError as problem:
        raise options.Refused(f"{path}: {problem.strerror or problem}") from None
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
