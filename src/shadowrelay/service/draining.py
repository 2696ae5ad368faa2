"""A node that is being emptied: for a while, at an operator's word, or for good, when it is told to stop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

import structlog

from shadowrelay.core.handover import Remains
from shadowrelay.primary.draining import Drain
from shadowrelay.smtp.receive_connector import Connector

log = structlog.get_logger(__name__)


class Draining:
    """Of one node. ``active``: no mail and no copies are taken; the queue is delivered or handed over."""

    def __init__(self, drain: Drain, patience: float) -> None:
        self.active = False
        self._drain = drain
        self._patience = patience  # seconds for sessions to finish
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing: Sequence[Connector] = ()

    async def remains(self) -> Remains:
        left = await self._drain.remains()
        return replace(left, arriving=sum(connector.sessions for connector in self._closing))

    async def begin(self, connectors: Sequence[Connector]) -> Remains:
        """Begin, and go on in the background until ``end`` or ``finish``. Idempotent."""
        if not self.active:
            self.active = True
            log.warning("drain_begins")
        if not self._tasks:
            self._start(self._empty(connectors, math.inf))
        return await self.remains()

    async def end(self, connectors: Sequence[Connector]) -> Remains:
        """Take mail and copies again. What was handed over stays where it is."""
        await self._cancel()
        self.active = False
        self._closing = ()
        for connector in connectors:
            connector.admit()
        log.warning("drain_ends")
        return await self.remains()

    async def finish(self, connectors: Sequence[Connector], until: float) -> None:
        """The node stops: work until nothing is left, or until that time on the loop's clock."""
        await self._cancel()
        self.active = True
        await self._empty(connectors, until)

    async def _empty(self, connectors: Sequence[Connector], until: float) -> None:
        """Sessions may finish, and what they bring is delivered or handed over like the rest."""
        self._closing = connectors
        async with asyncio.TaskGroup() as group:
            sessions = [group.create_task(one.refuse(self._patience)) for one in connectors]
            await self._drain.run(until, lambda: not all(session.done() for session in sessions))

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("drain_failed", exc_info=error)

    async def _cancel(self) -> None:
        for task in (tasks := tuple(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
