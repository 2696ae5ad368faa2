"""Sites of other boundaries: the paths to them, and the last site that the recipients of a message share.

Site links have costs. The path to a site is the one of least cost; of equal ones that with the fewest hops,
then that whose names, in lower case, are lowest from here on. So the paths from a site are a tree, and the
rest of a path is the path of each site on it: with equal settings everywhere a message comes closer to each
of its recipients with every hop, and never comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import combinations

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Recipient
from shadowrelay.core.values import dataclass, replace

PREFIX = "site/"
"""A next hop with this prefix is a site; no route may be called ``site``."""


@dataclass(frozen=True, slots=True)
class SiteLink:
    """Connects each of the named sites with each of the others, at that cost (1 or more)."""

    sites: tuple[str, ...]
    cost: int


@dataclass(frozen=True, slots=True)
class SitePath:
    """From the own site to the last of ``sites``, the own one not named. The cost is that of its links."""

    cost: int
    sites: tuple[str, ...]

    def __str__(self) -> str:
        return " → ".join(self.sites)


def site_hop(site: str) -> NextHop:
    """The next hop of mail for a site."""
    return NextHop(PREFIX + site)


def site_of(next_hop: NextHop) -> str | None:
    """The site of a next hop that ``site_hop`` made; None for another one."""
    return next_hop.removeprefix(PREFIX) if next_hop.startswith(PREFIX) else None


def paths(own: str, links: Iterable[SiteLink]) -> dict[str, SitePath]:
    """The path to every site that links lead to from the own one, which itself is not among them."""
    beside = _neighbours(links)
    found: dict[str, SitePath] = {}
    ahead: list[tuple[int, int, tuple[str, ...], tuple[str, ...]]] = [(0, 0, (), (own,))]
    while ahead:
        cost, hops, names, way = heappop(ahead)
        if way[-1] in found:
            continue
        found[way[-1]] = SitePath(cost, way[1:])
        for site, more in beside.get(way[-1], {}).items():
            if site not in found:
                heappush(ahead, (cost + more, hops + 1, (*names, site.lower()), (*way, site)))
    del found[own]
    return found


def last_common(ways: Sequence[SitePath]) -> dict[str, str]:
    """For the destination of each path: the site that gets the one copy for it (delayed fan-out).

    Destinations behind the same first site share a copy. It goes to the last site that all their paths have
    in common, where it forks. A destination that shares nothing is its own.
    """
    branches: dict[str, list[tuple[str, ...]]] = {}
    for way in ways:
        branches.setdefault(way.sites[0], []).append(way.sites)
    return {way[-1]: _shared(branch)[-1] for branch in branches.values() for way in branch}


def fanned_out(recipients: Sequence[Recipient], ways: Mapping[str, SitePath]) -> tuple[Recipient, ...]:
    """The recipients of one message, those of several sites with the next hops of their shared copies.

    ``ways``: the path to each site. A site that has none there stays a next hop of its own.
    """
    sites = dict.fromkeys(site for one in recipients if (site := site_of(one.next_hop)) in ways and site)
    if len(sites) < 2:
        return tuple(recipients)
    forks = {site_hop(to): site_hop(by) for to, by in last_common([ways[site] for site in sites]).items()}
    return tuple(replace(one, next_hop=forks.get(one.next_hop, one.next_hop)) for one in recipients)


def stops(way: SitePath, hubs: Iterable[str] = ()) -> tuple[str, ...]:
    """The sites to try for that path, in order: straight to its end, else back along it.

    A hub site lets nothing pass: the first one on the path is where a message goes.
    """
    stop_at = frozenset(hubs)
    reach = next((number for number, site in enumerate(way.sites, 1) if site in stop_at), len(way.sites))
    return way.sites[:reach][::-1]


def _neighbours(links: Iterable[SiteLink]) -> Mapping[str, dict[str, int]]:
    """What each site is linked to, at the least cost of all links between the two."""
    found: dict[str, dict[str, int]] = {}
    for link in links:
        for one, other in combinations(dict.fromkeys(link.sites), 2):
            for here, there in ((one, other), (other, one)):
                known = found.setdefault(here, {})
                known[there] = min(link.cost, known.get(there, link.cost))
    return found


def _shared(ways: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The sites that all of the ways begin with."""

    def common() -> Iterator[str]:
        for sites in zip(*ways, strict=False):
            if len(set(sites)) > 1:
                return
            yield sites[0]

    return tuple(common())
