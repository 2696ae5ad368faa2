"""``shadowrelay queue``: shows the backlog of a node, by next hop."""

from __future__ import annotations

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.viewing import console, node_options, print_json, print_table, reporting

_COLUMNS = (
    "queue",
    "status",
    "messages",
    "due",
    "recipients",
    "exposed",
    "oldest",
    "next attempt",
    "why it waits",
)


@click.group(short_help="Show the queues of a node: the backlog.")
def queue() -> None:
    """Show the queues of a node: the backlog. Shadow queues are not part of it."""


@queue.command("list")
@node_options
def list_queues(node: AdminClient, *, as_json: bool) -> None:
    """One row per next hop: its next attempt, and why its mail waits.

    The column "due" counts messages that may be sent now and are not being sent.
    """
    with reporting():
        answer = node.get("queues")
    if as_json:
        return print_json(answer)
    rows = [
        [
            found["identity"],
            found["status"],
            found["messages"],
            found["waiting"],
            found["recipients"],
            found["exposed"],
            found["oldest"],
            found["next_attempt"],
            found["why"] or found["last_error"],
        ]
        for found in answer["queues"]
    ]
    print_table(console(), _COLUMNS, rows, "The queues are empty.")
    return None
