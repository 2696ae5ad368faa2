"""What an operator sees and does at a node and from it, and what members may ask of it for that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol

from shadowrelay.admin.access import Access
from shadowrelay.admin.node import MemberStatus
from shadowrelay.admin.rates import Rates
from shadowrelay.core.delivery.hosts import Host, HostGroup
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.operating import Act, Scope, Told
from shadowrelay.core.reception.routing import Route
from shadowrelay.core.records import Record
from shadowrelay.core.safety_net.resubmission import Contacts
from shadowrelay.delivery.hosts import Hosts
from shadowrelay.members.pool import seconds
from shadowrelay.members.record_replication import RecordReplication
from shadowrelay.members.sharing import RULES
from shadowrelay.operator.acts import Action, ActRefused
from shadowrelay.operator.cluster_reload import ClusterReload, Reloads
from shadowrelay.operator.job_runner import JobRunner
from shadowrelay.operator.jobs import Jobs
from shadowrelay.operator.node_acts import NodeActs
from shadowrelay.operator.preview import Away
from shadowrelay.operator.queue_names import QueueNames
from shadowrelay.operator.resubmit import Having
from shadowrelay.operator.resubmit_estimate import RouteServer
from shadowrelay.operator.suspending import Suspending
from shadowrelay.operator.view import View
from shadowrelay.service.announcing import Announcing
from shadowrelay.service.certificates import Certificates
from shadowrelay.tracking.events import TrackingEvents
from shadowrelay.wire.xshadow import Malformed
from shadowrelay.workers.counts import ClusterWorkers
from shadowrelay.workers.leaving import Leaving

if TYPE_CHECKING:
    from shadowrelay.tracking.traces import Traces


class Rereads(Reloads, Protocol):
    """Reads the settings of this node again. ``warning``: what an operator has to know of the last time."""

    certificates: Certificates

    @property
    def warning(self) -> str: ...


@dataclass(slots=True, kw_only=True)
class OperatorServices:
    """What an operator may ask of one node, by its API and by XOPERATE."""

    access: Access  # who may ask
    events: TrackingEvents
    view: View  # what all nodes see
    rates: Rates  # what came in the last minutes
    reloading: ClusterReload
    queue_names: QueueNames
    jobs: Jobs
    suspensions: Suspending
    job_runner: JobRunner  # carries jobs out
    announcing: Announcing
    leaving: Leaving
    node_acts: NodeActs  # what another node does for an operator here
    workers: ClusterWorkers
    here: Callable[[], Rereads | None]  # what reads the settings again, once the node serves
    traces: Traces | None = None

    def certificates(self) -> Mapping[str, datetime]:
        """Until when each certificate of this node that is in use is valid, by its setting."""
        here = self.here()
        return here.certificates.valid_until if here else {}

    def actions(self) -> dict[str, Action]:
        """What members may ask of this node by XOPERATE."""
        asked = (self.view, self.reloading, self.jobs, self.suspensions, self.announcing, self.leaving)
        return {
            name: act for one in (*asked, self.node_acts, self.workers) for name, act in one.actions().items()
        }


@dataclass(frozen=True, slots=True)
class SharedRecords:
    """One node's. ``taken``: called with the kind of a record that a member gave."""

    _replication: RecordReplication
    _contacts: Callable[[], Contacts]
    _clock: Callable[[], datetime]
    _taken: Callable[[str], None]

    def actions(self) -> Mapping[str, Action]:
        """What members may ask of this node: to take a record."""
        return {kind: Action(Scope.OPERATE, partial(self._take, kind), quiet=True) for kind in RULES}

    async def _take(self, kind: str, member: ServerName, act: Act) -> Told:
        """Merge the record that a member gives. Raises ActRefused."""
        try:
            told = await self._replication.take(kind, member, act.arguments)
        except Malformed as error:
            raise ActRefused(str(error)) from error
        self._taken(kind)
        return told

    def having(self, record: Record) -> list[Having]:
        """Which members have it as it is now."""
        found, now = [], self._clock()
        for name in sorted(self._contacts().members):
            known = self._replication.given.get(name)
            if known is None or known.at is None:
                found.append(Having(member=name, has=False, why="it cannot be reached, or was not told yet"))
                continue
            told = {(id_, revision) for id_, revision, _ in known.news}
            why = known.refused.get(record.id, "")
            if not why and (record.id, record.revision) not in told:
                why = "it was not told of the last change yet"
            heard = now - timedelta(seconds=max(0.0, seconds() - known.at))
            found.append(Having(member=name, has=not why, at=heard, why=why))
        return found


def listed(routes: Iterable[Route], hosts: Hosts) -> tuple[RouteServer, ...]:
    """The hosts of the routes; for one whose hosts the DNS has, one without a host."""
    found = []
    for route in routes:
        ways = () if route.mx else hosts.ways(route.name)
        own = ways[0].hosts if ways and isinstance(ways[0], HostGroup) else (Host(route.name, "", 25),)
        found += [RouteServer(route.name, one.name.lower(), one.port, route.inside) for one in own]
    return tuple(found)


def away(statuses: Iterable[MemberStatus]) -> dict[ServerName, Away]:
    """The members as they were at the last attempt to reach them."""
    found = {}
    for one in statuses:
        error = one.error.removeprefix(f"{one.step}: ")
        found[one.name] = Away(one.since, f"{one.step}: {error}" if error else "it was not tried yet")
    return found
