"""Connects what operators do with resubmit requests to a node: its members, next hops and clocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from shadowrelay.admin.node import MemberStatus
from shadowrelay.core.delivery.hosts import Host, HostGroup
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.reception.routing import Route
from shadowrelay.core.requests import Request
from shadowrelay.core.switches import Switch
from shadowrelay.delivery.hosts import Hosts
from shadowrelay.operator.counting import RouteServer
from shadowrelay.operator.preview import Away
from shadowrelay.operator.resubmit import Having
from shadowrelay.safety_net.pace import Given


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


def having(
    record: Request | Switch,
    given: Mapping[ServerName, Given],
    members: Iterable[ServerName],
    now: datetime,
    clock: float,
) -> list[Having]:
    """Which members have a record as it is now. ``clock``: the present moment on the clock of ``given``."""
    found = []
    for name in sorted(members):
        known = given.get(name)
        if known is None or known.at is None:
            found.append(Having(member=name, has=False, why="it cannot be reached, or was not told yet"))
            continue
        told = {(id_, revision) for id_, revision, _ in known.news}
        why = known.refused.get(record.id, "")
        if not why and (record.id, record.revision) not in told:
            why = "it was not told of the last change yet"
        heard = now - timedelta(seconds=max(0.0, clock - known.at))
        found.append(Having(member=name, has=not why, at=heard, why=why))
    return found
