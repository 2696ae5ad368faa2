"""The stage that carries out resubmit requests, at a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

import structlog

from shadowrelay import measures
from shadowrelay.core.decisions import VerdictKind
from shadowrelay.core.events.reports import resubmitted_id
from shadowrelay.core.identifiers import MessageId, RequestId, ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.members.claims import Sighting, sighting_of_member
from shadowrelay.core.members.conversation import Answered, Query, Question
from shadowrelay.core.members.second_opinion import Others
from shadowrelay.core.ownership import chores
from shadowrelay.core.policy import Policy
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.safety_net import resubmission
from shadowrelay.core.safety_net.resubmission import AT_ONCE, Batch, Contacts
from shadowrelay.core.steps import AllFound, Ask, Compare, Transact, Unanswered
from shadowrelay.core.values import dataclass
from shadowrelay.database.examining import Examiner, Finding
from shadowrelay.database.indexes import SETTLED
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.transport import StandingRead, TransportDatabase
from shadowrelay.members.effective_policy import EffectivePolicy
from shadowrelay.members.indexes import Indexes
from shadowrelay.members.pool import Members, seconds
from shadowrelay.members.record_replication import RecordReplication
from shadowrelay.running import Performer

log = structlog.get_logger(__name__)

INTERVAL = 1.0  # seconds between looks
PATIENCE = 10.0  # seconds that one question may take


class ResubmitStage:
    """Makes the messages that requests call for, once the members have told what they know of these."""

    def __init__(
        self,
        members: Members,
        database: TransportDatabase,
        replication: RecordReplication,
        contacts: Callable[[], Contacts],
        others: Callable[[ServerName], Others],
        examiner: Examiner,
        ready: Callable[[], bool],
        in_force: EffectivePolicy,
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
        requests = StandingRead(self._database, SqlLedger.requests)
        while True:
            records = await requests()
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


MOST_UNSETTLED = 500
"""Resubmitted messages of this node in its queue at a time."""


@dataclass(frozen=True, slots=True)
class Made:
    """How many messages were made, and whether the request has more for this owner now."""

    count: int = 0
    more: bool = False


async def make(
    request: RequestId,
    owner: ServerName,
    most: int,
    contacts: Callable[[], Contacts],
    others: Others,
    policy: Policy,
    endings: Callable[[], Endings],
) -> Made:
    """Make up to ``most`` of the messages that this owner settled. ``others``: the members without it."""

    def look(ledger: Transaction) -> tuple[Batch, Sighting | None] | None:
        if chores.held_back(ledger) or ledger.resubmitting() >= MOST_UNSETTLED:
            return None
        found = resubmission.batch(ledger, request, owner, contacts(), policy, endings(), most)
        return (found, sighting_of_member(ledger, owner) if found.suspected else None) if found else None

    looked = await Transact(look)
    if looked is None:
        return Made()
    found, sighting = looked
    elsewhere = await asked_elsewhere(found, contacts().reachable, sighting, others)
    if elsewhere is None:
        return Made()
    by_time = found.request.selector.network_message_id is None
    if by_time and found.rest is None and not await AllFound():  # an index alone does not say: done
        return Made(more=True)
    unsound = await Compare(tuple(one for one in found.ids if one not in elsewhere))
    count = await Transact(
        lambda ledger: resubmission.made(ledger, found, elsewhere, unsound, contacts(), policy, endings().now)
    )
    return Made(count, found.rest is not None)


async def asked_elsewhere(
    found: Batch, members: Collection[ServerName], sighting: Sighting | None, others: Others
) -> frozenset[MessageId] | None:
    """The originals of which a member has, or had, the new message. None: nothing may be made now, because a
    member does not know yet; or because the owner is merely silent (``sighting``), and a member sees it, or
    no other machine answers.

    The question is at epoch 0: it claims no copy, so nobody records this node as a holder.
    """
    by_id = {resubmitted_id(found.request.id, original): original for original in found.ids}
    about = Query(0, questions=tuple(Question(id_, 0) for id_ in by_id), sighting=sighting)
    elsewhere: set[MessageId] = set()
    answering: set[ServerName] = set()
    for member in sorted(members) if by_id else ():
        answered = await Ask(member, about)
        if isinstance(answered, Unanswered):
            continue
        answering.add(member)
        verdicts = {line.verdict.message_id: line.verdict.kind for line in answered.lines}
        if VerdictKind.PENDING in verdicts.values() or answered.seen is not None:
            return None
        elsewhere |= {
            by_id[id_] for id_, kind in verdicts.items() if id_ in by_id and kind is not VerdictKind.UNKNOWN
        }
    alone = bool(by_id) and sighting is not None and others.none_of(answering)
    return None if alone else frozenset(elsewhere)


@dataclass(slots=True)
class Pace:
    """In the memory of this process."""

    policy: Policy
    refilled: float  # when the allowance was counted last
    _allowance: float = 0.0
    _turn: int = 0

    def in_turn(self, requests: Sequence[RequestId]) -> tuple[RequestId, ...]:
        """Each turn begins with another request, so that a large one does not keep the others waiting."""
        self._turn += 1
        first = self._turn % max(1, len(requests))
        return (*requests[first:], *requests[:first])

    def most(self, now: float) -> int:
        """How many messages may be made now."""
        rate = float(self.policy.resubmit_rate)
        self._allowance = min(rate, self._allowance + (now - self.refilled) * rate)
        self.refilled = now
        return min(AT_ONCE, int(self._allowance))

    def made(self, count: int) -> None:
        """So many messages were made."""
        self._allowance -= count
