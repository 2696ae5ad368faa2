"""What workers share: the addresses where the node receives mail, and the counts of its sessions."""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from shadowrelay.service.failing import cannot_listen
from shadowrelay.service.worker import WorkerPlace
from shadowrelay.settings import Settings
from shadowrelay.smtp.receiving.connector import held
from shadowrelay.smtp.receiving.shared_counts import (
    SIZE,
    ConnectorCounts,
    OwnCounts,
    SessionCounts,
    SharedCounts,
)


@asynccontextmanager
async def receive_addresses(settings: Settings) -> AsyncIterator[None]:
    """Keep the Receive addresses of the node for its workers. Raises NodeFailed if one is taken."""
    with ExitStack() as stack:
        for name, each in settings.receive.items():
            host, port = each.listen.host, each.listen.port
            try:
                for sock in await held(host, port):
                    stack.push(sock)
            except OSError as error:
                raise cannot_listen(f"receive.{name}", host, port, error) from error
        yield


def new_counts() -> int:
    """The descriptor of memory for the counts of all workers. All are zero."""
    descriptor = os.memfd_create("shadowrelay-counts")
    os.ftruncate(descriptor, SIZE)
    os.pwrite(descriptor, secrets.token_bytes(16), 0)
    return descriptor


def counts_in(descriptor: int, number: int) -> SharedCounts:
    """The counts of one worker in that memory."""
    return SharedCounts(memoryview(mmap.mmap(descriptor, SIZE)), number)


def counts_of(place: WorkerPlace | None) -> SessionCounts | None:
    """The counts of a worker, which begins with no session; None for a node that is one process."""
    if place is None:
        return None
    if place.counts is None:
        return OwnCounts()
    found = counts_in(place.counts, place.number)
    found.forget()
    return found


def of_connector(counts: SessionCounts | None, name: str) -> SessionCounts | None:
    """The part of them that is about the Receive connector of that name."""
    return None if counts is None else ConnectorCounts(counts, name)
