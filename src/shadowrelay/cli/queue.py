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

_HOSTS = (
    "queue",
    "host",
    "route",
    "preference",
    "weight",
    "sessions",
    "failures",
    "rests until",
    "last error",
)


_SHADOWS = ("shadow queue", "hop", "messages", "oldest", "failed heartbeats", "last error")


@click.group(short_help="Show the queues of a node: the backlog.")
def queue() -> None:
    """Show the queues of a node: the backlog. Shadow queues are not part of it."""


@queue.command("list")
@node_options
def list_queues(node: AdminClient, *, as_json: bool) -> None:
    """One row per next hop: its next attempt, and why its mail waits.

    The column "due" counts messages that may be sent now and are not being sent. A second table shows the
    hosts of next hops that have several. A third shows shadow queues of hops: mail that they took and have
    not delivered yet. It is no backlog.
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
    hosts = [
        [
            found["identity"],
            host["host"],
            host["route"],
            host["preference"],
            host["weight"],
            host["sessions"],
            host["failures"],
            host["rests_until"],
            host["last_error"],
        ]
        for found in answer["queues"]
        for host in found.get("hosts", ())
        if len(found["hosts"]) > 1
    ]
    if hosts:
        print_table(console(), _HOSTS, hosts, "")
    hops = [
        [
            found["identity"],
            found["state"].replace("_", " "),
            found["messages"],
            found["oldest"],
            found["failures"],
            found["error"],
        ]
        for found in answer.get("hop_shadow_queues", ())
    ]
    if hops:
        print_table(console(), _SHADOWS, hops, "")
    return None
