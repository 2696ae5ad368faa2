"""Shows next hops to the admin API, from what the queue keeps in memory."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from shadowrelay.admin.node import HopStatus
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.policy import Policy
from shadowrelay.delivery.attempt import Outbound

_PER_HOP, _IN_ALL = "max_per_domain_outbound_connections", "max_outbound_connections"


def hop_status(
    hops: Mapping[NextHop, Outbound], name: NextHop, policy: Policy, clock: float, now: datetime
) -> HopStatus:
    """The status of one next hop. ``clock`` is the present moment on the loop's clock."""
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
    return HopStatus(
        sessions=hop.workers,
        places=places,
        limit=limit,
        failures=hop.failures,
        error=hop.last_error,
        rests_until=hop.retry_at,
        awaits=longest.what if longest else "",
        awaits_since=now - timedelta(seconds=clock - longest.since) if longest else None,
    )
