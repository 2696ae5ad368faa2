"""Converts the routes of the settings to the form that core takes."""

from __future__ import annotations

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.reception.routing import Route
from shadowrelay.settings.schema import Settings


def routes(settings: Settings) -> tuple[Route, ...]:
    """One route for each next hop."""
    return tuple(
        Route(NextHop(name), tuple(route.domains), route.inside) for name, route in settings.routes.items()
    )
