"""Compares stored contents with their digests, and writes down which are damaged."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import Enum

import structlog

from shadowrelay.core.decisions import Content
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.members import damage
from shadowrelay.core.messages import Copy
from shadowrelay.core.values import dataclass
from shadowrelay.database.content import ContentDamaged, examine, stored
from shadowrelay.database.transport import TransportDatabase

log = structlog.get_logger(__name__)

_DIFFERS = "the octets differ from the digest"


class Finding(Enum):
    """What examining a message found. GONE: it is not there any more, or its rows differ from their sums."""

    SOUND = "sound"
    DAMAGED = "damaged"
    GONE = "gone"
    UNREADABLE = "unreadable for now"


@dataclass(frozen=True, slots=True)
class Examiner:
    """Examines the contents of messages."""

    database: TransportDatabase
    clock: Callable[[], datetime]

    async def look(self, message_id: MessageId) -> Finding:
        """Read the content of a message from the disk, past the page cache, and compare it."""
        copy, content = await self.database.transact(
            lambda ledger: (ledger.copy(message_id), stored(ledger, message_id))
        )
        return Finding.GONE if copy is None else await self.compare(copy, content or Content())

    async def compare(self, copy: Copy, content: Content) -> Finding:
        """Compare the content of ``copy``. A row from a version before digests gets them."""
        if copy.damaged:
            return Finding.DAMAGED
        try:
            found = await examine(content)
        except ContentDamaged as error:
            return await self.damaged(copy.id, str(error))
        except OSError as error:
            log.error("content_unreadable", message=copy.id, error=str(error))
            return Finding.UNREADABLE
        if copy.digests is None:
            await self.database.transact(lambda ledger: ledger.apply(damage.digested(ledger, copy.id, found)))
        elif copy.digests.content != found:
            return await self.damaged(copy.id, _DIFFERS)
        return Finding.SOUND

    async def look_again(self, message_id: MessageId) -> bool:
        """Whether a damaged content matches its digest after all. If so, write that down."""
        copy, content = await self.database.transact(
            lambda ledger: (ledger.copy(message_id), stored(ledger, message_id))
        )
        if copy is None or not copy.damaged:
            return False
        try:
            found = await examine(content or Content())
        except (ContentDamaged, OSError):
            return False
        now = self.clock()
        news = await self.database.transact(
            lambda ledger: ledger.apply(damage.sound_again(ledger, message_id, found, now))
        )
        if news:
            log.warning("copy_sound_again", message=message_id)
        return news

    async def damaged(self, message_id: MessageId, what: str) -> Finding:
        """Write down that a message is damaged: from now on it waits for a good copy."""
        now = self.clock()
        news = await self.database.transact(
            lambda ledger: ledger.apply(damage.found(ledger, message_id, now, what))
        )
        if news:
            log.error("copy_damaged", message=message_id, what=what)
        return Finding.DAMAGED
