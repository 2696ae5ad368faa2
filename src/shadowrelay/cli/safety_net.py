"""``shadowrelay safety-net``: shows the settled messages that a node still keeps."""

from __future__ import annotations

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.viewing import list_messages, node_options, page_options


@click.group("safety-net", short_help="Show the Safety Net of a node.")
def safety_net() -> None:
    """Show the Safety Net of a node: settled messages, kept for safety_net_hold_time."""


@safety_net.command("list")
@page_options
@node_options
def list_settled(node: AdminClient, after: str | None, limit: int, *, as_json: bool) -> None:
    """One row per message, oldest first."""
    list_messages(node, "safety_net", after, limit, as_json=as_json, empty="Safety Net is empty.")
