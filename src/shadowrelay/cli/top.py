"""``shadowrelay top``: shows what nodes do, live, on a terminal."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.top_figures import RATES, NodesWatch, draw, figures, quantile
from shadowrelay.cli.viewing import duration, node_options, reporting, workers_option
from shadowrelay.shown.reading import as_told, is_told


def _others(context: click.Context, option: click.Parameter, urls: tuple[str, ...]) -> list[AdminClient]:
    del context
    try:
        return [AdminClient(url, os.environ.get("SHADOWRELAY_ADMIN_TOKEN") or None, 5.0) for url in urls]
    except ValueError as error:
        raise click.BadParameter(str(error), param=option) from None


DEFAULT_FILE = "/etc/shadowrelay/settings.toml"


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

    It reads the metrics and the events of the node of --admin, and of each --node, and what the first knows
    of all members: a token needs no more than the scope read. Without --admin, the settings file of this
    machine says where the node is. A node that does not answer is said to be away, and asked again. The
    figures of a node are the sums over its workers.

    Keys: q quits, p pauses, s sorts the queues by messages, age, or name.
    """
    seconds = max(0.2, interval.total_seconds())
    given = click.get_current_context().get_parameter_source("node")
    if given is click.core.ParameterSource.DEFAULT:
        node = _of_settings() or node
    clients = [replace(node, timeout=5.0), *others]
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
        click.echo(json.dumps(as_told(_figures(watch)), indent=2))
        return
    width = shutil.get_terminal_size((100, 24)).columns
    for line in draw(watch.frame(datetime.now(UTC)), width):
        click.echo(click.style(line.text, bold=line.head, fg="red" if line.bad else None))


def _figures(watch: NodesWatch) -> dict[str, object]:
    nodes = watch.nodes
    every = figures(nodes)
    return {
        "per_second": {name: every["rates"].get(name) for name in RATES},
        "acknowledgement": {f"p{share}": quantile(share / 100, every["latency"]) for share in (50, 95, 99)},
        "exposed": every["waiting"]["exposed"],
        "at_risk": every["waiting"]["at_risk"],
        "queued": every["waiting"]["queued"],
        "queues": [{**one, **_of_hop(watch.hops.get(one["next_hop"], {}))} for one in every["queues"]],
        "held_back": list(watch.held_back),
        "pressure": list(watch.pressure),
        "nodes": [
            {"name": one.name, "url": one.url, "answers": not one.why, "why": one.why or one.silent}
            for one in nodes
        ],
    }


def _of_hop(told: Mapping[str, Any]) -> dict[str, object]:
    """The state of a queue, why, and how much it took in the last minute."""
    seen = {"state": told.get("status"), "reason": told.get("why"), "a_minute": told.get("rate")}
    return {name: value if is_told(value) else None for name, value in seen.items()}


def _of_settings() -> AdminClient | None:
    """The node of the settings file of this machine, if there is one that may be read."""
    # Imported here, because it imports pydantic, which `--help` does not need.
    from shadowrelay.settings import SETTINGS_PATH_VARIABLE, SettingsInvalid, load_settings

    file = Path(os.environ.get(SETTINGS_PATH_VARIABLE) or DEFAULT_FILE)
    try:
        admin = load_settings(file, os.environ).admin
    except (OSError, SettingsInvalid):
        return None
    host = "127.0.0.1" if admin.listen.host in ("", "0.0.0.0") else admin.listen.host  # noqa: S104
    at = f"[{host}]" if ":" in host else host
    token = os.environ.get("SHADOWRELAY_ADMIN_TOKEN") or (admin.token and admin.token.get_secret_value())
    return AdminClient(f"http://{at}:{admin.listen.port}", token or None)
