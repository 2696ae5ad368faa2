"""Workers: a node of several processes. Each worker is a member of the boundary by its own name.

The first worker has the name of the node, so a node of one worker is what it always was. The others are
``w2.NAME``, ``w3.NAME``, …; no node may have such a name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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


def is_later_worker(member: str) -> bool:
    """Does the name alone say that it is a worker? The first one has the name of its node."""
    return number_of(ServerName(member)) > 1


def label(member: str) -> str:
    """A short name: the first label of the node's, with the worker before it, unless that is the first."""
    number, first = number_of(ServerName(member)), node_of(ServerName(member)).partition(".")[0]
    return first if number == 1 else f"w{number}.{first}"


def workers_called(names: Sequence[str]) -> str:
    """``worker 2``, ``workers 2 and 3``."""
    numbers = [str(number_of(ServerName(name))) for name in names]
    listed = " and ".join(filter(None, (", ".join(numbers[:-1]), numbers[-1])))
    return f"worker{'' if len(numbers) == 1 else 's'} {listed}"
