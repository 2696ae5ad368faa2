"""Options that name messages in Safety Net: a window of delivery time, and conditions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from shadowrelay.cli.viewing import Command, moment

CONDITIONS = ("to", "sender", "recipient", "message_id", "network_message_id")


def selector_options(*, required: bool) -> Callable[[Command], Command]:
    """The options of a selector. ``required``: the window has to be given."""

    def decorate(command: Command) -> Command:
        options = [
            click.option(
                "--since",
                metavar="TIME",
                callback=moment,
                required=required,
                help="Delivered at this time or later: 2026-11-26T09:00:00Z, or 2h for two hours ago.",
            ),
            click.option(
                "--until",
                metavar="TIME",
                callback=moment,
                required=required,
                help="Delivered at this time or before.",
            ),
            click.option(
                "--to",
                metavar="ROUTE|SERVER",
                multiple=True,
                help="By this route, or to this next-hop server (HOST or HOST:PORT). May be repeated.",
            ),
            click.option("--sender", metavar="ADDRESS", help="From this address, *@DOMAIN, or <>."),
            click.option("--recipient", metavar="ADDRESS", help="To this address, or *@DOMAIN."),
            click.option("--message-id", metavar="ID", help="With this Message-ID header field."),
            click.option("--network-message-id", metavar="UUID", help="The message with this id."),
        ]
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def selector_of(given: dict[str, Any]) -> dict[str, Any]:
    """The selector as the API takes it, without what is not given. Raises UsageError."""
    since, until = given["since"], given["until"]
    if since and until and since >= until:
        raise click.UsageError("--since has to be earlier than --until")
    if until and until > datetime.now(until.tzinfo):
        raise click.UsageError("--until has to be in the past: mail is brought back that was delivered")
    found: dict[str, Any] = {name: given[name] for name in CONDITIONS if given[name]}
    if "to" in found:
        found["to"] = list(found["to"])
    times = {"since": since, "until": until}
    return found | {name: at.isoformat().replace("+00:00", "Z") for name, at in times.items() if at}
