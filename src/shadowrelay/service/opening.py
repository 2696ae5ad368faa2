"""Finishes the opening of a node's database, before the node takes or sends any mail.

No step waits for another member. While a long queue is opened, the node greets the other members, so that
none takes it for dead (docs/decisions/0024-opening-and-cut-off.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from uuid import uuid4

import structlog

from shadowrelay.core.tracking_row import Taken
from shadowrelay.database import content
from shadowrelay.database.opening import CONTENT
from shadowrelay.database.snapshot import PAGE, list_part
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.errors import NodeFailed
from shadowrelay.members.chores import Chores
from shadowrelay.service.node import Node

log = structlog.get_logger(__name__)

Now = Callable[[], datetime]

SNAPSHOT_INTERVAL = 3600.0
FEW = 100  # messages in a part of a snapshot while the node works

AT_ONCE = 0.3  # seconds that the first greeting waits for a short opening to end


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
