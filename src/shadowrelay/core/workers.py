"""Workers: a node of several processes. Each worker is a member of the boundary by its own name.

The first worker has the name of the node, so a node of one worker is what it always was. The others are
``w2.NAME``, ``w3.NAME``, …; no node may have such a name.
"""

from __future__ import annotations

import re

from shadowrelay.core.identifiers import ServerName

MOST = 64
"""Workers of a node, at most."""

_WORKER = re.compile(r"w([2-9]|[1-9][0-9])\.(.+)", re.ASCII | re.IGNORECASE)


def worker_name(node: ServerName, number: int) -> ServerName:
    """The name of a worker; ``number`` counts from 1."""
    return node if number == 1 else ServerName(f"w{number}.{node}")


def node_of(member: ServerName) -> ServerName:
    """The node of which that member is a worker: its certificate, and its name to strangers."""
    found = _WORKER.fullmatch(member)
    return ServerName(found[2]) if found else member


def number_of(member: ServerName) -> int:
    """Which worker of its node that member is, from 1."""
    found = _WORKER.fullmatch(member)
    return int(found[1]) if found else 1
