"""Checks where routes lead: their hosts, their alternatives, and the name servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ipaddress import ip_address

from shadowrelay.settings.errors import SettingError
from shadowrelay.settings.schema import RouteSettings, Settings

Refuse = Callable[..., SettingError]

RESERVED = frozenset({"local", "site"})
"""Names of next hops that are no routes (docs/decisions/0034-from-hop-to-hop.md)."""


_NOT_TO_STRANGERS = "with mx the DNS names the hosts, and the login would go to each of them"


def route_checks(settings: Settings, refuse: Refuse) -> Iterator[SettingError]:
    """Errors of where routes lead, and of the table ``dns``."""
    for name, route in settings.routes.items():
        key = f"routes.{name}"
        if name in RESERVED:
            yield refuse(key, "no route may have this name", allowed="any other name")
        yield from _ways(key, route, refuse, elsewhere=route.site not in (None, settings.site))
        for other in route.alternatives:
            if wrong := _unfit(settings, name, other):
                yield refuse(f"{key}.alternatives", wrong, value=other)
    for index, server in enumerate(settings.dns.servers):
        if not _is_address(server.host):
            yield refuse(f"dns.servers[{index}]", "not an IP address", value=server, allowed="address:port")


def _ways(key: str, route: RouteSettings, refuse: Refuse, *, elsewhere: bool) -> Iterator[SettingError]:
    """Check that a route has exactly one of host, hosts and mx, and that no host comes twice.

    A route whose site is ``elsewhere`` needs none.
    """
    given = [
        name for name, value in (("host", route.host), ("hosts", route.hosts), ("mx", route.mx)) if value
    ]
    if not given and not elsewhere:
        yield refuse(f"{key}.host", "has to be set", allowed="one of host, hosts and mx")
    for name in given[1:]:
        yield refuse(f"{key}.{name}", f"{given[0]} is set too", allowed="one of host, hosts and mx")
    if route.hosts and "port" in route.model_fields_set:
        yield refuse(f"{key}.port", "each of hosts has its own port", value=route.port)
    if route.mx and route.protocol.value == "lmtp":
        yield refuse(f"{key}.mx", "the hosts that the DNS has speak SMTP", allowed='protocol = "smtp"')
    for name in ("username", "password_file"):
        if route.mx and getattr(route, name) is not None:
            yield refuse(
                f"{key}.{name}", _NOT_TO_STRANGERS, allowed="no login with mx; one with host or hosts"
            )
    seen = set()
    for index, host in enumerate(route.hosts):
        if str(host.address) in seen:
            yield refuse(f"{key}.hosts[{index}]", "is there twice", value=host.address)
        seen.add(str(host.address))


def _unfit(settings: Settings, name: str, other: str) -> str:
    """Why a route cannot be an alternative of another one; '' if it can."""
    route, found = settings.routes[name], settings.routes.get(other)
    if found is None:
        return "there is no such route"
    if found.inside != route.inside:
        return f"of the two routes one is inside the boundary: {name if route.inside else other}"
    if found.mx and not route.mx:
        return f"has mx, and the next hop of {name} has no domain"
    if name == other or name in _reached(settings, other):
        return f"leads back to {name}"
    return ""


def _reached(settings: Settings, name: str) -> set[str]:
    """The routes that a route's alternatives lead to."""
    seen: set[str] = set()
    ahead = [name]
    while ahead:
        found = settings.routes.get(ahead.pop())
        for other in found.alternatives if found else ():
            if other not in seen:
                seen.add(other)
                ahead.append(other)
    return seen


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
