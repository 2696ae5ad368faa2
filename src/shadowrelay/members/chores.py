"""The stage that carries on chores: work on very many messages, part by part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from shadowrelay.database.opening import carry_on
from shadowrelay.database.transport import TransportDatabase

log = structlog.get_logger(__name__)


class Chores:
    """Carries on chores. ``changed`` is called when none is left, so that the queue may go on."""

    def __init__(self, database: TransportDatabase, changed: Callable[[], None]) -> None:
        self._database = database
        self._changed = changed
        self._left = database.when_left(asyncio.Event())

    async def run(self) -> None:
        """Carry on chores until cancelled."""
        while True:
            if self._database.ledger.chores:
                await self.finish()
                self._changed()
            self._left.clear()
            await self._left.wait()

    async def finish(self) -> None:
        """Do all chores that are left, however long that takes. Between two parts others have their turn."""
        if not (left := self._database.ledger.chores):
            return
        log.info("chores_begun", left=[f"{chore.work} {chore.member}" for chore in left])
        while await self._database.transact(carry_on):
            pass
        log.info("chores_done")
