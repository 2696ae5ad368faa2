"""Routing: which route, and so which next hop, a recipient takes by its domain."""

from __future__ import annotations

from collections.abc import Iterable

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.reception.sites import site_hop
from shadowrelay.core.spelling import canonical, specificity
from shadowrelay.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Route:
    """A name for a next hop and the domains that go there.

    A domain is ``example.net`` (only that name), ``*.example.net`` or ``.example.net`` (every name below it,
    at any depth, but not itself), or ``*`` (every name that no other route covers). ``inside``: the next hop
    belongs to the boundary. ``mx``: the DNS has the hosts of each domain, so each domain has a queue of
    its own. ``site``: the domains belong to that site, which is not ours, and the mail goes there.
    """

    name: NextHop
    domains: tuple[str, ...]
    inside: bool = False
    mx: bool = False
    site: str = ""


def route_for(address: str, routes: Iterable[Route]) -> Route | None:
    """The most specific route for an address: for its own domain, the closest domain above, or the default.

    Of two equally specific routes the first counts. An address literal (``user@[192.0.2.1]``) takes only the
    default route. None: no route matches, or the address has no domain.
    """
    local, _, domain = address.rpartition("@")
    if not local or not domain:
        return None
    literal = domain.startswith("[")
    name = canonical(domain)
    best: tuple[int, Route] | None = None
    for route in routes:
        for pattern in route.domains:
            weight = specificity("" if literal else name, pattern)
            if weight and (best is None or weight > best[0]):
                best = (weight, route)
    return best[1] if best else None


def next_hop_for(route: Route, address: str) -> NextHop:
    """The next hop of a recipient on that route: ``ROUTE``, ``ROUTE/DOMAIN`` if the DNS has the hosts, or
    ``site/SITE`` if its domains belong to another site. ``sites.fanned_out`` joins those that share a path.
    """
    if route.site:
        return site_hop(route.site)
    if not route.mx:
        return route.name
    return NextHop(f"{route.name}/{canonical(address.rpartition('@')[2])}")


def next_hop_of(address: str, routes: Iterable[Route]) -> NextHop | None:
    """The next hop of an address by these routes; None if none of them takes it."""
    route = route_for(address, routes)
    return next_hop_for(route, address) if route else None


def postmaster_domain(own: str, accepted: Iterable[str]) -> str:
    """The domain of ``postmaster`` without a domain, which every server accepts (RFC 5321 section 4.5.1).

    It is ``own``, the server's name, if that is an accepted domain; else the first domain named in full; else
    ``own``.
    """
    domains = tuple(accepted)
    if any(specificity(canonical(own), domain) for domain in domains):
        return own
    return next((domain for domain in domains if not domain.startswith(("*", "."))), own)
