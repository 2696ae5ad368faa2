"""Converts the sites of the settings to the form that core takes, and checks them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from shadowrelay.core.delivery.hosts import Group, Host, HostGroup, Ways, groups
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.reception.sites import SiteLink, SitePath, paths, site_hop, site_of, stops
from shadowrelay.settings.errors import SettingError
from shadowrelay.settings.routing import route_hosts
from shadowrelay.settings.schema import Settings


def links(settings: Settings) -> tuple[SiteLink, ...]:
    return tuple(SiteLink(tuple(link.sites), link.cost) for link in settings.site_links)


def ways(settings: Settings) -> dict[str, SitePath]:
    """The path to each site of the table ``sites`` but our own; empty if there is none."""
    return {
        site: way for site, way in paths(settings.site, links(settings)).items() if site in settings.sites
    }


def stops_to(settings: Settings, site: str) -> tuple[str, ...]:
    """The sites whose hosts are tried for mail to that one, in order; empty if no path leads there."""
    way = ways(settings).get(site)
    hubs = [name for name, one in settings.sites.items() if one.hub]
    return stops(way, hubs) if way else ()


def hop_groups(settings: Settings) -> Ways:
    """From a next hop to its groups of hosts: those of a route, or of the sites to try for a site."""
    routes = route_hosts(settings)
    sites: dict[NextHop, tuple[Group, ...]] = {
        site_hop(site): tuple(_hosts(settings, stop) for stop in stops_to(settings, site))
        for site in ways(settings)
    }

    @lru_cache(maxsize=1024)
    def found(next_hop: NextHop) -> tuple[Group, ...]:
        return groups(next_hop, routes) if site_of(next_hop) is None else sites.get(next_hop, ())

    return found


def _hosts(settings: Settings, site: str) -> HostGroup:
    hop = site_hop(site)
    return HostGroup(tuple(Host(hop, one.host, one.port) for one in settings.sites[site].hosts))


def site_checks(settings: Settings, refuse: Callable[..., SettingError]) -> Iterator[SettingError]:
    """Errors of sites, of their links, and of the routes that name them."""
    known = {settings.site, *settings.sites}
    listed = f"one of {', '.join(sorted(known))}"
    same: dict[str, str] = {}
    for site in sorted(known):
        if (other := same.setdefault(site.lower(), site)) != site:
            yield refuse(f"sites.{site}", f"differs from {other} in upper and lower case alone")
    for index, link in enumerate(settings.site_links):
        key = f"site_links[{index}].sites"
        if len(set(link.sites)) < len(link.sites):
            yield refuse(key, "names a site twice", value=", ".join(link.sites))
        for site in link.sites:
            if site not in known:
                yield refuse(key, "there is no such site", value=site, allowed=listed)
    reached = ways(settings)
    for site in settings.sites:
        if site != settings.site and site not in reached:
            yield refuse(
                f"sites.{site}",
                f"no site_links lead there from {settings.site}, which is the site of this node",
            )
    for name, route in settings.routes.items():
        if route.site is not None and route.site not in known:
            yield refuse(f"routes.{name}.site", "there is no such site", value=route.site, allowed=listed)
