"""The composition root of a node: the only place that constructs adapters, and runs the stages."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import structlog

from shadowrelay.admin.api import build_app
from shadowrelay.admin.node import PeerStatus, peer_status
from shadowrelay.admin.server import bind, serve
from shadowrelay.core.boundary import Boundary
from shadowrelay.core.identifiers import DatabaseId, Incarnation, MessageId, NextHop, ServerName
from shadowrelay.core.inquiry import Inquiry
from shadowrelay.core.routing import Route
from shadowrelay.core.shadow_servers import MemberPlace
from shadowrelay.database import content
from shadowrelay.database.opening import CONTENT
from shadowrelay.database.outbox import Outbox
from shadowrelay.database.snapshot import take_snapshot
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.members import Members, seconds
from shadowrelay.primary.exposure import Reconcile, Repair
from shadowrelay.primary.intake import Intake, IntakeOptions
from shadowrelay.primary.queue import Queue
from shadowrelay.primary.reporting import Reporter
from shadowrelay.safety_net.expiry import Expiry
from shadowrelay.settings import PeerConnector, ReceiveConnector, Settings
from shadowrelay.shadow.desk import DeskOptions, Desks
from shadowrelay.shadow.links import Link
from shadowrelay.smtp.peer_client import Address
from shadowrelay.smtp.peer_session import PeerSession
from shadowrelay.smtp.receive import ConnectorOptions
from shadowrelay.smtp.receive_connector import Connector
from shadowrelay.smtp.send import NextHopServer
from shadowrelay.tracking.files import LogLimits
from shadowrelay.tracking.writer import TrackingWriter

log = structlog.get_logger(__name__)

SNAPSHOT_INTERVAL = 3600.0
MEMBER_MESSAGE_SIZE = 1 << 31  # a member only passes on what its own connectors took


class NodeFailed(Exception):
    """The node cannot go on; the message says why."""


def utcnow() -> datetime:
    return datetime.now(UTC)


def mint(now: datetime) -> MessageId:
    """A UUID version 7 (RFC 9562 5.7)."""
    stamp = int(now.timestamp() * 1000).to_bytes(6, "big")
    raw = bytearray(stamp + os.urandom(10))
    raw[6] = 0x70 | (raw[6] & 0x0F)
    raw[8] = 0x80 | (raw[8] & 0x3F)
    text = raw.hex()
    return MessageId("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))


class Node:
    """One running node, as the admin API sees it."""

    def __init__(self, settings: Settings, database: TransportDatabase) -> None:
        self.settings = settings
        self.database = database
        self.started_at = utcnow()
        self.name = ServerName(settings.name)
        self.site = settings.site
        self.host = settings.host
        self.policy = settings.policy()
        places = tuple(MemberPlace(ServerName(m.name), m.site, m.host) for m in settings.members)
        self.addresses = {member.name: str(member.address) for member in settings.members}
        self.boundary = Boundary(MemberPlace(self.name, self.site, self.host), places, self.policy)
        self.members = Members(database, self.boundary, _addresses(settings), self.policy, utcnow)
        self.inquiry = Inquiry()
        self.routes = tuple(
            Route(NextHop(name), tuple(route.domains), route.inside)
            for name, route in settings.routes.items()
        )
        reporter = Reporter(self.name, self.routes, self.policy, utcnow)
        self.queue = Queue(self.members, _servers(settings), self.routes, reporter, self.policy, utcnow)
        self.links = {
            place.name: Link(place.name, self.members, self.inquiry, self.queue.wake.set) for place in places
        }
        self.in_flight: set[MessageId] = set()
        self.spool = settings.data_dir / CONTENT
        self.connectors: list[Connector] = []
        self.stopping = False
        self._tasks: dict[ServerName, asyncio.Task[None]] = {}

    def peers(self) -> Sequence[PeerStatus]:
        now, clock = utcnow(), seconds()
        return [
            peer_status(
                place,
                self.addresses[place.name],
                self.boundary.watches[place.name],
                self.policy,
                clock=clock,
                now=now,
                step=self.links[place.name].step,
            )
            for place in self.boundary.places
        ]

    def ready(self) -> tuple[bool, str]:
        if self.database.failed.is_set():
            return False, self.database.failure
        if self.stopping:
            return False, "the node is stopping"
        if not self.connectors:
            return False, "the node is starting"
        return True, "the node takes mail"

    def live(self) -> bool:
        return not self.database.failed.is_set()

    def retired(self, name: ServerName) -> None:
        self.boundary.retire(name)
        if task := self._tasks.pop(name, None):
            task.cancel()
        self.queue.wake.set()

    def start_links(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Talk to every member that was not retired."""
        for name in self.boundary.watches if self.policy.shadow_redundancy_enabled else ():
            link = self.links[name]
            self._tasks[name] = group.create_task(link.run(), name=f"link to {name}")
        return list(self._tasks.values())

    def connector_for_senders(self, name: str, connector: ReceiveConnector) -> Connector:
        options = IntakeOptions(
            connector=name,
            relay_networks=tuple(self.settings.relay_networks),
            accepted_domains=tuple(self.settings.accepted_domains),
            routes=self.routes,
            content=self.spool,
            minimum_free_disk=self.settings.minimum_free_disk,
            submission=connector.submission,
        )
        tls = None
        if connector.tls_certificate and connector.tls_key:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(connector.tls_certificate, connector.tls_key)
        limits = ConnectorOptions(
            hostname=self.name,
            host=connector.listen.host,
            port=connector.listen.port,
            name=name,
            tls=tls,
            connection_timeout=connector.connection_timeout,
            inactivity_timeout=connector.connection_inactivity_timeout,
            tarpit_interval=connector.tarpit_interval,
            max_protocol_errors=connector.max_protocol_errors,
            max_inbound_connections=connector.max_inbound_connection,
            max_inbound_connections_per_source=connector.max_inbound_connection_per_source,
            max_recipients_per_message=connector.max_recipients_per_message,
            max_message_size=connector.max_message_size,
            max_header_size=connector.max_header_size,
        )
        return Connector(limits, Intake(self.members, options, self.policy, mint, self.in_flight))

    def connector_for_members(self, peer: PeerConnector) -> Connector:
        options = DeskOptions(
            externally_secured=tuple(peer.externally_secured),
            content=self.spool,
            minimum_free_disk=self.settings.minimum_free_disk,
        )
        limits = ConnectorOptions(
            hostname=self.name,
            host=peer.listen.host,
            port=peer.listen.port,
            name="members",
            greeting="ESMTP members",
            tls=_server_context(peer),
            implicit_tls=peer.tls,
            connection_timeout=None,
            inactivity_timeout=peer.connection_inactivity_timeout,
            tarpit_interval=peer.connection_inactivity_timeout * 0,
            max_protocol_errors=100,
            max_inbound_connections=peer.max_inbound_connection,
            max_inbound_connections_per_source=None,
            max_recipients_per_message=1_000_000,
            max_message_size=MEMBER_MESSAGE_SIZE,
            max_header_size=1 << 25,
            max_text_line=None,
            max_command_line=4096,
        )
        desks = Desks(self.members, options, self.policy, self.in_flight, self.met)
        return Connector(limits, desks, session=PeerSession)  # type: ignore[arg-type]

    def met(self, name: ServerName) -> None:
        """A member called us: talk to it now, and look at the queue."""
        self.queue.wake.set()
        if name in self.links:
            self.links[name].wake.set()


def _addresses(settings: Settings) -> dict[ServerName, Address]:
    peer = settings.peer
    context = _client_context(peer) if peer else None
    return {
        ServerName(member.name): Address(
            ServerName(member.name), member.address.host, member.address.port, context
        )
        for member in settings.members
    }


def _server_context(peer: PeerConnector) -> ssl.SSLContext | None:
    if not (peer.tls and peer.certificate and peer.key and peer.ca):
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(peer.ca))
    context.load_cert_chain(peer.certificate, peer.key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _client_context(peer: PeerConnector) -> ssl.SSLContext | None:
    if not (peer.tls and peer.certificate and peer.key and peer.ca):
        return None
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(peer.ca))
    context.load_cert_chain(peer.certificate, peer.key)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _servers(settings: Settings) -> dict[NextHop, NextHopServer]:
    return {
        NextHop(name): NextHopServer(
            name=NextHop(name),
            host=route.host,
            port=route.port,
            local_hostname=settings.name,
            protocol=route.protocol.value,
            inside=route.inside,
            tls=route.tls.value,
            ca_file=str(route.ca) if route.ca else None,
        )
        for name, route in settings.routes.items()
    }


def _tracking_writer(node: Node) -> TrackingWriter:
    tracking = node.settings.tracking
    return TrackingWriter(
        Outbox(node.database),
        directory=Path(tracking.directory),
        node=node.name,
        limits=LogLimits(
            max_file_age=tracking.max_file_age,
            max_file_size=tracking.max_file_size,
            max_directory_size=tracking.max_directory_size,
            max_age=tracking.max_age,
        ),
        committed=node.database.subscribe(asyncio.Event()),
        clock=utcnow,
    )


async def _every(interval: float, work: Callable[[], Awaitable[object]]) -> None:
    while True:
        await asyncio.sleep(interval)
        await work()


async def _until_failed(database: TransportDatabase) -> None:
    await database.failed.wait()
    raise NodeFailed(database.failure)


async def run_node(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises NodeFailed, CannotOpen or OSError when the node cannot go on."""
    now = utcnow()
    name = ServerName(settings.name)
    database = await TransportDatabase.open(
        settings.data_dir, name, Incarnation(secrets.token_hex(8)), DatabaseId(str(uuid4())), now
    )
    if database.opened.set_aside is not None:
        log.critical(
            "corrupt_database_set_aside",
            kept_as=str(database.opened.set_aside),
            database_id=database.lineage.database_id,
            consequence="a new database was begun; members promote what they hold for this node",
        )
    log.info(
        "database_opened",
        database_id=database.lineage.database_id,
        incarnation=database.lineage.incarnation,
        sequence=database.lineage.sequence,
        created=database.opened.created,
    )
    try:
        await _serve(Node(settings, database))
    finally:
        await database.close(utcnow())


async def _serve(node: Node) -> None:
    settings, database = node.settings, node.database
    content.prepare(node.spool)
    await database.transact(lambda ledger: content.sweep(ledger, node.spool))
    for member in await database.transact(lambda ledger: tuple(ledger.members())):
        if member.retired:
            node.retired(member.name)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    async def snapshot() -> None:
        await database.transact(lambda ledger: take_snapshot(ledger, str(uuid4()), utcnow()))

    log_stop, admin_stop = asyncio.Event(), asyncio.Event()
    writer = _tracking_writer(node)
    listening = bind(settings.admin.listen.host, settings.admin.listen.port)
    token = settings.admin.token.get_secret_value() if settings.admin.token else None
    opened = database.opened
    away = None if opened.away_since is None else node.started_at - opened.away_since
    async with asyncio.TaskGroup() as group:
        guard = group.create_task(_until_failed(database))
        logging = group.create_task(writer.run(log_stop), name="tracking writer")
        api = group.create_task(serve(build_app(node, token=token), listening, admin_stop), name="admin")
        await snapshot()
        connectors = []
        if settings.peer is not None:
            connectors.append(node.connector_for_members(settings.peer))
        connectors += [node.connector_for_senders(label, c) for label, c in settings.receive.items()]
        for connector in connectors:
            await connector.start()
        node.connectors = connectors
        database.subscribe(node.queue.wake)
        queue = group.create_task(node.queue.run(), name="queue")
        background = [
            *node.start_links(group),
            group.create_task(Repair(node.members).run(), name="repair"),
            group.create_task(
                Reconcile(node.members, node.inquiry, away, node.queue.wake.set).run(), name="reconcile"
            ),
            group.create_task(Expiry(database, node.policy, utcnow).run(), name="expiry"),
            group.create_task(_every(SNAPSHOT_INTERVAL, snapshot), name="snapshots"),
        ]
        log.info("node_started", node=node.name, site=node.site, members=len(node.boundary.places))
        await stop.wait()
        node.stopping = True
        log.info("node_stopping", drain=settings.drain_timeout.total_seconds())
        started = time.monotonic()
        drain = settings.drain_timeout.total_seconds()
        *senders, members = reversed(connectors) if settings.peer else [*connectors, None]
        await asyncio.gather(*(connector.stop(drain) for connector in senders if connector))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(1.0, drain - (time.monotonic() - started))):
                await node.queue.stop()
        if members is not None:
            await members.stop(1.0)
        for task in (queue, *background, guard):
            task.cancel()
        await asyncio.gather(queue, *background, guard, return_exceptions=True)
        await node.members.close()
        await snapshot()
        admin_stop.set()
        log_stop.set()
        await asyncio.gather(api, logging)
    log.info("node_stopped", node=node.name)
