"""Where the settings send recipients: what ``shadowrelay config route`` shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shadowrelay.core.delivery.hosts import Group, HostGroup
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Recipient
from shadowrelay.core.reception.routing import next_hop_for, route_for
from shadowrelay.core.reception.sites import fanned_out
from shadowrelay.settings.routing import routes
from shadowrelay.settings.schema import Settings
from shadowrelay.settings.sites import hop_groups, ways


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipientWay:
    """Where one of the recipients of a message goes.

    ``route`` is '' if none leads to its domain. ``path``: the sites behind ours, up to ``site``, which is
    where its domain belongs; at that ``cost``; '' and none if it is no other site. ``hosts``: groups, tried
    in this order; ``MX`` stands for those that the DNS has.
    """

    address: str
    route: str
    next_hop: NextHop
    site: str = ""
    path: tuple[str, ...] = ()
    cost: int = 0
    hosts: tuple[tuple[str, ...], ...] = ()


def ways_of(settings: Settings, addresses: Sequence[str]) -> list[RecipientWay]:
    """Where the recipients of one message go: those with the same next hop share a copy."""
    paths, groups = ways(settings), hop_groups(settings)
    routed = [route_for(address, routes(settings)) for address in addresses]
    recipients = fanned_out(
        [
            Recipient(number, address, next_hop_for(route, address) if route else NextHop(""))
            for number, (address, route) in enumerate(zip(addresses, routed, strict=True), 1)
        ],
        paths,
    )
    found = []
    for one, route in zip(recipients, routed, strict=True):
        path = paths.get(route.site) if route else None
        found.append(
            RecipientWay(
                address=one.address,
                route=route.name if route else "",
                next_hop=one.next_hop,
                site=route.site if route else "",
                path=path.sites if path else (),
                cost=path.cost if path else 0,
                hosts=tuple(_hosts(group) for group in groups(one.next_hop)),
            )
        )
    return found


def _hosts(group: Group) -> tuple[str, ...]:
    return tuple(str(host) for host in group.hosts) if isinstance(group, HostGroup) else ("MX",)
