"""The operator's hand of a node: what its admin API and its console see and act through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from shadowrelay.admin.access import Access
from shadowrelay.admin.looking import Looking
from shadowrelay.ids import mint
from shadowrelay.members.pool import seconds
from shadowrelay.operator.acts import Action
from shadowrelay.operator.reloading import ClusterReload
from shadowrelay.operator.view import View
from shadowrelay.service.announcing import Announcing
from shadowrelay.service.jobs import NodeJobs
from shadowrelay.settings.outputs import tokens_of
from shadowrelay.settings.workers import workers_in
from shadowrelay.tracking.events import TrackingEvents
from shadowrelay.tracking.tail import LogDirectory
from shadowrelay.workers.counts import ClusterWorkers
from shadowrelay.workers.leaving import Leaving
from shadowrelay.workers.worker import RELOADED

if TYPE_CHECKING:
    from shadowrelay.service.node import Node
    from shadowrelay.tracking.traces import Traces


class Hand:
    """One node's, made once by it as ``node.hand``. ``view``: what all nodes see. ``access``: who may ask.
    ``events``: its tracking events.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.access = Access(tuple(tokens_of(node.settings.admin)))
        self.traces: Traces | None = None
        self.tell_supervisor: Callable[[bytes], None] = lambda _: None  # of a worker: on its lifeline
        directory = node.settings.tracking.directory
        self.events = TrackingEvents(LogDirectory(directory, node.name, lambda: node.database.lineage))
        self.view = View(
            name=node.name,
            looks=Looking(node, node.clock, seconds).looks(),
            members=lambda: node.contacts().members,
            reachable=node.boundary.reachable,
            ask=node.members.operate,
            mint=mint,
            clock=node.clock,
            seconds=seconds,
        )
        self.reloading = ClusterReload(
            name=node.name,
            here=lambda: node.reloading,
            members=lambda: node.contacts().members,
            ask=node.members.operate,
            mint=mint,
            clock=node.clock,
            told=lambda: self.tell_supervisor(RELOADED),
        )
        made = NodeJobs(node)
        self.jobs, self.suspensions, self.carrying = made.jobs, made.suspensions, made.carrying
        self._of_jobs = made.actions()
        self.announcing = Announcing(node)
        self.leaving = Leaving(
            name=node.name,
            clock=node.clock,
            database=node.database,
            boundary=node.boundary,
            ask=node.members.operate,
            redirecting=node.redirecting,
            drain=node.begin_drain,
            remains=node.remains,
            sessions=lambda: sum(one.sessions for one in node.connectors),
            repair=node.repair.wake.set,
        )
        self.workers = ClusterWorkers(
            name=node.name,
            clock=node.clock,
            database=node.database,
            boundary=node.boundary,
            membership=node.membership,
            ask=node.members.operate,
            count=lambda: workers_in(node.settings),
        )

    def certificates(self) -> Mapping[str, datetime]:
        """Until when each certificate of this node that is in use is valid, by its setting."""
        reloading = self._node.reloading
        return reloading.certificates.valid_until if reloading else {}

    def actions(self) -> dict[str, Action]:
        """What members may ask of this node by XOPERATE."""
        return {
            **self.view.actions(),
            **self.reloading.actions(),
            **self._of_jobs,
            **self.announcing.actions(),
            **self.leaving.actions(),
            **self.workers.actions(),
        }
