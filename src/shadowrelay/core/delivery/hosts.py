"""The hosts of a next hop: in which order they are tried, which of them rest, and what a failure leads to.

A next hop leads to groups of hosts, in order. Inside a group the most preferred hosts that do not rest come
first, and one of them is drawn by weight (as RFC 2782 draws servers; RFC 5321 section 5.1 wants equal
hosts of MX drawn at random). Only when no host of any group is left does the next hop fail.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from shadowrelay.core.delivery import retry
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.policy import Policy
from shadowrelay.core.values import dataclass, replace

MOST_HOSTS = 10
"""Hosts that one attempt tries at most; the others have their turn at the next attempt."""

ABOUT_US = frozenset({"tls", "auth", "xshadow"})
"""Steps that depend on the route: where they fail, the host rests for next hops of that route alone."""


HostAddress: TypeAlias = tuple[str, int]
"""Name and port of a host."""


@dataclass(frozen=True, slots=True)
class Host:
    """One server that takes mail. ``route`` names the template: its TLS policy, login and deadlines apply.

    ``name`` is a DNS name, an address without brackets, or the path of a Unix socket. A lower ``preference``
    is tried first; ``weight`` is its share among equals.
    """

    route: NextHop
    name: str
    port: int
    preference: int = 0
    weight: int = 1

    def __str__(self) -> str:
        return f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Hosts that the settings name. They are tried before those of the next group."""

    hosts: tuple[Host, ...]


@dataclass(frozen=True, slots=True)
class MxGroup:
    """The hosts that the DNS has for a domain, or an address literal in brackets (RFC 5321 section 5.1)."""

    route: NextHop
    domain: str
    port: int = 25


Group: TypeAlias = HostGroup | MxGroup
Ways: TypeAlias = Callable[[NextHop], tuple[Group, ...]]
"""From a next hop to its groups, in order. Empty: no such next hop (now)."""


@dataclass(frozen=True, slots=True)
class RouteHosts:
    """Where a route leads: to ``hosts``, or with ``mx`` to those of each domain; then to ``alternatives``."""

    route: NextHop
    hosts: tuple[Host, ...] = ()
    mx: bool = False
    port: int = 25
    alternatives: tuple[NextHop, ...] = ()


def groups(next_hop: NextHop, routes: Mapping[NextHop, RouteHosts]) -> tuple[Group, ...]:
    """The groups of a next hop that ``core.reception.routing`` made: its route's own, then its alternatives'.

    An alternative's own alternatives follow it. A route counts once, where it comes first.
    """
    name, _, domain = next_hop.partition("/")
    first = routes.get(NextHop(name))
    if first is None or first.mx != bool(domain):
        return ()
    found: list[Group] = []
    for route in _in_order(first, routes, set()):
        if not route.mx:
            found.append(HostGroup(route.hosts))
        elif domain:
            found.append(MxGroup(route.route, domain, route.port))
    return tuple(found)


def _in_order(
    route: RouteHosts, routes: Mapping[NextHop, RouteHosts], seen: set[NextHop]
) -> Iterator[RouteHosts]:
    seen.add(route.route)
    yield route
    for name in route.alternatives:
        if name not in seen and name in routes:
            yield from _in_order(routes[name], routes, seen)


@dataclass(frozen=True, slots=True)
class Standing:
    """What this process knows of a host. ``failures`` in a row; it is not tried before ``rests_until``.

    ``step`` is the step that failed last, ``error`` what was said, ``status`` its code (RFC 3463).
    """

    failures: int = 0
    rests_until: datetime | None = None
    step: str = ""
    error: str = ""
    status: str = ""

    def resting(self, now: datetime) -> bool:
        return self.rests_until is not None and now < self.rests_until


def failed(standing: Standing, step: str, error: str, status: str, now: datetime, policy: Policy) -> Standing:
    """A session with the host failed: it rests, in the documented retry order.

    A session that fails while the host rests began before, and counts as no further failure.
    """
    told = replace(standing, step=step, error=error, status=status)
    if standing.resting(now):
        return told
    failures = standing.failures + 1
    return replace(told, failures=failures, rests_until=now + retry.after(failures, policy))


_NOTHING = 1e-9  # less than any share of a session


@dataclass(frozen=True, slots=True)
class Chance:
    """How a host stands for the next message. ``rests``: it must not be tried. ``tried_now``: it failed, its
    rest is over, and another session finds out whether it is back. ``full``: it said that it takes no more
    sessions now. ``sessions``: those that it has of this next hop. ``pace``: seconds that it takes for a
    message, as far as that is known; 0 if it is not. ``silent``: seconds for which its sessions have heard
    nothing, so that it takes at least as long.
    """

    rests: bool = False
    tried_now: bool = False
    full: bool = False
    sessions: int = 0
    pace: float = 0.0
    silent: float = 0.0


def pick(
    hosts: Sequence[Host],
    tried: Collection[Host],
    chance: Callable[[Host], Chance],
    sessions: int,
    draw: Callable[[], float],
) -> Host | None:
    """The host of one group to try next; None if none is left. ``draw`` gives a number from 0 to below 1.

    ``sessions`` is how many the next hop may have. Of several equal hosts none gets more than its share of
    them while others can take more. The share goes by weight, and is smaller for a slow host: a session with
    it sends less mail than one with another host. So a slow host never holds up the mail for the others. A
    host that is full, or that another session tries now, is left alone while there is another.
    """
    left = [(host, chance(host)) for host in hosts if host not in tried]
    left = [(host, how) for host, how in left if not how.rests]
    ready = [(host, how) for host, how in left if not (how.tried_now or how.full)]
    left = ready or left
    if not left:
        return None
    best = min(host.preference for host, _ in left)
    equals = [(host, how) for host, how in left if host.preference == best]
    if len(equals) == 1:
        return equals[0][0]
    below = [
        host
        for (host, how), share in zip(equals, _shares(equals), strict=True)
        if how.sessions + _NOTHING < share * sessions
    ]
    return _drawn(below or _least(equals), draw())


def _shares(equals: Sequence[tuple[Host, Chance]]) -> list[float]:
    """The share of each of several hosts; together 1. One of unknown pace has the share of its weight.

    A short silence is no pace: a host that was asked a moment ago would count as the fastest.
    """
    known = [1 / how.pace for _, how in equals if how.pace]
    usual = len(known) / sum(known) if known else 1.0
    rates = [max(host.weight, 0.001) / max(how.pace or usual, how.silent) for host, how in equals]
    return [rate / sum(rates) for rate in rates]


def _least(equals: Sequence[tuple[Host, Chance]]) -> list[Host]:
    fewest = min(how.sessions for _, how in equals)
    return [host for host, how in equals if how.sessions == fewest]


def _drawn(hosts: Sequence[Host], drawn: float) -> Host:
    """One of the hosts, by weight. Hosts of weight 0 come only where all have it."""
    point = drawn * sum(host.weight for host in hosts)
    for host in hosts:
        point -= host.weight
        if point < 0:
            return host
    return hosts[int(drawn * len(hosts))]


def next_try(rests: Collection[datetime], now: datetime, pause: timedelta) -> datetime:
    """When a next hop without any host left is tried again: when the first of its hosts may be.

    ``pause`` counts where no host rests, as when the DNS said nothing.
    """
    return max(now, min(rests, default=now + pause))
