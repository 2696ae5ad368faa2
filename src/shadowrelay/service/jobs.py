"""Connects jobs and suspended queues to a node: its members, its queue and its clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shadowrelay.core.identifiers import RequestId, ServerName
from shadowrelay.core.suspensions import Suspension
from shadowrelay.ids import mint
from shadowrelay.operator.acts import Action
from shadowrelay.operator.carrying import Carrying
from shadowrelay.operator.jobs import Jobs
from shadowrelay.operator.suspending import Suspending
from shadowrelay.operator.verbs import ReportWriter
from shadowrelay.service.resubmit import away

if TYPE_CHECKING:
    from shadowrelay.service.node import Node


class NodeJobs:
    """One node's. ``carrying`` is the stage that carries jobs out."""

    def __init__(self, node: Node) -> None:
        self._node = node
        node.replication.suspensions_read = self._suspensions_read
        self.jobs = Jobs(
            database=node.database,
            contacts=node.contacts,
            clock=node.clock,
            mint=mint,
            ask=node.members.operate,
            why_away=self._why_away,
            wake=self._job_changed,
            refusal=self._refusal,
        )
        self.suspensions = Suspending(
            database=node.database,
            contacts=node.contacts,
            clock=node.clock,
            mint=mint,
            ask=node.members.operate,
            why_away=self._why_away,
            share=node.replication.share,
            in_force=node.replication.look,
        )
        self.carrying = Carrying(
            database=node.database,
            writer=ReportWriter(node.reporter),
            contacts=node.contacts,
            clock=node.clock,
            try_now=lambda hop: node.queue.try_now(hop),  # noqa: PLW0108 – tests give a node another queue
            changed=lambda: node.queue.wake.set(),  # noqa: PLW0108
            tell=node.replication.wake.set,
        )

    def actions(self) -> dict[str, Action]:
        """What members may ask of this node."""
        return {**self.jobs.actions(), **self.suspensions.actions()}

    def _job_changed(self) -> None:
        self._node.replication.wake.set()
        self.carrying.wake.set()

    def _why_away(self, name: ServerName) -> str:
        found = away(self._node.member_statuses()).get(name)
        return found.why if found else "it is not in the settings"

    def _refusal(self, job: RequestId, name: ServerName) -> str:
        known = self._node.replication.given.get(name)
        return known.refused.get(job, "") if known else ""

    def _suspensions_read(self, records: Sequence[Suspension]) -> None:
        """What is on record is in force from now on."""
        if self._node.queue.suspended.take(records):
            self._node.acknowledgements.queues_suspended()
            self._node.queue.wake.set()
