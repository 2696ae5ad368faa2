"""Reports the state of a lab at this moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from shadowlab import network
from shadowlab.cluster import Cluster
from shadowlab.layout import MAILBOX, LabNode, Manner, Way
from shadowlab.probing import NodeStatus, mailbox_answers, status
from shadowlab.processes import ProcessState


class Condition(StrEnum):
    """The state of a process. SILENT: it runs and does not answer yet. DRAINED: it takes and has no mail."""

    UP = "up"
    DRAINING = "draining"
    DRAINED = "drained"
    SILENT = "silent"
    FROZEN = "frozen"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node. ``status`` is None unless the node answers."""

    node: LabNode
    condition: Condition
    status: NodeStatus | None


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """Every node, the mailbox server, and what is cut between the nodes."""

    nodes: tuple[NodeReport, ...]
    mailbox: Condition
    refusing: bool
    cuts: Mapping[Way, Manner]

    def tree(self) -> dict[str, Any]:
        """The report for ``shadowlab status --json``."""
        return {
            "nodes": [
                {
                    "name": report.node.name,
                    "site": report.node.site,
                    "pid": report.node.pid if report.condition is not Condition.DOWN else None,
                    "state": report.condition.value,
                    "status": asdict(report.status) if report.status else None,
                }
                for report in self.nodes
            ],
            "mailbox": {"state": self.mailbox.value, "refusing": self.refusing},
            "cuts": [
                {"from": way.source, "to": way.target, "manner": manner.value}
                for way, manner in self.cuts.items()
            ],
        }


def look(cluster: Cluster) -> ClusterReport:
    """Report on a lab: ask the kernel and the nodes. Raises LabError."""
    at = cluster.layout
    addresses = (at.mailbox.inside, at.mailbox.outside)
    state = cluster.process(MAILBOX).state
    answers = state is ProcessState.RUNNING and all(map(mailbox_answers, addresses))
    return ClusterReport(
        tuple(look_at(cluster, node) for node in at.nodes),
        _condition(state, answers=answers),
        cluster.refusing,
        network.read_cuts(cluster.directory),
    )


def look_at(cluster: Cluster, node: LabNode) -> NodeReport:
    """Report on one node. Does not ask a frozen node: it would not answer."""
    state = cluster.process(node.short).state
    found = status(node) if state is ProcessState.RUNNING else None
    if found and found.draining:
        return NodeReport(node, Condition.DRAINED if found.drained else Condition.DRAINING, found)
    return NodeReport(node, _condition(state, answers=found is not None), found)


def _condition(state: ProcessState, *, answers: bool) -> Condition:
    match state:
        case ProcessState.GONE:
            return Condition.DOWN
        case ProcessState.FROZEN:
            return Condition.FROZEN
        case ProcessState.RUNNING:
            return Condition.UP if answers else Condition.SILENT
