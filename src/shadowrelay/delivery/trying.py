"""Ends the rests of next hops and their hosts, because an operator wants their mail tried now."""

from __future__ import annotations

from collections.abc import Mapping

from shadowrelay.core.delivery.hosts import HostGroup
from shadowrelay.core.filtering import in_queue
from shadowrelay.core.identifiers import NextHop
from shadowrelay.delivery.attempt import Outbound
from shadowrelay.delivery.hosts import Hosts


def end_rests(hops: Mapping[NextHop, Outbound], hosts: Hosts, wanted: NextHop) -> None:
    """Let that next hop, or all next hops of that route, be tried now. Failures are remembered: one session
    goes first.
    """
    for name, outbound in hops.items():
        if in_queue(wanted, name):
            outbound.retry_at = None
            hosts.end_rests(host for some in outbound.known.values() for host in some)
            for group in hosts.ways(name):
                if isinstance(group, HostGroup):
                    hosts.end_rests(group.hosts)
