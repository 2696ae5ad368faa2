"""What a queue is called: every verb, selector and page takes the name of a queue through here.

A queue is a route, a route with a domain if the DNS has the hosts of the route (``world/example.net``), a
site (``site/east``), or ``local/lists``. A name may have the node before it, as lists of queues show it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any

from shadowrelay.core.filtering import ROUTE_END
from shadowrelay.core.identifiers import NextHop, ServerName
from shadowrelay.core.jobs import Filter
from shadowrelay.core.reception.routing import Route, next_hop_of, route_for
from shadowrelay.core.reception.sites import site_hop
from shadowrelay.core.recipients import LISTS
from shadowrelay.core.spelling import canonical
from shadowrelay.core.values import dataclass, replace
from shadowrelay.operator.resubmit_estimate import CannotDo
from shadowrelay.wire.addresses import is_domain, is_literal
from shadowrelay.wire.json_fields import is_text

MOST_NAMED = 8
MOST_COMPARED = 2_000  # names of hops; more would keep the node from its mail
"""Names that an error lists at most."""

_SHADOW = "shadow\\"


class NoSuchQueue(CannotDo):
    """A name is no queue's. The text says which names are near."""


@dataclass(slots=True, kw_only=True)
class QueueNames:
    """One node's. ``routes`` and ``sites``: those of the settings. ``nodes``: this node and the members.
    ``seen``: next hops that have mail on some node, or on record.
    """

    routes: Sequence[Route]
    sites: Collection[str]
    nodes: Callable[[], Iterable[ServerName]]
    seen: Callable[[], Awaitable[Collection[str]]]

    async def named(self, given: str) -> NextHop:
        """The queue of that name, in its one spelling. Raises NoSuchQueue.

        A queue that the settings do not have is one all the same while mail is in it.
        """
        try:
            return self.of_settings(given)
        except NoSuchQueue:
            seen = await self.seen()
        return queue_named(given, self.routes, self.sites, self.nodes(), seen)

    def of_settings(self, given: str) -> NextHop:
        """The same of the settings alone."""
        return queue_named(given, self.routes, self.sites, self.nodes())

    async def in_filter(self, wanted: Filter) -> Filter:
        """The filter with its queue in the one spelling. Raises NoSuchQueue."""
        return wanted if wanted.queue is None else replace(wanted, queue=await self.named(wanted.queue))


def hops_of(entries: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The next hops that the queues and shadow queues of nodes name."""
    every = [one for one in entries if one["answers"]]
    own = {one["next_hop"] for entry in every for one in entry.get("queues", ())}
    held = {
        one["next_hop"]
        for entry in every
        for queue in entry.get("shadow_queues", ())
        for one in queue["next_hops"]
    }
    return frozenset(own | held)


def queue_named(
    given: str,
    routes: Sequence[Route],
    sites: Collection[str],
    nodes: Iterable[ServerName],
    seen: Collection[str] = (),
) -> NextHop:
    """The queue of that name. ``seen``: names that count besides those of the settings.

    Raises NoSuchQueue.
    """
    if not is_text(given):
        raise NoSuchQueue("the name of a queue has the character NUL, or half a character")
    text = given.strip()
    node, slash, name = text.partition("\\")
    if slash and node.lower() not in {one.lower() for one in nodes}:
        near = _nearest(node, [*nodes])
        raise NoSuchQueue(f"no queue is called {given}: {node} is no node here{near and f'; {near}'}")
    name = name if slash else text
    if slash and name.lower().startswith(_SHADOW):
        raise NoSuchQueue(
            f"{given} is a shadow queue, of copies for others: name the queue, as the first table of "
            "shadowrelay queue list does"
        )
    if found := _of_settings(name, routes, sites):
        return found
    route, slash, domain = name.partition(ROUTE_END)
    spelt = f"{route}{slash}{canonical(domain)}" if "." in domain else name
    if spelt in seen:
        return NextHop(spelt)
    raise NoSuchQueue(f"no queue is called {given}: {_hint(name, routes, sites, seen)}")


def _of_settings(name: str, routes: Sequence[Route], sites: Collection[str]) -> NextHop | None:
    if name == LISTS or name in {str(site_hop(site)) for site in sites}:
        return NextHop(name)
    route_name, slash, domain = name.partition(ROUTE_END)
    route = next((one for one in routes if one.name == route_name and not one.site), None)
    if route is None or not slash:
        return route.name if route else None
    domain = canonical(domain)
    if not route.mx or not (is_domain(domain) or is_literal(domain)):
        return None
    taken = route_for(f"postmaster@{domain}", routes)
    return NextHop(f"{route_name}{ROUTE_END}{domain}") if taken is route else None


def _hint(name: str, routes: Sequence[Route], sites: Collection[str], seen: Collection[str]) -> str:
    """Where the mail is that may be meant, or the names that are near."""
    domain = name.rpartition("@")[2] if "@" in name else name.rpartition(ROUTE_END)[2]
    hop = (
        next_hop_of(f"postmaster@{domain}", routes)
        if "." in domain and is_domain(canonical(domain))
        else None
    )
    if hop:
        same = hop.lower() == name.lower()
        return f"the nearest is {hop}" if same else f"mail to {domain} is in the queue {hop}"
    elsewhere = {one.name: site_hop(one.site) for one in routes if one.site}
    if name in elsewhere:
        return f"mail of the route {name} is in the queue {elsewhere[NextHop(name)]}"
    names = [one.name for one in routes if not one.site] + [site_hop(one) for one in sorted(sites)]
    every = list(dict.fromkeys([*names, *sorted(seen), LISTS]))
    return _nearest(name, every) or f"the queues are {_listed(every)}"


def _nearest(name: str, names: Sequence[str]) -> str:
    """The names that are near, as a phrase; '' if none is."""
    folded: dict[str, str] = {one.lower(): one for one in reversed(names)}
    same = folded.get(name.lower())
    few = dict.fromkeys(one.lower() for one in islice(names, MOST_COMPARED))
    near = [same] if same else [folded[one] for one in get_close_matches(name.lower(), few, n=3)]
    return f"the nearest {'is' if len(near) == 1 else 'are'} {', '.join(near)}" if near else ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
