"""The stage that carries out resubmit requests: it makes messages of those in Safety Net, at a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from datetime import datetime
from functools import partial

import structlog

from shadowrelay.core.decisions import Content, VerdictKind
from shadowrelay.core.events.reports import resubmitted_id
from shadowrelay.core.identifiers import MessageId, RequestId, ServerName
from shadowrelay.core.members.conversation import Query, Question
from shadowrelay.core.ownership import chores
from shadowrelay.core.policy import Policy
from shadowrelay.core.requests import RequestState
from shadowrelay.core.safety_net import resubmission
from shadowrelay.core.safety_net.resubmission import AT_ONCE, Batch, Contacts
from shadowrelay.core.steps import Ask, Operate, Unanswered
from shadowrelay.core.values import dataclass
from shadowrelay.database.content import stored
from shadowrelay.database.examining import Examiner, Finding
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.members.pool import Members, seconds
from shadowrelay.running import Performer
from shadowrelay.safety_net.sharing import Shared, share

log = structlog.get_logger(__name__)

INTERVAL = 1.0  # seconds between looks
MOST_UNSETTLED = 500  # resubmitted messages of this node in its queue at a time
REFRESH = 5.0  # seconds after which members are given open requests again, and tell how far they are
PATIENCE = 10.0  # seconds that one question may take


async def asked_elsewhere(found: Batch, members: Collection[ServerName]) -> frozenset[MessageId] | None:
    """The originals of which a member has, or had, the new message. None: a member does not know yet.

    The question is at epoch 0: it claims no copy, so nobody records this node as a holder.
    """
    by_id = {resubmitted_id(found.request.id, original): original for original in found.ids}
    elsewhere: set[MessageId] = set()
    for member in sorted(members) if by_id else ():
        answered = await Ask(member, Query(0, questions=tuple(Question(id_, 0) for id_ in by_id)))
        if isinstance(answered, Unanswered):
            continue
        verdicts = {line.verdict.message_id: line.verdict.kind for line in answered.lines}
        if VerdictKind.PENDING in verdicts.values():
            return None
        elsewhere |= {
            by_id[id_] for id_, kind in verdicts.items() if id_ in by_id and kind is not VerdictKind.UNKNOWN
        }
    return frozenset(elsewhere)


@dataclass(slots=True)
class Given:
    """What this process knows of the records that a member has."""

    revisions: Mapping[RequestId, int] = field(default_factory=dict)
    refused: Mapping[RequestId, str] = field(default_factory=dict)
    at: float | None = None  # when it answered last, since it can be reached


class Resubmitting:
    """Shares requests with the members, and makes the messages that they call for."""

    def __init__(
        self,
        members: Members,
        database: TransportDatabase,
        contacts: Callable[[], Contacts],
        examiner: Examiner,
        ready: Callable[[], bool],
        policy: Policy,
        clock: Callable[[], datetime],
    ) -> None:
        self._members = members
        self._database = database
        self._contacts = contacts
        self._examiner = examiner
        self._ready = ready  # is there room, and is the node neither opening nor being drained?
        self._policy = policy
        self._clock = clock
        self.given: dict[ServerName, Given] = {}
        self.wake = asyncio.Event()
        self._waits: dict[ServerName, float] = {}  # since when a member's answer is waited for
        self._allowance = 0.0
        self._refilled = seconds()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            records = await self._database.transact(lambda ledger: tuple(ledger.requests()))
            if records:
                await self._share(records_changed={one.id: one.revision for one in records})
                open_ones = [
                    one.id
                    for one in records
                    if one.state is RequestState.RUNNING
                    and one.open(self._clock(), self._policy.resubmit_request_age)
                ]
                if open_ones and self._may_go_on():
                    await self._work(open_ones)
            try:
                async with asyncio.timeout(INTERVAL):
                    await self.wake.wait()
            except TimeoutError:
                continue
            self.wake.clear()

    # Sharing

    async def _share(self, records_changed: Mapping[RequestId, int]) -> None:
        """Give the records to each member that can be reached and does not have them as they are now."""
        contacts, now = self._contacts(), seconds()
        for name in set(self.given) - contacts.reachable:
            del self.given[name]
            self._waits.pop(name, None)
        due = []
        for name in contacts.reachable:
            known = self.given.setdefault(name, Given())
            self._waits.setdefault(name, now)
            fresh = known.at is not None and now - known.at < REFRESH
            if not fresh or known.revisions != records_changed:
                due.append(name)
        await asyncio.gather(*(self._give(name) for name in due))

    async def _give(self, name: ServerName) -> None:
        script = share(name, self._policy, self._clock)
        shared: Shared = await self._performer().run(script)
        if shared.failed is not None:
            return
        known = self.given.get(name)
        if known is None:
            return
        news = dict(shared.refused)
        for request, why in news.items():
            if known.refused.get(request) != why:
                log.warning("request_refused_by_member", member=name, request=request, why=why)
        known.revisions, known.refused, known.at = dict(shared.given), news, seconds()

    def _may_go_on(self) -> bool:
        """Has every member that can be reached told what it knows of the requests? This waits for it for the
        reconcile timeout at most.
        """
        patience = self._policy.reconcile_timeout.total_seconds()
        return all(
            self.given[name].at is not None or seconds() - since >= patience
            for name, since in self._waits.items()
            if name in self.given
        )

    # Making

    async def _work(self, requests: Collection[RequestId]) -> None:
        """One turn: every request, and every owner for which this node answers, as far as the rate allows."""
        self._refill()
        contacts = self._contacts()
        owners = await self._database.transact(lambda ledger: resubmission.owners(ledger, contacts))
        for request in requests:
            for owner in owners:
                more = True
                while more:
                    more = await self._step(request, owner)

    def _refill(self) -> None:
        now, rate = seconds(), float(self._policy.resubmit_rate)
        self._allowance = min(rate, self._allowance + (now - self._refilled) * rate)
        self._refilled = now

    async def _step(self, request: RequestId, owner: ServerName) -> bool:
        """One batch. False if nothing more is to be done for this owner now."""
        self._refill()
        most = min(AT_ONCE, int(self._allowance))
        if most < 1 or not self._ready():
            return False
        contacts = self._contacts()

        def look(ledger: SqlLedger) -> Batch | None:
            if chores.held_back(ledger) or ledger.resubmitting() >= MOST_UNSETTLED:
                return None
            now = self._clock()
            return resubmission.batch(ledger, request, owner, contacts, self._policy, now, most)

        found = await self._database.transact(look)
        if found is None:
            return False
        members = contacts.reachable if self._policy.shadow_redundancy_enabled else ()
        elsewhere = await self._performer().run(asked_elsewhere(found, members))
        if elsewhere is None:
            return False
        unsound = await self._unsound([one for one in found.ids if one not in elsewhere])

        def make(ledger: SqlLedger) -> int:
            now = self._clock()
            return resubmission.made(ledger, found, elsewhere, unsound, self._contacts(), self._policy, now)

        count = await self._database.transact(make)
        self._allowance -= count
        if count:
            log.info("messages_resubmitted", request=request, owner=owner, messages=count)
        return found.rest is not None

    async def _unsound(self, originals: Collection[MessageId]) -> frozenset[MessageId]:
        """Those whose content differs from its digest, or cannot be read: verify, then send."""
        unsound = set()
        for message_id in originals:
            copy, content = await self._database.transact_briefly(partial(_stored, message_id=message_id))
            if copy is None or await self._examiner.compare(copy, content) is not Finding.SOUND:
                unsound.add(message_id)
        return frozenset(unsound)

    def _performer(self) -> Performer:
        async def ask(step: Ask):  # type: ignore[no-untyped-def]
            return await self._members.ask(step, PATIENCE)

        async def operate(step: Operate):  # type: ignore[no-untyped-def]
            return await self._members.operate(step, PATIENCE)

        return Performer(transact=self._database.transact, ask=ask, operate=operate)


def _stored(ledger: SqlLedger, message_id: MessageId):  # type: ignore[no-untyped-def]
    return ledger.copy(message_id), stored(ledger, message_id) or Content()
