"""Shows next hops to the admin API, from what the queue keeps in memory."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from shadowrelay.admin.node import HopStatus, HostStatus
from shadowrelay.core.delivery.hosts import Host, HostGroup
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.policy import Policy
from shadowrelay.delivery.attempt import Outbound
from shadowrelay.delivery.hosts import Hosts
from shadowrelay.members.suspended import Suspended

_PER_HOP, _IN_ALL = "max_per_domain_outbound_connections", "max_outbound_connections"


def hop_status(
    hops: Mapping[NextHop, Outbound],
    name: NextHop,
    policy: Policy,
    clock: float,
    now: datetime,
    hosts: Hosts | None = None,
    *,
    started_at: datetime | None = None,
    suspended: Suspended | None = None,
) -> HopStatus:
    """The status of one next hop. ``clock`` is the present moment on the loop's clock. ``started_at``: when
    this process began to send.
    """
    hop = hops.get(name) or Outbound(None)
    places, limit = (
        hop.places(clock, policy),
        "the next hop takes no more" if clock < hop.fewer_until else _PER_HOP,
    )
    in_all = policy.max_outbound_connections - sum(one.workers for one in hops.values()) + hop.workers
    if in_all < places:
        places, limit = in_all, _IN_ALL
    # One session probes the hop; sessions begun before it failed may still wait.
    if hop.probed and (alone := hop.workers - len(hop.probes) + 1) < places:
        places, limit = alone, "one session logs in first"
    waiting = [session.awaits for session in hop.busy if session.awaits.what]
    longest = min(waiting, key=lambda awaited: awaited.since, default=None)
    ended = [started_at, hop.retry_at, suspended.resumed_at(name) if suspended else None]
    return HopStatus(
        sessions=hop.workers,
        places=places,
        limit=limit,
        failures=hop.failures,
        error=hop.last_error,
        rests_until=hop.retry_at,
        awaits=longest.what if longest else "",
        awaits_since=now - timedelta(seconds=clock - longest.since) if longest else None,
        hosts=()
        if hosts is None
        else tuple(
            _host(hosts, hop, host, index, now)
            for index, group in enumerate(hosts.ways(name))
            for host in (group.hosts if isinstance(group, HostGroup) else hop.known.get(group, ()))
        ),
        suspension=suspended.by(name) if suspended else None,
        free_since=max(filter(None, ended), default=None),
    )


def _host(hosts: Hosts, hop: Outbound, host: Host, group: int, now: datetime) -> HostStatus:
    standing = hosts.standing(host)
    return HostStatus(
        host=str(host),
        route=host.route,
        group=group,
        preference=host.preference,
        weight=host.weight,
        sessions=hop.on.get(host, 0),
        failures=standing.failures,
        error=f"{standing.step}: {standing.error}" if standing.failures else "",
        rests_until=standing.rests_until if standing.resting(now) else None,
    )
