"""``shadowrelay top``: shows what nodes do, live, on a terminal."""

from __future__ import annotations

import json
import os
import shutil
import sys
from datetime import UTC, datetime, timedelta

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.top_figures import NodesWatch, TopFrame, draw, figures, quantile
from shadowrelay.cli.viewing import duration, node_options, reporting, workers_option


def _others(context: click.Context, option: click.Parameter, urls: tuple[str, ...]) -> list[AdminClient]:
    del context
    try:
        return [AdminClient(url, os.environ.get("SHADOWRELAY_ADMIN_TOKEN") or None, 5.0) for url in urls]
    except ValueError as error:
        raise click.BadParameter(str(error), param=option) from None


@click.command(short_help="Show what nodes do, live.")
@click.option(
    "--node",
    "others",
    metavar="URL",
    multiple=True,
    callback=_others,
    help="The admin address of one more node. It may be given several times.",
)
@click.option(
    "--interval",
    callback=duration,
    metavar="DURATION",
    default="2s",
    show_default=True,
    help="How often the figures are looked at.",
)
@click.option("--once", is_flag=True, help="Print one frame as text, and end.")
@workers_option
@node_options
def top(
    node: AdminClient,
    others: list[AdminClient],
    interval: timedelta,
    *,
    once: bool,
    workers: bool,
    as_json: bool,
) -> None:
    """Show what nodes do: mail accepted, delivered, deferred and failed a second, how long a 250 takes, the
    queues, what is at risk, the members, and what is out of the ordinary as it happens.

    It reads the metrics and the events of the node of --admin, and of each --node; a token needs no more than
    the scope read. A node that does not answer is said to be away, and asked again. The figures of a node are
    the sums over its workers.

    Keys: q quits, p pauses, s sorts the queues by messages, age, or name.
    """
    seconds = max(0.2, interval.total_seconds())
    clients = [AdminClient(node.url, node.token, 5.0), *others]
    if not (once or as_json):
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise click.UsageError("this needs a terminal; without one, --once prints one frame")
        from shadowrelay.cli.top_app import TopApp  # textual is slow to import, and no other command needs it

        TopApp(NodesWatch(clients, seconds, workers=workers), seconds).run()
        return
    watch = NodesWatch(clients, seconds, workers=workers)
    with reporting():
        watch.once()
    if as_json:
        click.echo(json.dumps(_figures(watch), indent=2))
        return
    width = shutil.get_terminal_size((100, 24)).columns
    frame = TopFrame(nodes=watch.nodes, events=watch.events, now=datetime.now(UTC))
    for line in draw(frame, width):
        click.echo(click.style(line.text, bold=line.head, fg="red" if line.bad else None))


def _figures(watch: NodesWatch) -> dict[str, object]:
    nodes = watch.nodes
    every = figures(nodes)
    return {
        "per_second": every["rates"],
        "acknowledgement": {f"p{share}": quantile(share / 100, every["latency"]) for share in (50, 95, 99)},
        "exposed": every["waiting"]["exposed"],
        "at_risk": every["waiting"]["at_risk"],
        "queued": every["waiting"]["queued"],
        "queues": every["queues"],
        "nodes": [
            {"name": one.name, "url": one.url, "answers": not one.why, "why": one.why or one.silent}
            for one in nodes
        ],
    }
