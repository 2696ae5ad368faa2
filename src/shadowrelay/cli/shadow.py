"""``shadowrelay shadow``: shows the copies that a node holds for other members."""

from __future__ import annotations

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.viewing import (
    console,
    has_siblings,
    needs,
    node_options,
    of_this_node,
    print_json,
    print_table,
    reporting,
    workers_option,
)
from shadowrelay.core.workers import is_later_worker
from shadowrelay.shown.nodes import queues
from shadowrelay.shown.queues import ShadowQueueEntry, ShadowQueuesPage
from shadowrelay.shown.status import StatusEntry

_COLUMNS = ("queue", "messages", "oldest", "next hops", "primary", "next")


@click.group(short_help="Show the shadow queues of a node.")
def shadow() -> None:
    """Show the shadow queues of a node: copies held for other members. They are not backlog."""


@shadow.command("list")
@workers_option
@node_options
def list_shadows(node: AdminClient, *, workers: bool, as_json: bool) -> None:
    """One row per primary server, with what happens next to its messages.

    The workers of a node are one: those that hold copies, and those that own the messages.
    """
    with reporting():
        page = node.get(ShadowQueuesPage, "shadow-queues")
        needs(page, "shadow_queues")
        answer = page if workers else {"shadow_queues": _of_nodes(node, page["shadow_queues"])}
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


def _of_nodes(node: AdminClient, found: list[ShadowQueueEntry]) -> list[ShadowQueueEntry]:
    """What all workers of this node hold, by the node that owns it."""
    status = node.get(StatusEntry, "status")
    if not has_siblings(status) and not any(is_later_worker(one["primary"]) for one in found):
        return found
    held: list[ShadowQueueEntry] = queues(of_this_node(node, "queues"))[0]["shadow_queues"]
    return held
