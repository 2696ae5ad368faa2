"""Checks whether the cluster is whole: all nodes answer and know each other, and all mail has two copies."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from shadowlab.cluster import Cluster
from shadowlab.layout import LabNode
from shadowlab.probing import NodeStatus, message, status
from shadowlab.processes import ProcessState

_OPEN = frozenset({"queued", "shadow", "set_aside"})


def ended(cluster: Cluster, names: Sequence[str]) -> list[str]:
    """The names of processes that do not run any more."""
    return [name for name in names if cluster.process(name).state is ProcessState.GONE]


def missing(nodes: Sequence[LabNode], since: float) -> str:
    """What the cluster lacks to be whole; empty if nothing.

    A contact counts if it is later than ``since``: before that, a node may count copies that are gone.
    """
    seen = {node.name: status(node) for node in nodes}
    for name, found in seen.items():
        short = name.partition(".")[0]
        if found is None:
            return f"{short} does not answer"
        for peer in found.peers:
            if not _met(peer, seen.get(str(peer["name"])), since):
                return f"{short} has not met {str(peer['name']).partition('.')[0]}"
        if found.exposed:
            return f"{short} has {found.exposed} exposed messages"
        if found.asking:
            return f"{short} still asks about {found.asking} messages"
        if found.promoting:
            return f"{short} has yet to promote {found.promoting} messages"
    return ""


def unsettled(nodes: Sequence[LabNode], ids: Collection[str]) -> set[str]:
    """The messages that some node has in transit or set aside."""
    return {
        one for one in ids if any((found := message(node, one)) and found["state"] in _OPEN for node in nodes)
    }


def backlog(nodes: Sequence[LabNode]) -> tuple[int, int] | None:
    """Messages in all queues, and copies held; None if a node does not answer."""
    seen = [status(node) for node in nodes]
    found = [one for one in seen if one is not None]
    if len(found) < len(seen):
        return None
    return sum(one.queued for one in found), sum(one.shadow_held for one in found)


def _met(peer: Mapping[str, Any], itself: NodeStatus | None, since: float) -> bool:
    if itself is None or peer["state"] != "reachable" or not peer["last_contact"]:
        return False
    known = peer["database_id"], peer["incarnation"]
    contact = datetime.fromisoformat(str(peer["last_contact"])).timestamp()
    return known == (itself.database_id, itself.incarnation) and contact >= since
