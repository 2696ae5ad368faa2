"""What the tracking log of this node, written or not yet, says of one message."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from shadowrelay.core.identifiers import Incarnation, MessageId
from shadowrelay.core.messages import Status
from shadowrelay.core.values import dataclass
from shadowrelay.database.outbox import rows_about, unwritten
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.members.pool import seconds
from shadowrelay.operator.tracing import Event, event
from shadowrelay.tracking import lookup, tracing
from shadowrelay.tracking.format import custom_entries, row_identity


@dataclass(frozen=True, slots=True)
class TrackingLookup:
    """One node's. The rows of the outbox are read too."""

    _database: TransportDatabase
    _directory: Path

    async def settled(self, message_id: MessageId) -> Mapping[int, Status]:
        """What became of the recipients of a message with damaged rows."""
        return lookup.settled(await self._about(message_id))

    async def damage(self, message_id: MessageId) -> tuple[str, str] | None:
        """When the message was last found damaged, and what was damaged."""
        return lookup.damage(await self._about(message_id))

    async def trace(self, message_id: MessageId, older: str, most: int) -> tuple[list[Event], str]:
        """The events of a message, also those not written yet; and where older files begin, or ''."""
        waiting = [] if older else await self._database.transact(lambda ledger: unwritten(ledger, message_id))
        look = partial(tracing.trace, self._directory, message_id, older, most, seconds)
        traced = await asyncio.to_thread(look)
        found = {}
        for one in waiting:  # read first: meanwhile a row may come into a file, and is the same
            own = {"Db": one.database_id, **custom_entries(one.columns.get("custom-data", ""))}
            found[one.incarnation, one.sequence] = event(one.columns, one.sequence, one.incarnation, own)
        for row in traced.rows:
            sequence, incarnation = row_identity(row)
            custom = custom_entries(row["custom-data"])
            found[Incarnation(incarnation), sequence] = event(row, sequence, incarnation, custom)
        return list(found.values()), traced.older

    async def _about(self, message_id: MessageId) -> lookup.LogRows:
        unwritten = await self._database.transact(lambda ledger: rows_about(ledger, message_id))
        return await lookup.about(self._directory, message_id, unwritten)
