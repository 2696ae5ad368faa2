"""The stage for shadow queues of hops: it asks silent hops, and sends again what they failed to deliver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial

import structlog

from shadowrelay.core.decisions import HopShadow, Part
from shadowrelay.core.delivery.hop_shadows import send_again, to_send_again
from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.messages import Reason
from shadowrelay.core.policy import Policy
from shadowrelay.database.examining import Examiner, Finding
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.delivery.hop_talk import HopConversations
from shadowrelay.members.pool import seconds
from shadowrelay.smtp.sending.hop import ConnectionFailed, NextHopServer
from shadowrelay.smtp.sending.session import DeliverySession

log = structlog.get_logger(__name__)

INTERVAL = 1.0  # seconds between looks
AGAIN = 60.0  # seconds until the whole shadow queue is looked at again, if nothing has changed
AT_ONCE = 100  # messages in one transaction
PATIENCE = 60.0  # seconds that a session of its own may take before its first answer


class HopShadows:
    """Looks after each hop that has something of ours.

    ``servers``: where a hop may be found, by its name. ``ways``: which next hops have another way while that
    hop is given up. ``changed`` is called when the queue has something new.
    """

    def __init__(
        self,
        database: TransportDatabase,
        conversations: HopConversations,
        servers: Mapping[ServerName, Sequence[NextHopServer]],
        examiner: Examiner,
        ready: Callable[[], bool],
        ways: Callable[[ServerName], Collection[NextHop]],
        changed: Callable[[], None],
        policy: Policy,
        clock: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._conversations = conversations
        self._servers = servers
        self._examiner = examiner
        self._ready = ready
        self._ways = ways
        self._changed = changed
        self._policy = policy
        self._clock = clock
        self._looked: dict[ServerName, tuple[object, float]] = {}  # on what the last look rested, and when

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            hops = list(self._database.ledger.hop_shadow_rows.counts)
            await asyncio.gather(*(self._look_after(hop) for hop in hops))
            await asyncio.sleep(INTERVAL)

    async def _look_after(self, hop: ServerName) -> None:
        watch = self._conversations.watch(hop)
        if watch.due(seconds(), self._policy):
            await self.heartbeat(hop)
        if self._ready():
            await self.send_again(hop)

    async def heartbeat(self, hop: ServerName) -> None:
        """Ask the hop in a session of its own."""
        began, error = seconds(), "it is not in the settings"
        for server in self._servers.get(hop, ()):
            error = await self._talk(hop, server)
            if not error:
                return
        watch = self._conversations.watch(hop).failed(began, error)
        self._conversations.watches[hop] = watch
        log.warning(
            "hop_heartbeat_failed",
            hop=hop,
            error=error,
            failures=watch.failures,
            given_up=watch.gone(self._policy),
        )

    async def _talk(self, hop: ServerName, server: NextHopServer) -> str:
        """How the heartbeat failed at that server; '' if the hop answered there."""
        session = DeliverySession(server, self._conversations)
        try:
            async with asyncio.timeout(PATIENCE):
                await session.connect()
                if session.hop is None or session.hop.name != hop:
                    return f"{server.host}:{server.port} does not track messages as {hop}"
                await self._conversations.ask(session)
        except ConnectionFailed as failed:
            return f"{failed.step}: {failed.reply or failed.error}"
        except TimeoutError:
            return "no answer in time"
        finally:
            await session.close()
        return ""

    async def send_again(self, hop: ServerName) -> int:
        """Make new messages of what the hop has lost, or of what can go another way while it is given up.
        Returns how many. The shadow queue may be long, so it is gone through only when there may be news.
        """
        gone = self._conversations.watch(hop).gone(self._policy)
        failed = Reason.HEARTBEAT_LOST if gone else None
        ways = frozenset(self._ways(hop)) if failed else frozenset()
        peer = await self._database.transact_briefly(lambda ledger: ledger.hop_peer(hop))
        known = peer.lineage if peer else None
        rests_on = known and (known.database_id, known.incarnation), failed, ways
        if not self._is_news(hop, rests_on):
            return 0
        part: Part | None = Part(most=AT_ONCE)
        count = 0
        while part is not None:
            rows, part = await self._database.transact(partial(self._wanted, hop, part, failed, ways))
            unsound = [row.message_id for row in rows if not await self._is_sound(row.message_id)]
            if rows:
                now = self._clock()
                again = partial(send_again, rows=rows, failed=failed, ways=ways, unsound=unsound, now=now)
                count += await self._database.transact(again)
        if count:
            log.warning("hop_messages_sent_again", hop=hop, messages=count, silent=gone)
            self._changed()
        return count

    def _is_news(self, hop: ServerName, rests_on: object) -> bool:
        before, at = self._looked.get(hop, (None, 0.0))
        if rests_on == before and seconds() - at < AGAIN:
            return False
        self._looked[hop] = rests_on, seconds()
        return True

    @staticmethod
    def _wanted(
        hop: ServerName, part: Part, failed: Reason | None, ways: Collection[NextHop], ledger: SqlLedger
    ) -> tuple[list[HopShadow], Part | None]:
        rows, rest = ledger.hop_shadows(hop, part)
        return [row for row in rows if to_send_again(ledger, row, failed, ways)], rest

    async def _is_sound(self, message_id: MessageId) -> bool:
        """Verify, then send: does the content match its digest?"""
        return await self._examiner.look(message_id) is Finding.SOUND
