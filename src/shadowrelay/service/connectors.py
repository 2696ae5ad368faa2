"""Makes the Receive connectors of a node from its settings."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from shadowrelay.core.values import replace
from shadowrelay.core.workers import node_of
from shadowrelay.ids import mint
from shadowrelay.members.answering import AnsweringOptions, AnsweringSessions
from shadowrelay.reception.changes import ContentLimits
from shadowrelay.reception.filtered import FilteredIntake
from shadowrelay.reception.filters import Filtering
from shadowrelay.reception.hops import HopIntakes, HopTls
from shadowrelay.reception.intake import Intake, IntakeOptions
from shadowrelay.reception.logins import UserLogins
from shadowrelay.service.adapters import asking_context, pinned, secured, server_context
from shadowrelay.service.node import Node
from shadowrelay.settings import MemberConnector, ReceiveConnector, Settings
from shadowrelay.settings.filters import WhenDown
from shadowrelay.shared_counts import of_connector
from shadowrelay.smtp.filters.session import FilterOptions
from shadowrelay.smtp.members.hop import HopSession
from shadowrelay.smtp.members.session import MemberSession
from shadowrelay.smtp.receiving.connector import Connector
from shadowrelay.smtp.receiving.contract import ConnectorOptions, RateLimits
from shadowrelay.wire.xshadow import MAX_LINE

# A member passes on only what its own connectors took, so no limit applies. Line ends were checked when the
# content came in, and will be checked when it goes out.
MEMBER_MESSAGE_SIZE = 1 << 40


def for_senders(
    node: Node,
    name: str,
    connector: ReceiveConnector,
    settings: Settings | None = None,
    former: Connector | None = None,
) -> Connector:
    """The connector ``name``, for mail from senders. ``former``: what listens at its address now, of which
    the logins stay. Raises OSError, if a certificate cannot be used.
    """
    settings = settings or node.settings
    options = IntakeOptions(
        connector=name,
        relay_networks=tuple(settings.relay_networks),
        accepted_domains=tuple(settings.accepted_domains),
        routes=node.routes,
        content=node.spool,
        room=node.room,
        submission=connector.submission,
        book=node.book,
        ways=node.ways,
        delay=connector.max_acknowledgement_delay,
    )
    tls = None
    if connector.tls_certificate and connector.tls_key:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(connector.tls_certificate, connector.tls_key)
    limits = ConnectorOptions(
        hostname=node_of(node.name),
        host=connector.listen.host,
        port=connector.listen.port,
        name=name,
        tls=tls,
        implicit_tls=connector.implicit_tls,
        requiretls=connector.requiretls,
        connection_timeout=connector.connection_timeout,
        inactivity_timeout=connector.connection_inactivity_timeout,
        tarpit_interval=connector.tarpit_interval,
        max_protocol_errors=connector.max_protocol_errors,
        max_junk_commands=connector.max_junk_commands,
        max_inbound_connections=connector.max_inbound_connection,
        max_inbound_connections_per_source=connector.max_inbound_connection_per_source,
        max_recipients_per_message=connector.max_recipients_per_message,
        rates=_rates(connector),
        max_message_size=connector.max_message_size,
        max_header_size=connector.max_header_size,
        max_text_line=connector.max_text_line,
        any_dots=connector.any_dots,
        logins=_logins(name, connector, former),
        proxy_networks=tuple(connector.proxy_networks),
        xclient_networks=tuple(connector.xclient_networks),
        pressed=node.room,
    )
    intake = _intake(node, connector, limits)(
        node.members,
        node.database,
        node.boundary,
        options,
        node.in_force,
        node.clock,
        mint,
        node.in_flight,
        node.acknowledgements,
        node.clock.wall,
    )
    shared = of_connector(node.counts, name)
    if not connector.accept_xshadow:
        return Connector(limits, intake, shared=shared)
    known = pinned(connector)
    asking = asking_context(connector) if known else tls
    hops = HopIntakes(intake, HopTls(asking, tls, known, secured(connector.accept_xshadow)))
    return Connector(limits, hops, session=HopSession, shared=shared)  # type: ignore[arg-type]


def _intake(node: Node, connector: ReceiveConnector, limits: ConnectorOptions) -> Callable[..., Intake]:
    """What makes the intake: the one with filters, if there are any."""
    if not connector.filters:
        return Intake
    asked = tuple(
        FilterOptions(
            name=name,
            host=one.address.tcp.host if one.address.tcp else "",
            port=one.address.tcp.port if one.address.tcp else 0,
            path=one.address.path,
            connect=one.connect_timeout.total_seconds(),
            command=one.command_timeout.total_seconds(),
            content=one.content_timeout.total_seconds(),
            accepts_when_down=one.when_down is WhenDown.ACCEPT,
        )
        for name, one in connector.filters.items()
    )
    most = connector.max_filter_time.total_seconds()
    filtering = Filtering(
        filters=asked,
        most=most,
        own=limits.hostname,
        connector=limits.name,
        watches={one.name: node.filter_watch(limits.name, one.name) for one in asked},
    )
    allowed = ContentLimits(
        most=limits.max_message_size,
        header=limits.max_header_size,
        line=limits.max_text_line,
        pairs=limits.line_ends_checked,
        recipients=limits.max_recipients_per_message,
        any_dots=limits.any_dots,
    )
    return partial(FilteredIntake, filtering=filtering, limits=allowed)


def _rates(connector: ReceiveConnector) -> RateLimits | None:
    limits = RateLimits(
        connections=connector.connection_rate_limit,
        messages=connector.message_rate_limit,
        recipients=connector.recipient_rate_limit,
        user_messages=connector.user_message_rate_limit,
        user_recipients=connector.user_recipient_rate_limit,
    )
    if limits == RateLimits():
        return None
    return replace(limits, ipv4_prefix=connector.rate_ipv4_prefix, ipv6_prefix=connector.rate_ipv6_prefix)


def _logins(name: str, connector: ReceiveConnector, former: Connector | None) -> UserLogins | None:
    kept = former.options.logins if former else None
    if isinstance(kept, UserLogins) and kept.path == connector.users_file:
        return kept  # with what it counted, and the passwords that it knows
    return UserLogins(connector.users_file, name) if connector.users_file else None


def for_members(node: Node, peer: MemberConnector) -> Connector:
    """The connector for the other members of the boundary."""
    options = AnsweringOptions(
        externally_secured=tuple(peer.externally_secured),
        content=node.spool,
        room=node.room,
    )
    limits = ConnectorOptions(
        hostname=node.name,
        host=peer.listen.host,
        port=peer.listen.port,
        name="members",
        greeting="ESMTP members",
        tls=server_context(peer),
        implicit_tls=peer.tls,
        connection_timeout=None,
        inactivity_timeout=peer.connection_inactivity_timeout,
        tarpit_interval=timedelta(0),
        max_protocol_errors=100,
        max_junk_commands=None,
        max_inbound_connections=peer.max_inbound_connection,
        max_inbound_connections_per_source=None,
        max_recipients_per_message=1_000_000,
        max_message_size=MEMBER_MESSAGE_SIZE,
        max_header_size=1 << 25,
        max_text_line=None,
        line_ends_checked=False,
        max_command_line=MAX_LINE,
    )
    sessions = AnsweringSessions(
        database=node.database,
        boundary=node.boundary,
        options=options,
        policy=node.policy,
        clock=node.clock,
        meet=node.members.meet,
        in_flight=node.in_flight,
        met=node.met,
        operate=node.acts.perform,
        give=node.giver.give,
        enabled=lambda: node.in_force.redundancy,
        draining=lambda: node.draining.active,
        opening=lambda: node.opening,
    )
    return Connector(limits, sessions, session=MemberSession)  # type: ignore[arg-type]
