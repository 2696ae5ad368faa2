"""Converts the routes of the settings to the form that core takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shadowrelay.core.delivery.hosts import Host, RouteHosts
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.reception.routing import Route, next_hop_of
from shadowrelay.reception.recipient_files import BookLimits
from shadowrelay.settings.schema import RouteSettings, Settings


def routes(settings: Settings) -> tuple[Route, ...]:
    """One route for each next hop."""
    return tuple(
        Route(
            NextHop(name),
            tuple(route.domains),
            route.inside,
            route.mx,
            site=route.site if route.site and route.site != settings.site else "",
        )
        for name, route in settings.routes.items()
    )


def route_hosts(settings: Settings) -> dict[NextHop, RouteHosts]:
    """Where each route leads."""
    return {NextHop(name): _hosts(NextHop(name), route) for name, route in settings.routes.items()}


def _hosts(name: NextHop, route: RouteSettings) -> RouteHosts:
    named = tuple(
        Host(name, one.address.host, one.address.port, one.preference, one.weight) for one in route.hosts
    )
    alone = (Host(name, route.host, route.port),) if route.host is not None else ()
    return RouteHosts(
        name,
        () if route.mx else named or alone,
        mx=route.mx,
        port=route.port,
        alternatives=tuple(NextHop(other) for other in route.alternatives),
    )


def standing(settings: Settings) -> dict[NextHop, str]:
    """The machine on which each next hop stands, where a route says so."""
    return {NextHop(name): route.machine for name, route in settings.routes.items() if route.machine}


def journals(settings: Settings) -> dict[NextHop, tuple[str, NextHop]]:
    """For each next hop whose mail is journaled: the address of the journal, and the next hop of that one."""
    ways = routes(settings)
    found = {}
    for name, route in settings.routes.items():
        address = (settings.journal if route.journal is None else route.journal) or ""
        if next_hop := next_hop_of(address, ways):
            found[NextHop(name)] = (address, next_hop)
    return found


def promotion(settings: Settings) -> Callable[[Sequence[NextHop]], list[NextHop]]:
    """From the next hops of a message to those that take it in place of a slow one, in the order of the
    settings: transport servers that track it for us. They must relay for every domain.

    The journal of a message goes by its next hops, so only a server with the same journal takes it.
    """
    journal = journals(settings)
    servers = [
        NextHop(name) for name, route in settings.routes.items() if route.send_xshadow and not route.mx
    ]

    def found(targets: Sequence[NextHop]) -> list[NextHop]:
        wanted = {journal.get(NextHop(hop.partition("/")[0])) for hop in targets}
        return [server for server in servers if wanted <= {journal.get(server)}]

    return found


def book_limits(settings: Settings) -> BookLimits:
    """What the settings say about the recipients file."""
    return BookLimits(
        settings.recipient_delimiter or "",
        most_depth=settings.max_list_depth,
        most_members=settings.max_list_members,
    )
