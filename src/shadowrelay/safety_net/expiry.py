"""The expiry stage: it empties Safety Net, and forgets what need not be remembered any longer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

import structlog

from shadowrelay.core.delivery.hop_shadows import given_up
from shadowrelay.core.events.discard import remembered_for
from shadowrelay.core.identifiers import FIRST, MessageId, ServerName
from shadowrelay.core.policy import Policy
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.safety_net import requesting
from shadowrelay.core.safety_net.expiry import expire
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue import (
    forget_expired,
    held_since_before,
    settled_before,
    waiting_since_before,
)
from shadowrelay.database.transport import TransportDatabase

log = structlog.get_logger(__name__)

BATCH = 500
LOOKS = 2000  # copies of other owners that one sweep looks at; the next one goes on after them


class Expiry:
    """Expires old copies, outcomes and events each minute, or more often if the hold time is short. Then it
    gives the freed space back.
    """

    def __init__(
        self,
        database: TransportDatabase,
        policy: Policy,
        endings: Callable[[], Endings],
        reachable: Callable[[], Collection[ServerName]],
        save: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._database = database
        self._reachable = reachable  # owners that are asked before a copy held for them expires by age
        self._policy = policy
        self._endings = endings
        self._save = save or self._touch  # what time it is
        self._place = FIRST  # the next sweep looks at copies behind it

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            interval = min(60.0, max(1.0, self._policy.safety_net_hold_time.total_seconds() / 4))
            await asyncio.sleep(interval)
            swept = BATCH
            while swept >= BATCH:
                swept = await self._database.transact(self._sweep)
            await self._save()

    async def _touch(self) -> None:
        await self._database.touch(self._endings().now)

    def _sweep(self, ledger: SqlLedger) -> int:
        policy, ends = self._policy, self._endings()
        if ends.doubt:
            return 0
        now = ends.now
        hold, reachable = policy.safety_net_hold_time, self._reachable()
        gone = 0
        kept = requesting.kept(ledger, policy, ends)
        span = (min(one.since for one in kept), max(one.until for one in kept)) if kept else None
        too_old = ends.before(hold + policy.message_expiration_timeout)
        held, self._place = held_since_before(ledger, too_old, self._place, LOOKS)
        old = (
            *settled_before(ledger, ends.before(hold), BATCH, span),
            *waiting_since_before(ledger, ends.before(hold), BATCH),
            *held,
        )
        for copy in old:
            gone += ledger.apply(expire(ledger, copy, policy, now, reachable, kept, ends))
        for message_id in ledger.hop_shadow_rows.since_before(ends.before(remembered_for(policy)), BATCH):
            gone += self._given_up(ledger, message_id, ends)
        ledger.apply(requesting.forget(ledger, policy, ends))
        forget_expired(ledger, ends.before(policy.shadow_message_auto_discard_interval), ends)
        if gone:
            log.info("safety_net_expired", messages=gone)
        return gone

    def _given_up(self, ledger: SqlLedger, message_id: MessageId, ends: Endings) -> bool:
        """Discard by age what no hop says is delivered."""
        gone = ledger.apply(given_up(ledger, message_id, self._policy, ends.now, ends))
        if gone:
            log.warning("hop_shadow_expired", message=message_id)
        return gone
