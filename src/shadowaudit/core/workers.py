"""Workers of a node: processes with a log each. The first has the node's name, the others are ``wK.NAME``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_WORKER = re.compile(r"w(?:[2-9]|[1-9][0-9])\.(?P<node>.+)", re.ASCII | re.IGNORECASE)


def node_of(name: str) -> str:
    """The node of which a server of that name is a worker, if the name is a worker's; else the name."""
    found = _WORKER.fullmatch(name)
    return found["node"] if found else name


def nodes_of(names: Iterable[str]) -> Mapping[str, str]:
    """The node of each of these servers. A name like a worker's is one if its node is among them: others,
    such as Exchange's, name their servers as they like.
    """
    every = set(names)
    return {name: node if (node := node_of(name)) in every else name for name in every}


def label(name: str) -> str:
    """A short name: the first label of the node's, with the worker before it unless that is the first."""
    node = node_of(name)
    worker = name[: len(name) - len(node)]
    return worker + node.partition(".")[0]
