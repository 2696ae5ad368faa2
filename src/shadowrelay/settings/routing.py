"""The routes of the settings, as core takes them."""

from __future__ import annotations

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.reception.routing import Route
from shadowrelay.settings.schema import Settings


def routes(settings: Settings) -> tuple[Route, ...]:
    """One for each next hop."""
    return tuple(
        Route(NextHop(name), tuple(route.domains), route.inside) for name, route in settings.routes.items()
    )
