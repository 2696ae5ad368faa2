"""Converts the routes of the settings to the form that core takes."""

from __future__ import annotations

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.reception.routing import Route, next_hop_for, route_for
from shadowrelay.settings.schema import Settings


def routes(settings: Settings) -> tuple[Route, ...]:
    """One route for each next hop."""
    return tuple(
        Route(NextHop(name), tuple(route.domains), route.inside) for name, route in settings.routes.items()
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
        if way := route_for(address, ways):
            found[NextHop(name)] = (address, next_hop_for(way, address))
    return found
