"""What the tracking log of this node, written or not yet, says of one message."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import Status
from shadowrelay.core.values import dataclass
from shadowrelay.database.outbox import rows_about
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.tracking import lookup


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

    async def _about(self, message_id: MessageId) -> lookup.LogRows:
        unwritten = await self._database.transact(lambda ledger: rows_about(ledger, message_id))
        return await lookup.about(self._directory, message_id, unwritten)
