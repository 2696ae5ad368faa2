"""The hosts of next hops as this process knows them: who rests, who is being tried, and whose turn it is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from datetime import datetime, timedelta

import structlog

from shadowrelay.core.delivery.hosts import (
    ABOUT_US,
    MOST_HOSTS,
    Chance,
    Group,
    Host,
    HostAddress,
    HostGroup,
    MxGroup,
    Standing,
    Ways,
    failed,
    pick,
)
from shadowrelay.core.delivery.mx import DnsTrouble, MxHost, as_hosts
from shadowrelay.core.delivery.tls_policy import ANYTHING, HostRefused, WantedTls
from shadowrelay.core.events.reports import ReportKind
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.policy import Policy
from shadowrelay.core.values import dataclass, replace
from shadowrelay.delivery.tls_policies import TlsPolicies
from shadowrelay.resolver import Resolver
from shadowrelay.smtp.sending.session import ConnectionFailed, DeliverySession, HopTalk, NextHopServer
from shadowrelay.wire.replies import Reply
from shadowrelay.wire.report_fields import status

log = structlog.get_logger(__name__)

FORGET = timedelta(hours=1)
"""So long after its rest a host that nobody tries is forgotten."""

PACE_KEPT = 60.0
"""Seconds for which the pace of a host that has no sessions is remembered."""

LATELY = 8
"""Messages over which the pace of a host is averaged."""

WELL = Standing()
NO_HOST = Standing(step="connect", error="no host", status="4.4.1")


@dataclass(slots=True)
class _Known:
    """One host and port. ``trying``: sessions that find out whether it is back. ``fewer`` sessions are enough
    for it until ``fewer_until``, on the loop's clock. ``pace``: seconds for a message, lately; it answered at
    ``answered_at``, or has had sessions since then.
    """

    standing: Standing = WELL
    sessions: int = 0
    trying: int = 0
    fewer: int = 0
    fewer_until: float = 0.0
    pace: float = 0.0
    answered_at: float = 0.0


class Hosts:
    """All hosts. ``servers``: for each route the template of its hosts. ``ways``: from a next hop to groups.

    ``draw`` gives a random number from 0 to below 1.
    """

    def __init__(
        self,
        servers: Mapping[NextHop, NextHopServer],
        ways: Ways,
        resolver: Resolver,
        policy: Policy,
        clock: Callable[[], datetime],
        draw: Callable[[], float],
    ) -> None:
        self.ways = self._former = ways
        self.resolver = resolver
        self.talk: HopTalk | None = None  # with hops that track our messages
        self.policies: TlsPolicies | None = None  # what hosts of MX have to show
        self.avoided: Callable[[MessageId], Mapping[HostAddress, bool]] = lambda _: {}  # see HopShadows
        self.took: Callable[[HostAddress], None] = lambda _: None  # called when a host answered for a message
        self.servers = servers  # as they are now; those of later settings are others
        self._policy = policy
        self._clock = clock
        self._draw = draw
        self._known: dict[tuple[str, int], _Known] = {}
        self._by_route: dict[tuple[NextHop, str, int], Standing] = {}

    def take(self, servers: Mapping[NextHop, NextHopServer], ways: Ways) -> None:
        """The settings changed. An attempt under way goes on with the hosts that it found."""
        self._former, self.ways = self.ways, ways
        self.servers = {**self.servers, **servers}  # a talk under way may ask for a route that is gone

    def moved(self, next_hop: NextHop) -> bool:
        """Did the last change of settings change the hosts of that next hop?"""
        return self._former(next_hop) != self.ways(next_hop)

    def template(self, next_hop: NextHop) -> NextHopServer | None:
        """What the hosts of a next hop have in common; None if the settings do not know it."""
        ways = self.ways(next_hop)
        return self._template(ways[0]) if ways else None

    def _template(self, group: Group) -> NextHopServer | None:
        if isinstance(group, HostGroup):
            return self.servers.get(group.hosts[0].route) if group.hosts else None
        return self.servers.get(group.route)

    def known(self, next_hop: NextHop, found: Mapping[Group, tuple[Host, ...]]) -> list[Host]:
        """The hosts of a next hop: those of the settings, and those ``found`` in the DNS."""
        return [
            host
            for group in self.ways(next_hop)
            for host in (group.hosts if isinstance(group, HostGroup) else found.get(group, ()))
        ]

    def server(self, host: Host, servers: Mapping[NextHop, NextHopServer] | None = None) -> NextHopServer:
        """What is said to a host: as the settings say now, or as ``servers`` did."""
        template = (self.servers if servers is None else servers)[host.route]
        pinned = template.pinned and template.pinned.at(host.name)
        return replace(template, host=host.name, port=host.port, pinned=pinned)

    def session(self, server: NextHopServer, group: Group, *, noted: bool = True) -> DeliverySession:
        """A new session, which looks the host up when it connects. ``noted``: what becomes of it tells how
        the host stands to the policies of its domain.
        """
        mx_port = None if isinstance(group, HostGroup) else server.port

        async def lookup(host: str) -> tuple[str, ...]:
            return await self.resolver.addresses(host, mx_port=mx_port)

        told = None
        if (
            noted
            and self.policies is not None
            and isinstance(group, MxGroup)
            and self.policies.concern(group.route)
        ):
            told = self.policies.told(group.domain)
        return DeliverySession(server, lookup, self.talk, told)

    def standing(self, host: Host) -> Standing:
        """How a host stands for the next hops of its route: by its own failures, or by those of the route."""
        known = self._known.get((host.name, host.port))
        shared = known.standing if known else WELL
        if not self._by_route:  # nearly always
            return shared
        own = self._by_route.get((host.route, host.name, host.port), WELL)
        now = self._clock()
        return own if own.resting(now) or (own.failures and not shared.failures) else shared

    def chance(self, host: Host, sessions: int) -> Chance:
        """How a host stands for the next message of a next hop with so many ``sessions`` on it."""
        known = self._known.get((host.name, host.port))
        standing = self.standing(host)
        if known is None:
            return Chance(standing.resting(self._clock()), sessions=sessions)
        now = asyncio.get_running_loop().time()
        return Chance(
            rests=standing.resting(self._clock()),
            tried_now=bool(known.trying),
            full=known.fewer_until > now and known.sessions >= known.fewer,
            sessions=sessions,
            pace=known.pace,
            silent=now - known.answered_at if known.sessions else 0.0,
        )

    def pick(
        self, hosts: tuple[Host, ...], tried: Iterable[Host], on: Mapping[Host, int], most: int
    ) -> Host | None:
        """See ``core.delivery.hosts.pick``."""
        if len(hosts) == 1:  # nearly always
            host = hosts[0]
            standing = self.standing(host)
            rests = standing.rests_until is not None and standing.resting(self._clock())
            return None if host in tried or rests else host
        return pick(hosts, set(tried), lambda host: self.chance(host, on.get(host, 0)), most, self._draw)

    def begin(self, host: Host) -> bool:
        """A session with the host begins. Returns whether it finds out if the host is back: say so at the
        end.
        """
        if (known := self._known.get((host.name, host.port))) is None:
            known = self._known[host.name, host.port] = _Known()
        if not known.sessions:
            known.answered_at = asyncio.get_running_loop().time()
        known.sessions += 1
        trying = bool(self.standing(host).failures)
        known.trying += trying
        return trying

    def end(self, host: Host, *, trying: bool) -> None:
        known = self._known[host.name, host.port]
        known.sessions -= 1
        known.trying -= trying

    def failed(self, host: Host, failure: ConnectionFailed, *, several: bool) -> Standing:
        """A session with the host failed. ``several``: its next hop has others.

        What a host did not show of TLS may be wanted for one domain alone: it does not rest for others.
        """
        said = failure.reply or failure.error
        arguments = (failure.step, said, status_of(failure), self._clock(), self._policy)
        if failure.result:
            found = failed(WELL, *arguments)
        elif failure.step in ABOUT_US:
            key = (host.route, host.name, host.port)
            found = self._by_route[key] = failed(self._by_route.get(key, WELL), *arguments)
        else:
            known = self._known.setdefault((host.name, host.port), _Known())
            found = known.standing = failed(known.standing, *arguments)
        if several:
            log.warning(
                "host_failed",
                host=str(host),
                route=host.route,
                step=failure.step,
                error=said,
                failures=found.failures,
            )
        return found

    def answered(self, host: Host, began: float, now: float) -> None:
        """The host answered for a message, from when to when on the loop's clock: forget its failures."""
        took = now - began
        if known := self._known.get((host.name, host.port)):
            known.standing = WELL
            known.pace = known.pace + (took - known.pace) / LATELY if known.pace else took
            known.answered_at = now
        if self._by_route:
            self._by_route.pop((host.route, host.name, host.port), None)
        self.took((host.name, host.port))

    def turned_away(self, host: Host) -> bool:
        """The host refused a session. Returns whether it has others of ours, and so is well."""
        known = self._known[(host.name, host.port)]
        if known.sessions < 2:
            return False
        known.fewer = known.sessions - 1
        pause = self._policy.queue_glitch_retry_interval.total_seconds()
        known.fewer_until = asyncio.get_running_loop().time() + pause
        return True

    def clear_backoff(self, hosts: Iterable[Host]) -> None:
        """These hosts may be tried at once. That they failed is remembered."""
        for host in hosts:
            if known := self._known.get((host.name, host.port)):
                known.standing = replace(known.standing, rests_until=None)
            key = (host.route, host.name, host.port)
            if key in self._by_route:
                self._by_route[key] = replace(self._by_route[key], rests_until=None)

    def prune(self) -> None:
        """Forget hosts that failed once, and that nobody has tried for long since."""
        old, now = self._clock() - FORGET, asyncio.get_running_loop().time()
        self._by_route = {key: one for key, one in self._by_route.items() if not _ended(one, old)}
        for key, known in [*self._known.items()]:
            idle = not known.sessions and max(known.fewer_until, known.answered_at + PACE_KEPT) < now
            if idle and _ended(known.standing, old):
                del self._known[key]


def worn_out(
    idle: list[tuple[DeliverySession, float]], now: float, most: float
) -> tuple[list[tuple[DeliverySession, float]], list[DeliverySession]]:
    """The idle sessions that may be kept, each with the time since when it is idle; and those to close: they
    have waited for more than ``most`` seconds, or longer than their route allows, or are lost.
    """
    kept = [
        (session, since)
        for session, since in idle
        if session.alive and since >= now - min(most, session.server.timeouts.idle)
    ]
    stay = {id(session) for session, _ in kept}
    return kept, [session for session, _ in idle if id(session) not in stay]


def _ended(standing: Standing, before: datetime) -> bool:
    return standing.rests_until is None or standing.rests_until < before


def status_of(failed: ConnectionFailed) -> str:
    """The status of a failure that defers mail: from its reply, or else from the step that failed (RFC 3463
    3.5, 3.8).
    """
    if failed.reply:
        return "4" + status(ReportKind.FAILED, failed.reply)[1:]
    if failed.step in ABOUT_US:
        return "4.7.5" if failed.result else "4.7.0"
    return {"dns": "4.4.3", "connect": "4.4.1"}.get(failed.step, "4.4.2")


@dataclass(slots=True)
class Search:
    """One attempt's way through the hosts of a next hop. ``on``: sessions of this next hop, by host.
    ``servers``: the templates of these hosts, which stay together though the settings change meanwhile.

    ``most``: sessions that the next hop may have. ``last``: why no host is left, as far as it is known.
    """

    hosts: Hosts
    groups: tuple[Group, ...]
    on: Counter[Host]
    most: int
    servers: Mapping[NextHop, NextHopServer]
    tried: list[Host] = field(default_factory=list)
    found: dict[Group, tuple[Host, ...]] = field(default_factory=dict)
    wanted: dict[Host, WantedTls] = field(default_factory=dict)  # of hosts that have to show anything
    last: Standing | None = None
    crowded: bool = False  # a host is well, and takes no more sessions
    avoided: Mapping[HostAddress, bool] = field(default_factory=dict)  # see HopShadows.avoided
    only: str = ""  # the host that may have the message already: no other one gets it
    held_back: bool = False  # a host takes nothing now, as it is shaped
    waives: bool = False  # the sender wants no policy to count (RFC 8689 4.2.2)
    unfit: Reply | None = None  # why a host may not have this message, which others may
    passed_by: bool = False  # a host that does not rest was left out, since this message goes past it

    async def next(self) -> tuple[Host, Group] | None:
        """The host to try now; None if none is left. Raises DomainRefused: the DNS says no."""
        if len(self.tried) >= MOST_HOSTS:
            return None
        for group in self.groups:
            hosts = self.found.get(group)
            if hosts is None:
                hosts = self.found[group] = await self._hosts_of(group)
            if self.only:
                hosts = tuple(host for host in hosts if str(host) == self.only)
            elif self.avoided:
                hosts = tuple(host for host in hosts if (host.name, host.port) not in self.avoided)
            if host := self.hosts.pick(hosts, self.tried, self.on, self.most):
                self.tried.append(host)
                return host, group
        if self.only:
            self.passed_by = True
            return None
        if not self.avoided:
            return None
        left = self._avoided_still()
        if len(left) < len(self.avoided):
            self.avoided = left
            return await self.next()
        self.passed_by = any(
            self.hosts.pick(hosts, self.tried, self.on, self.most) for hosts in self.found.values()
        )
        return None

    def _avoided_still(self) -> Mapping[HostAddress, bool]:
        """What the message goes past though no other host takes it now: hosts that have taken no mail since.
        It goes past nothing if the next hop has no other host at all. A domain that the DNS is silent about
        may have others.
        """
        every = {(host.name, host.port) for hosts in self.found.values() for host in hosts}
        silent = any(not hosts and isinstance(group, MxGroup) for group, hosts in self.found.items())
        if every <= self.avoided.keys() and not silent:
            return {}
        return {address: takes for address, takes in self.avoided.items() if not takes}

    async def _hosts_of(self, group: Group) -> tuple[Host, ...]:
        if isinstance(group, HostGroup):
            return group.hosts
        try:
            found = await self.hosts.resolver.hosts_of(group.domain, group.port)
            policies = self.hosts.policies
            if policies is not None and policies.concern(group.route) and not self.waives:
                return await self._that_may_be_tried(policies, group, found)
            return as_hosts(group, found)
        except DnsTrouble as trouble:
            self.last = Standing(step="dns", error=str(trouble), status="4.4.3")
            return ()

    async def _that_may_be_tried(
        self, policies: TlsPolicies, group: MxGroup, found: tuple[MxHost, ...]
    ) -> tuple[Host, ...]:
        """The hosts without those that must not be tried now, whose mail waits if no other is left."""
        wanted = await policies.of(group.route, group.domain, found, group.port)
        left: list[Host] = []
        for host, what in zip(as_hosts(group, found), wanted, strict=True):
            if isinstance(what, HostRefused):
                self.last = Standing(step="tls", error=what.why, status="4.7.5")
                continue
            if what is not ANYTHING:
                self.wanted[host] = what
            left.append(host)
        return tuple(left)

    def server(self, host: Host) -> NextHopServer:
        """What is said to a host, and what it has to show."""
        server = self.hosts.server(host, self.servers)
        return replace(server, wanted=self.wanted[host]) if host in self.wanted else server

    @property
    def several(self) -> bool:
        return len(self.groups) > 1 or sum(map(len, self.found.values())) > 1

    def rests(self) -> list[datetime]:
        """When each host that rests may be tried again."""
        ends = (self.hosts.standing(host).rests_until for hosts in self.found.values() for host in hosts)
        return [end for end in ends if end is not None]

    def why(self) -> Standing:
        """Why no host is left: the last failure of this attempt, or else of a host that rests."""
        if self.last is not None:
            return self.last
        resting = (self.hosts.standing(host) for hosts in self.found.values() for host in hosts)
        return next((one for one in resting if one.error), NO_HOST)
