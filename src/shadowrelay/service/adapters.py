"""Makes adapters from the settings: addresses of members, next hops, TLS contexts, the tracking log."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path

from shadowrelay.core.delivery.mx import MxHost
from shadowrelay.core.delivery.shaping import LaneLimits, Pattern
from shadowrelay.core.identifiers import NextHop, ServerName
from shadowrelay.core.policy import Policy
from shadowrelay.core.pressure import Resource
from shadowrelay.core.reception.sites import site_hop
from shadowrelay.core.reckoning import NEVER
from shadowrelay.core.values import replace
from shadowrelay.core.workers import node_of
from shadowrelay.database.outbox import Outbox
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.delivery.hosts import Hosts
from shadowrelay.delivery.sts_fetching import PolicyFetcher
from shadowrelay.delivery.tls_policies import TlsRoutes
from shadowrelay.node_clock import NodeClock
from shadowrelay.readings import memory_limit
from shadowrelay.reception.back_pressure import PressureLimits
from shadowrelay.resolver import NameServer, Resolver, is_own
from shadowrelay.settings import MemberConnector, ReceiveConnector, Settings
from shadowrelay.settings.pinned import pinned_certificate
from shadowrelay.settings.routing import route_hosts
from shadowrelay.settings.schema import HopSettings, PinnedPeer
from shadowrelay.settings.shaping import shapes
from shadowrelay.settings.shaping_patterns import patterns
from shadowrelay.settings.sites import hop_groups
from shadowrelay.smtp.members.client import MemberAddress
from shadowrelay.smtp.sending.session import Login, NextHopServer, Pinned, Timeouts
from shadowrelay.tracking.events import TrackingEvents
from shadowrelay.tracking.files import LogLimits
from shadowrelay.tracking.writer import TrackingWriter
from shadowrelay.wire.networks import Networks


def addresses(settings: Settings) -> dict[ServerName, MemberAddress]:
    peer = settings.peer
    context = client_context(peer) if peer else None
    return {
        ServerName(member.name): MemberAddress(
            ServerName(member.name), member.address.host, member.address.port, context
        )
        for member in settings.members
    }


def shaped(settings: Settings) -> tuple[tuple[LaneLimits, ...], tuple[Pattern, ...]]:
    """Limits of next hops, and the patterns that go with them: their file is read if there are limits."""
    limits = shapes(settings.shaping)
    return limits, patterns(settings.shaping_patterns) if limits else ()


def pressure_limits(settings: Settings) -> PressureLimits | None:
    """What back pressure goes by; None if it is off."""
    given = settings.back_pressure
    if not given.enabled:
        return None
    marks = {
        Resource.DATA_DISK: given.data_disk,
        Resource.LOG_DISK: given.log_disk,
        Resource.MEMORY: given.memory,
        Resource.QUEUE: given.queue,
        Resource.UNCOMMITTED: given.uncommitted,
    }
    return PressureLimits(
        given.memory_limit or memory_limit(), {what: one.all for what, one in marks.items()}
    )


def machines(settings: Settings) -> dict[ServerName, str]:
    """The machine of every member and of this node."""
    others = {ServerName(member.name): member.host for member in settings.members}
    return others | {ServerName(settings.name): settings.host}


def server_context(peer: MemberConnector) -> ssl.SSLContext | None:
    if not (peer.tls and peer.certificate and peer.key and peer.ca):
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(peer.ca))
    context.load_cert_chain(peer.certificate, peer.key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def asking_context(connector: ReceiveConnector) -> ssl.SSLContext:
    """The STARTTLS of a connector that knows peers beyond the boundary by their certificates: it asks for
    one, and trusts the pinned ones themselves, whoever issued them.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if connector.tls_certificate and connector.tls_key:
        context.load_cert_chain(connector.tls_certificate, connector.tls_key)
    for peer in connector.accept_xshadow:
        if peer.certificate:
            context.load_verify_locations(peer.certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def pinned(connector: ReceiveConnector) -> dict[bytes, ServerName]:
    """The peers that a connector knows, by their certificates (DER)."""
    return _shown(connector.accept_xshadow)


def secured(peers: Iterable[PinnedPeer]) -> dict[ServerName, Networks]:
    """The networks from which a peer is believed without a certificate, by its name."""
    return {ServerName(one.name): tuple(one.externally_secured) for one in peers if one.externally_secured}


def _shown(peers: Iterable[PinnedPeer]) -> dict[bytes, ServerName]:
    return {pinned_certificate(one.certificate): ServerName(one.name) for one in peers if one.certificate}


def client_context(peer: MemberConnector) -> ssl.SSLContext | None:
    if not (peer.tls and peer.certificate and peer.key and peer.ca):
        return None
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(peer.ca))
    context.load_cert_chain(peer.certificate, peer.key)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def servers(settings: Settings) -> dict[NextHop, NextHopServer]:
    """For each route, and for each site, the template of its hosts; host and port are those of the first that
    it names.
    """
    found = {}
    for (name, route), named in zip(settings.routes.items(), route_hosts(settings).values(), strict=True):
        first = (named.hosts[0].name, named.hosts[0].port) if named.hosts else ("", route.port)
        found[NextHop(name)] = replace(
            _template(settings, NextHop(name), route, *first),
            protocol=route.protocol.value,
            inside=route.inside,
        )
    for name, site in settings.sites.items():
        hop = site_hop(name)
        found[hop] = _template(settings, hop, site, site.hosts[0].host, site.hosts[0].port)
    return found


def _template(settings: Settings, name: NextHop, route: HopSettings, host: str, port: int) -> NextHopServer:
    return NextHopServer(
        name=name,
        host=host,
        port=port,
        local_hostname=node_of(ServerName(settings.name)),
        tls=route.tls.value,
        ca_file=str(route.ca) if route.ca else None,
        login=_login(route),
        pinned=_pinned(route),
        timeouts=Timeouts.within(route.connection_inactivity_timeout.total_seconds()),
    )


def _pinned(route: HopSettings) -> Pinned | None:
    """The hops that the route may tell to track. Reads their certificates; raises OSError."""
    if not route.send_xshadow:
        return None
    hosts = {pinned_certificate(one.certificate): one.host for one in route.send_xshadow if one.certificate}
    return Pinned(
        _shown(route.send_xshadow),
        route.xshadow_certificate,
        route.xshadow_key,
        {certificate: host for certificate, host in hosts.items() if host},
        secured(route.send_xshadow),
    )


def resolver(settings: Settings) -> Resolver:
    """Looks up hosts, at the name servers of the settings if there are any."""
    named = [NameServer(one.host, one.port) for one in settings.dns.servers]
    listening = tuple((one.listen.host, one.listen.port) for one in settings.receive.values())
    own = node_of(ServerName(settings.name))

    def is_us(host: MxHost, port: int) -> bool:
        return host.name == own or any(is_own(address, port, listening) for address in host.addresses)

    return Resolver(
        named,
        settings.dns.timeout.total_seconds(),
        is_us,
        authentic=any(route.dane for route in settings.routes.values()),
        trusted=settings.dns.trust_ad,
    )


def sts_fetcher(settings: Settings, found: Callable[[], Resolver]) -> PolicyFetcher:
    """Fetches policies of MTA-STS. ``found``: looks hosts up."""
    given = settings.mta_sts

    async def addresses(host: str) -> tuple[str, ...]:
        return await found().addresses(host, mx_port=given.port)  # in the DNS, as the domain's own hosts

    return PolicyFetcher(addresses, given.port, given.ca)


def tls_routes(settings: Settings) -> TlsRoutes:
    """The routes whose domains are asked what they want of TLS."""
    routes = settings.routes.items()
    return TlsRoutes(
        dane=frozenset(NextHop(name) for name, route in routes if route.dane),
        mta_sts=frozenset(NextHop(name) for name, route in routes if route.mta_sts),
        signed_zone=settings.dns.signed_zone,
    )


def hosts(settings: Settings, found: Resolver, policy: Policy, clock: Callable[[], datetime]) -> Hosts:
    """The hosts of the next hops of the settings. ``policy``: that of now, which a reload changes."""
    return Hosts(servers(settings), hop_groups(settings), found, policy, clock, random.random)


def _login(route: HopSettings) -> Login | None:
    if route.username is None or route.password_file is None:
        return None
    return Login(
        username=route.username,
        password_file=route.password_file,
        mechanism=route.mechanism.value,
        without_tls=route.login_without_tls,
    )


def log_limits(settings: Settings) -> LogLimits:
    tracking = settings.tracking
    return LogLimits(
        max_file_age=tracking.max_file_age,
        max_file_size=tracking.max_file_size,
        max_directory_size=tracking.max_directory_size,
        max_age=tracking.max_age,
    )


def tracking_writer(
    settings: Settings,
    database: TransportDatabase,
    events: TrackingEvents,
    clock: NodeClock,
    waits: Callable[[bool], None],
) -> TrackingWriter:
    """No file is deleted by age while the clock is in doubt, or before something has confirmed it: a database
    that was made under a wrong clock finds the files of the one before.
    """

    def aged(age: timedelta) -> datetime:
        return clock.endings().before(age) if clock.reckoning.settled else NEVER

    return TrackingWriter(
        Outbox(database),
        directory=Path(settings.tracking.directory),
        node=ServerName(settings.name),
        limits=log_limits(settings),
        committed=database.when_tracked(asyncio.Event()),
        clock=lambda: clock.read().wall,
        reckoned=clock,
        aged=aged,
        events=events,
        waits=waits,
    )
