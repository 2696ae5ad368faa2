"""Completes words in a shell: what a node that answers at once can name."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import click

from shadowrelay.admin.client import AdminClient, ApiError

_PATIENCE = 1.0  # seconds


def hops_here(context: click.Context, option: click.Parameter, begun: str) -> list[str]:
    """The next hops that have mail."""
    del option
    return _named(context, begun, "queues", "next_hop")


def members_here(context: click.Context, option: click.Parameter, begun: str) -> list[str]:
    """The other members."""
    del option
    return _named(context, begun, "peers", "name")


def _named(context: click.Context, begun: str, what: str, key: str) -> list[str]:
    node = context.params.get("node")
    url = (
        node.url
        if isinstance(node, AdminClient)
        else os.environ.get("SHADOWRELAY_ADMIN", "http://127.0.0.1:8025")
    )
    with suppress(ApiError, ValueError, KeyError):
        asked = AdminClient(url, os.environ.get("SHADOWRELAY_ADMIN_TOKEN") or None, _PATIENCE)
        return [
            name for one in asked.get(dict[str, Any], what)[what] if (name := str(one[key])).startswith(begun)
        ]
    return []
