"""Runs a node: opens its database, starts the stages in one task group, and stops them in order.

No step of an opening waits for another member. While a long queue is opened, the node greets the other
members, so that none takes it for dead (docs/decisions/0024-opening-and-cut-off.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import secrets
import socket
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import structlog
from starlette.types import ASGIApp

from shadowrelay import __version__, signals
from shadowrelay.admin.api import build_app
from shadowrelay.admin.front_session import behind_front
from shadowrelay.admin.server import bind, serve
from shadowrelay.console.app import console
from shadowrelay.core.identifiers import DatabaseId, Incarnation, ServerName
from shadowrelay.core.tracking_row import Taken
from shadowrelay.database import content, ephemeral
from shadowrelay.database.opening import CONTENT
from shadowrelay.database.snapshot import PAGE, list_part
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.errors import NodeFailed, cannot_listen, why
from shadowrelay.in_hand import InHand
from shadowrelay.members.chores import Chores
from shadowrelay.node_clock import NodeClock, of_machine
from shadowrelay.safety_net.expiry import Expiry
from shadowrelay.service import connectors
from shadowrelay.service.adapters import machines, tracking_writer
from shadowrelay.service.crashes import Crashes
from shadowrelay.service.node import Node
from shadowrelay.service.reloading import Reloading
from shadowrelay.settings import Settings
from shadowrelay.smtp.receiving.connector import Connector
from shadowrelay.tracking.writer import TrackingWriter
from shadowrelay.workers.worker import SERVING, WorkerPlace, board_of, counts_of

if TYPE_CHECKING:
    from shadowrelay.tracking.traces import Traces

log = structlog.get_logger(__name__)

Now = Callable[[], datetime]

SNAPSHOT_INTERVAL = 3600.0
FEW = 100  # messages in a part of a snapshot while the node works

AT_ONCE = 0.3  # seconds that the first greeting waits for a short opening to end


async def _listen(key: str, connector: Connector) -> None:
    options = connector.options
    try:
        await connector.listen()
    except OSError as error:
        raise cannot_listen(key, options.host, options.port, error) from error


async def _until_failed(database: TransportDatabase) -> None:
    await database.failed.wait()
    raise NodeFailed(database.failure)


async def _track(writer: TrackingWriter, directory: Path, stop: asyncio.Event) -> None:
    try:
        await writer.run(stop)
    except OSError as error:
        raise NodeFailed(
            f"tracking.directory: cannot write to {directory}: {why(error)}. Give it room, or make it "
            "writable, and start the node again; no row is lost: each waits in the transport database until "
            "it is in a file"
        ) from error


async def run_node(
    settings: Settings, read: Callable[[], Settings] | None = None, *, worker: WorkerPlace | None = None
) -> None:
    """Run until a signal stops it. ``read`` reads the settings again. ``worker``: which worker of the node
    it is, if it has a supervisor; then it stops when the supervisor is gone, too. Raises NodeFailed,
    CannotOpen or OSError when the node cannot go on.
    """
    reading = of_machine()
    name = ServerName(settings.name)
    database = await TransportDatabase.open(
        settings.data_dir,
        name,
        Incarnation(secrets.token_hex(8)),
        DatabaseId(str(uuid4())),
        reading.wall,
        machines(settings),
        reading,
    )
    clock = NodeClock(database.opened.reckoning)
    again = asyncio.Event()
    with signals.heard(again) as stop:  # before anyone can see that the node runs
        _tell_what_was_opened(settings, database)
        crashes = Crashes(settings.data_dir)
        lifeline = worker.lifeline if worker else None
        hearing = asyncio.create_task(lifeline.hear(stop, again)) if lifeline else None
        try:
            node = Node(settings, database, clock)
            node.counts = counts_of(worker)
            if node.counts is not None:
                node.queue.shaping.share(node.counts)
            node.room.share(board_of(worker))
            if lifeline is not None:
                node.tell_supervisor = lifeline.tell
            await _serve(node, stop, crashes, read or (lambda: settings), again, worker)
        except BaseException as error:
            crashes.note(error, database.in_hand)
            raise
        finally:
            if hearing is not None:
                hearing.cancel()
            await database.close(clock(), clock.to_save())


def _tell_what_was_opened(settings: Settings, database: TransportDatabase) -> None:
    if database.opened.set_aside is not None:
        log.critical(
            "corrupt_database_set_aside",
            kept_as=str(database.opened.set_aside),
            database_id=database.lineage.database_id,
            consequence="a new database was begun; members promote what they hold for this node",
        )
    if database.opened.salvaged is not None:
        salvaged = database.opened.salvaged
        log.critical(
            "corrupt_database_salvaged",
            kept_as=str(salvaged.kept_as),
            unreadable=dict(salvaged.lost),
            consequence="messages are missing: members promote what they hold for this node"
            if salvaged.messages_missing
            else "no message is missing; what is damaged is fetched from members",
        )
    if database.opened.dropped:
        log.error(
            "damaged_rows_dropped",
            rows=dict(database.opened.dropped),
            consequence="members introduce themselves again, and are asked about all mail in transit",
        )
    if storage := ephemeral.of_this_process(settings.data_dir):
        log.critical(
            "data_directory_is_ephemeral",
            directory=str(settings.data_dir),
            storage=storage,
            consequence="every message that this node owns or holds is gone with it; mount a volume",
        )
    log.info(
        "database_opened",
        database_id=database.lineage.database_id,
        incarnation=database.lineage.incarnation,
        sequence=database.lineage.sequence,
        created=database.opened.created,
    )


async def _serve(
    node: Node,
    stop: asyncio.Event,
    crashes: Crashes,
    read: Callable[[], Settings],
    again: asyncio.Event,
    worker: WorkerPlace | None,
) -> None:
    settings, database, clock = node.settings, node.database, node.clock
    await _prepare(node)
    log_stop, admin_stop = asyncio.Event(), asyncio.Event()
    writer = tracking_writer(settings, database, node.services.events, clock, node.room.wait_for_descriptors)
    listening = _admin_socket(settings, worker)
    async with asyncio.TaskGroup() as group:
        guard = group.create_task(_until_failed(database))
        logging = group.create_task(
            _track(writer, settings.tracking.directory, log_stop), name="tracking writer"
        )
        pages = console(node, node.services.access, audit=settings.admin.audit_verdict)
        app = pages.into(build_app(node, access=node.services.access, clock=clock))
        api = group.create_task(serve(_reached(app, worker), listening, admin_stop), name="admin")
        sampling = group.create_task(pages.run(), name="console")
        members = connectors.for_members(node, settings.peer) if settings.peer else None
        senders = [connectors.for_senders(node, name, each) for name, each in settings.receive.items()]
        named = {"peer": members} if members else {}
        named |= {f"receive.{sender.options.name}": sender for sender in senders}
        for key, connector in named.items():  # all of them, before anybody is greeted
            await _listen(key, connector)
        listed = await list_part_of(database, clock, Taken.START)  # before any other row of this start
        await crashes.count(database, clock(), _in_hand(settings))
        _start_traces(node, group)
        await node.back_pressure.begin()  # before anybody may hand it mail: members do so while it opens
        pressing = group.create_task(node.back_pressure.run(), name="back pressure")
        opening = group.create_task(opened(node), name="opening")
        await asyncio.wait({opening}, timeout=AT_ONCE)  # usually that is enough: no member has to ask again
        if members is not None:
            await members.start()
        node.membership.start(group)
        await _either(opening, stop)
        for sender in senders if opening.done() else ():
            await sender.start()
        node.connectors = senders if opening.done() else []
        stages = _start_stages(node, group, listed=listed) if opening.done() else [opening]
        node.reloading = Reloading(node, read, named, writer, again, alone=worker is None)
        background = [
            *stages,
            group.create_task(node.reloading.run(), name="reloading"),
            group.create_task(node.clock.watch(), name="clock"),
            pressing,
            group.create_task(node.services.announcing.run(), name="announcing"),
            group.create_task(node.services.leaving.run(worker), name="leaving"),
            group.create_task(node.services.workers.run(), name="workers"),
            guard,
            sampling,
        ]
        gc.freeze()  # modules and settings stay for good: no collection looks at them again
        gc.set_threshold(20_000, 20, 50)  # a message allocates few cycles: collect less often
        _tell_that_it_started(node, worker)
        await stop.wait()
        await _drain(node, members)
        background += node.membership.tasks
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        await node.giver.close()
        await node.members.close()
        node.resolver.close()
        await take_snapshot(database, clock, Taken.STOP)
        node.services.events.close()
        admin_stop.set()
        log_stop.set()
        await asyncio.gather(api, logging)
    log.info("node_stopped", node=node.name)


def _tell_that_it_started(node: Node, worker: WorkerPlace | None) -> None:
    log.info("node_started", node=node.name, site=node.site, members=len(node.boundary.places))
    if worker and worker.lifeline:
        worker.lifeline.tell(SERVING)


def _reached(app: ASGIApp, worker: WorkerPlace | None) -> ASGIApp:
    """The application as clients reach it: directly, or through the front of the node."""
    return app if worker is None or worker.admin is None else behind_front(app)


def _admin_socket(settings: Settings, worker: WorkerPlace | None) -> socket.socket:
    """Where this process serves its API: the node's address, or what its supervisor made for it."""
    if worker is None or worker.admin is None:
        return bind(settings.admin.listen.host, settings.admin.listen.port)
    listening = socket.socket(fileno=worker.admin)
    listening.set_inheritable(False)
    listening.setblocking(False)
    return listening


async def _either(task: asyncio.Task[None], stop: asyncio.Event) -> None:
    """Wait until the task is done, or ``stop`` is set."""
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()


async def _prepare(node: Node) -> None:
    """Prepare what must be ready before anyone may connect."""
    content.prepare(node.spool)
    node.opening = node.inquiry.opening = True
    for member in await node.database.transact(lambda ledger: tuple(ledger.members())):
        if member.retired:
            node.membership.retired(member.name)
    await node.services.announcing.begin()
    await node.services.workers.begin()
    await node.replication.look()  # what was switched counts before anything is accepted


def _start_stages(node: Node, group: asyncio.TaskGroup, *, listed: bool) -> list[asyncio.Task[None]]:
    database, wake = node.database, node.queue.wake
    database.when_planned(wake)
    return [
        group.create_task(node.queue.run(), name="queue"),
        group.create_task(Chores(database, wake.set).run(), name="chores"),
        group.create_task(node.repair.run(), name="repair"),
        group.create_task(node.reconcile().run(), name="reconcile"),
        group.create_task(node.mend.run(), name="mend"),
        group.create_task(node.scrub.run(), name="scrub"),
        group.create_task(node.indexes.run(), name="indexes"),
        group.create_task(node.indexes.heed(), name="doubted indexes"),
        group.create_task(
            Expiry(database, node.policy, node.clock.endings, node.boundary.reachable, node.save_time).run(),
            name="expiry",
        ),
        group.create_task(node.replication.run(), name="replication"),
        group.create_task(node.resubmitting.run(), name="resubmitting"),
        group.create_task(node.services.job_runner.run(), name="jobs"),
        group.create_task(node.hop_shadows.run(), name="hop shadows"),
        group.create_task(node.tls_policies.sts.run(), name="policies of MTA-STS"),
        group.create_task(node.tls_reports.run(), name="TLS reports"),
        group.create_task(take_snapshots(database, node.clock, listed=listed), name="snapshots"),
    ]


def _start_traces(node: Node, group: asyncio.TaskGroup) -> None:
    node.services.traces = _traces(node.settings, node.database)
    if node.services.traces is not None:
        group.create_task(node.services.traces.run(node.services.events), name="traces")


async def _drain(node: Node, members: Connector | None) -> None:
    """Stop senders and queue first, and members last: until then they may ask and get answers."""
    node.stopping = True
    # A node that is still opening hands nothing over.
    drain = 0.0 if node.opening else node.settings.drain_timeout.total_seconds()
    until = asyncio.get_running_loop().time() + drain
    log.info("node_stopping", drain=drain)
    await node.redirecting.end()
    if drain:
        await node.draining.finish(node.connectors, until)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(until + 1.0):
            await node.queue.stop()
    await asyncio.gather(*(connector.stop(0.0) for connector in node.connectors))
    left = await node.draining.remains()
    told = log.info if left.done else log.warning
    told(
        "node_drained",
        queued=left.queued,
        exposed=left.exposed,
        held_by=dict(left.held_by),
        held_for=dict(left.held_for),
        handed_over=dict(left.handed_over),
        not_yet_taken=dict(left.awaited),
    )
    if members is not None:
        await members.stop(1.0)


async def opened(node: Node) -> None:
    """Finish the opening: check the file, mark what to ask about, sweep content that no row names.

    Raises NodeFailed after ``opening_timeout``: a node that answers members and never opens keeps its mail
    from everyone.
    """
    salvaged = node.database.opened.salvaged
    database, limit = node.database, node.policy.opening_timeout.total_seconds()
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(limit):
            await database.check()
            await Chores(database, node.queue.wake.set).finish()
            aside = node.spool.with_name(f"{CONTENT}.{salvaged.mark}") if salvaged else None
            await database.transact(lambda ledger: content.sweep(ledger, node.spool, aside))
    except TimeoutError:
        raise NodeFailed(
            f"the opening of the database took longer than opening_timeout ({limit:.0f} s): look at the "
            "disk, or give it more time"
        ) from None
    node.opening = node.inquiry.opening = False
    log.info("opening_ended", seconds=round(loop.time() - began, 3))


async def take_snapshots(database: TransportDatabase, now: Now, *, listed: bool) -> None:
    """Until cancelled, finish the snapshot of the start unless it is ``listed``, and take one every hour."""
    taken = Taken.START
    while True:
        if not listed:
            await take_snapshot(database, now, taken)
        listed, taken = False, Taken.HOURLY
        await asyncio.sleep(SNAPSHOT_INTERVAL)


async def take_snapshot(database: TransportDatabase, now: Now, taken: Taken) -> None:
    """Take a snapshot of all that this node holds, part by part, or finish one that was begun.

    While the node works, it pauses after each part for as long as the part took.
    """
    clock = asyncio.get_running_loop().time
    began = clock()
    while not await list_part_of(database, now, taken):
        if taken is not Taken.STOP:
            await asyncio.sleep(clock() - began)
        began = clock()


async def list_part_of(database: TransportDatabase, now: Now, taken: Taken) -> bool:
    """Take one part of a snapshot. Returns whether it was the last."""
    most = PAGE if taken is Taken.STOP else FEW
    return await database.transact(lambda ledger: list_part(ledger, str(uuid4()), now(), taken, most))


def _in_hand(settings: Settings) -> type[InHand]:
    """What notes the messages in hand: for traces, with the time."""
    if settings.traces.endpoint is None:
        return InHand
    from shadowrelay.tracking.traces import Began

    return Began


def _traces(settings: Settings, database: TransportDatabase) -> Traces | None:
    """The stage; None without an endpoint."""
    if settings.traces.endpoint is None:
        return None
    from shadowrelay.tracking.traces import Began, Traces

    began = database.in_hand if isinstance(database.in_hand, Began) else Began()
    return Traces.to(
        settings.traces.endpoint,
        settings.name,
        __version__,
        began,
        addresses=settings.traces.addresses,
    )
