"""Connects what operators do with resubmit requests to a node: its members, next hops and clocks."""

from __future__ import annotations

from collections.abc import Iterable

from shadowrelay.admin.node import MemberStatus
from shadowrelay.core.delivery.hosts import Host, HostGroup
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.reception.routing import Route
from shadowrelay.delivery.hosts import Hosts
from shadowrelay.operator.counting import RouteServer
from shadowrelay.operator.preview import Away


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
