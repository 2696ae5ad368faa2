"""``shadowrelay safety-net``: shows the settled messages that a node still keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.message import print_message
from shadowrelay.cli.resubmit import TIMEOUT, asking
from shadowrelay.cli.selecting import selector_of, selector_options
from shadowrelay.cli.viewing import (
    console,
    list_messages,
    node_options,
    page_options,
    print_json,
    print_table,
)
from shadowrelay.shown.messages import KeptEntry, SafetyNetPage

COLUMNS = ("id", "delivered", "role", "owner", "sender", "recipients", "octets", "subject", "request")


@click.group("safety-net", short_help="Show the Safety Net of a node.")
def safety_net() -> None:
    """Show the Safety Net of a node: settled messages, kept for safety_net_hold_time."""


@safety_net.command("list")
@selector_options(required=False)
@page_options
@node_options
def list_settled(node: AdminClient, after: str | None, limit: int, *, as_json: bool, **given: Any) -> None:
    """One row per message: without conditions all messages, oldest first.

    With conditions: the messages that a resubmit request with the same conditions is about, by the time of
    their delivery. Both are found, what this node delivered (primary) and what it holds for others (shadow).

    \b
    What was delivered to a mailbox server in the last hour:
      shadowrelay safety-net list --since 1h --to mailbox1.example.net
    """
    selector = selector_of(given)
    if not selector:
        return list_messages(node, "safety_net", after, limit, as_json=as_json, empty="Safety Net is empty.")
    to = selector.pop("to", [])
    if len(to) > 1:
        raise click.UsageError("--to is given once here")
    asked = selector | ({"to": to[0]} if to else {})
    with asking():
        answer = replace(node, timeout=TIMEOUT).get(
            SafetyNetPage, "safety-net", after=after, limit=limit, **asked
        )
    if as_json:
        return print_json(answer)
    print_table(console(), COLUMNS, [_row(one) for one in answer["messages"]], "Safety Net has none.")
    if answer["next"]:
        click.echo(f"There are more: --after {answer['next']}", err=True)
    return None


def _row(one: KeptEntry) -> list[object]:
    return [
        one["id"] + (", damaged" if one["damaged"] else ""),
        one["settled_at"],
        one["role"],
        one["owner"],
        one["sender"] or "<>",
        [f"{to['address']} ({to['next_hop']}, {to['status']})" for to in one["recipients"]],
        one["size"],
        one["subject"],
        one["request"],
    ]


@safety_net.command()
@click.argument("message_id", metavar="ID")
@node_options
def show(node: AdminClient, message_id: str, *, as_json: bool) -> None:
    """Show everything that is known of message ID, wherever it is: shadowrelay message show."""
    print_message(node, message_id, as_json=as_json)
