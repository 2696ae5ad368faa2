"""The stage that carries out resubmit requests, at a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

import structlog

from shadowrelay import measures
from shadowrelay.core.identifiers import MessageId, RequestId, ServerName
from shadowrelay.core.members.conversation import Answered
from shadowrelay.core.members.second_opinion import Others
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.safety_net import resubmission
from shadowrelay.core.safety_net.resubmission import Contacts
from shadowrelay.core.steps import Ask, Compare, Unanswered
from shadowrelay.database.examining import Examiner, Finding
from shadowrelay.database.indexes import SETTLED
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.members.in_force import InForce
from shadowrelay.members.indexes import Indexes
from shadowrelay.members.pool import Members, seconds
from shadowrelay.members.replication import Replication
from shadowrelay.running import Performer
from shadowrelay.safety_net.making import make
from shadowrelay.safety_net.pace import Pace

log = structlog.get_logger(__name__)

INTERVAL = 1.0  # seconds between looks
PATIENCE = 10.0  # seconds that one question may take


class Resubmitting:
    """Makes the messages that requests call for, once the members have told what they know of these."""

    def __init__(
        self,
        members: Members,
        database: TransportDatabase,
        replication: Replication,
        contacts: Callable[[], Contacts],
        others: Callable[[ServerName], Others],
        examiner: Examiner,
        ready: Callable[[], bool],
        in_force: InForce,
        endings: Callable[[], Endings],
        indexes: Indexes,
    ) -> None:
        self._members = members
        self._database = database
        self._replication = replication
        self._contacts = contacts
        self._others = others
        self._examiner = examiner
        self._ready = ready  # is there room, and is the node neither opening nor being drained?
        self._in_force = in_force
        self._endings = endings
        self._indexes = indexes
        self._pace = Pace(in_force.policy, seconds())
        self.batches = measures.Histogram(measures.SLOW)  # how long a batch that made messages takes

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            records = await self._database.transact(lambda ledger: ledger.requests())
            self._pace.policy = policy = self._in_force.policy
            open_ones = [one.id for one in records if one.runs(self._endings(), policy.resubmit_request_age)]
            if open_ones and self._replication.heard():
                await self._work(open_ones)
            await asyncio.sleep(INTERVAL)

    async def _work(self, requests: Sequence[RequestId]) -> None:
        """One turn: every request, and every owner for which this node answers, as far as the rate allows."""
        contacts = self._contacts()
        owners = await self._database.transact(lambda ledger: resubmission.owners(ledger, contacts))
        for request in self._pace.in_turn(requests):
            for owner in owners:
                while await self._step(request, owner):
                    pass

    async def _step(self, request: RequestId, owner: ServerName) -> bool:
        """One batch. False if nothing more is to be done for this owner now."""
        most = self._pace.most(seconds())
        if most < 1 or not self._ready():
            return False
        began = measures.now()
        script = make(
            request, owner, most, self._contacts, self._others(owner), self._in_force.policy, self._endings
        )
        made = await self._performer().run(script)
        self._pace.made(made.count)
        if made.count:
            self.batches.since(began)
            log.info("messages_resubmitted", request=request, owner=owner, messages=made.count)
        return made.more

    async def _unsound(self, originals: Collection[MessageId]) -> frozenset[MessageId]:
        """Those whose content differs from its digest, or cannot be read: verify, then send."""
        unsound = set()
        for message_id in originals:
            if await self._examiner.look(message_id) is not Finding.SOUND:
                unsound.add(message_id)
        return frozenset(unsound)

    def _performer(self) -> Performer:
        async def ask(step: Ask) -> Answered | Unanswered:
            return await self._members.ask(step, PATIENCE)

        async def compare(step: Compare) -> frozenset[MessageId]:
            return await self._unsound(step.messages)

        rebuilt = self._indexes.rebuilt  # before the look whose end is asked about

        async def all_found() -> bool:
            return await self._indexes.hold(SETTLED) and self._indexes.rebuilt == rebuilt

        return Performer(
            transact=self._database.transact,
            ask=ask,
            compare=compare,
            all_found=all_found,
        )
