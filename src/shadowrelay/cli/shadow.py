"""``shadowrelay shadow``: shows the copies that a node holds for other members."""

from __future__ import annotations

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.viewing import console, node_options, print_json, print_table, reporting

_COLUMNS = ("queue", "messages", "oldest", "next hops", "primary", "next")


@click.group(short_help="Show the shadow queues of a node.")
def shadow() -> None:
    """Show the shadow queues of a node: copies held for other members. They are not backlog."""


@shadow.command("list")
@node_options
def list_shadows(node: AdminClient, *, as_json: bool) -> None:
    """One row per primary server, with what happens next to its messages."""
    with reporting():
        answer = node.get("shadow-queues")
    if as_json:
        return print_json(answer)
    rows = [
        [
            found["identity"],
            found["messages"],
            found["oldest"],
            [f"{hop['next_hop']} {hop['messages']}" for hop in found["next_hops"]],
            found["primary_state"].replace("_", " "),
            found["next"],
        ]
        for found in answer["shadow_queues"]
    ]
    print_table(console(), _COLUMNS, rows, "No copies are held for other members.")
    return None
