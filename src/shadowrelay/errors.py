"""How a process of a node says that it cannot go on."""

from __future__ import annotations

import os


class NodeFailed(Exception):
    """The node cannot go on; the message says why."""


def why(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


def cannot_listen(key: str, host: str, port: int, error: OSError) -> NodeFailed:
    """``key``: the table of the settings that says where to listen."""
    return NodeFailed(f"{key}.listen: cannot listen on {host} port {port}: {why(error)}")
