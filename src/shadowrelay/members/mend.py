"""The stage that replaces damaged copies: it asks every member for a good copy.

First it reads its own copy again: the disk may have been repaired. It sets a message aside only when all
members have answered and none has a good copy; a member that is away is asked when it is back. The other end
is here too: ``Giver`` gives a good copy to an owner whose copy is damaged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from enum import Enum
from functools import partial

import structlog

from shadowrelay.core.decisions import DamagedRow, VerdictKind
from shadowrelay.core.identifiers import FIRST, MessageId, ServerName, is_uuid
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.members import damage
from shadowrelay.core.members.conversation import Query, told
from shadowrelay.core.members.questions import Speaker
from shadowrelay.core.messages import Status
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.redundancy import Leg
from shadowrelay.core.steps import Ask, OfferCopy, Transact, Unanswered
from shadowrelay.database.examining import Examiner
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue import damaged_messages
from shadowrelay.database.transport import StandingRead, TransportDatabase
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.inquiry import Inquiry
from shadowrelay.members.pool import Members
from shadowrelay.members.repair import offered_whole
from shadowrelay.running import Performer

log = structlog.get_logger(__name__)

INTERVAL = 1.0  # seconds between looks
PATIENCE = 10.0  # seconds in which a promised copy has to come; then another member is asked
PAGE = 500  # damaged messages that one look finds
GIVEN_AT_ONCE = 8

SettledInLog = Callable[[MessageId], Awaitable[Mapping[int, Status]]]
"""Reads from this node's tracking log which recipients of a message are settled, and how, by number."""


class Sought(Enum):
    """The result of asking a member for a good copy. OPEN: ask it again. NOTHING: no copy is needed."""

    COMING = "coming"
    NONE_THERE = "none there"
    OPEN = "open"
    NOTHING = "nothing to seek"


async def seek(
    message_id: MessageId, member: ServerName, inquiry: Inquiry, policy: Policy, clock: Callable[[], datetime]
) -> Sought:
    """Ask a member for a good copy of a damaged message. The rest of its answer is applied as usual."""

    def ask(ledger: Transaction) -> Query | None:
        asked = damage.wanted(ledger, message_id)
        return Query(0, at=ledger.lineage.mark, wanted=asked) if asked else None

    query = await Transact(ask)
    if query is None:
        return Sought.NOTHING
    answered = await Ask(member, query)
    if isinstance(answered, Unanswered):
        return Sought.OPEN
    lines, mark = answered.lines, answered.mark

    def learn(ledger: Transaction) -> Sought:
        known = ledger.member(member)
        if known is None or known.lineage is None or known.lineage.incarnation != mark.incarnation:
            return Sought.OPEN
        speaker = Speaker(member, known.lineage.database_id, mark)
        told(ledger, speaker, query, lines, inquiry, policy, clock())
        kinds = {line.verdict.kind for line in lines if line.verdict.message_id == message_id}
        if VerdictKind.YOURS in kinds:
            return Sought.COMING
        return Sought.NONE_THERE if kinds & damage.FINAL else Sought.OPEN

    return await Transact(learn)


async def give(message_id: MessageId, to: ServerName, clock: Callable[[], datetime]) -> bool:
    """Give an owner the good copy that we hold for it, because its own is damaged. True if it took it."""
    copy = await Transact(lambda ledger: ledger.copy(message_id))
    if copy is None or not copy.held or copy.damage or copy.owner != to:
        return False
    attempt = await OfferCopy.of(copy, to, epoch=copy.epoch, rank=copy.rank, given_for=to)
    if attempt.leg is not Leg.ACKNOWLEDGED:
        return False
    await Transact(lambda ledger: ledger.apply(damage.given(ledger, message_id, to, clock())))
    return True


class Mend:
    """Replaces the damaged copies of this node, for as long as it runs."""

    def __init__(
        self,
        members: Members,
        database: TransportDatabase,
        boundary: Boundary,
        examiner: Examiner,
        inquiry: Inquiry,
        settled: SettledInLog,
        policy: Policy,
        clock: Callable[[], datetime],
    ) -> None:
        self._members = members
        self._database = database
        self._boundary = boundary
        self._examiner = examiner
        self._inquiry = inquiry
        self._policy = policy
        self._clock = clock
        self._settled = settled
        self._first = StandingRead(database, partial(damaged_messages, after=FIRST, most=PAGE))
        self._answered: dict[MessageId, set[ServerName]] = {}  # members that have no good copy
        self._promised: dict[MessageId, float] = {}  # until when to wait for a promised copy

    def waits_for(self, message_id: MessageId) -> frozenset[ServerName]:
        """Members that have not answered yet whether they have a good copy of a damaged message."""
        return self._everybody(message_id) - self._answered.get(message_id, set())

    def _everybody(self, message_id: MessageId) -> frozenset[ServerName]:
        """The members to ask. For a malformed id, which a flipped bit made, nobody is asked."""
        return frozenset(self._boundary.watches) if is_uuid(message_id) else frozenset()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            found: set[MessageId] = set()
            after = FIRST
            while page := await self._damaged(after):
                for message_id in page:
                    await self._mend(message_id)
                found.update(page)
                after = page[-1]
            # What is good again may be damaged once more. By then, who had no copy of it may have one.
            for message_id in (self._answered.keys() | self._promised.keys()) - found:
                self._forget(message_id)
            await asyncio.sleep(INTERVAL)

    async def _damaged(self, after: MessageId) -> list[MessageId]:
        """A page of the damaged messages behind that one. Rows that cannot be believed are recorded first."""
        await self._quarantine()
        if after == FIRST:
            return await self._first()
        return await self._database.transact(partial(damaged_messages, after=after, most=PAGE))

    async def _quarantine(self) -> None:
        """Record rows that were read and cannot be believed: from now on, no decision finds them."""
        for message_id, what in tuple(self._database.ledger.suspects.items()):
            settled = tuple(sorted((await self._settled(message_id)).items()))
            rows = DamagedRow(message_id, self._clock(), what, settled)
            await self._database.transact(partial(_found, rows))
            log.error("rows_damaged", message=message_id, what=what)

    async def _mend(self, message_id: MessageId) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._promised.get(message_id, 0.0):
            return
        if message_id not in self._answered and not await self._begun(message_id):
            return
        everybody = self._everybody(message_id)
        answered = self._answered.setdefault(message_id, set())
        for name in sorted((everybody - answered) & self._boundary.reachable()):
            match await self._seek(message_id, name):
                case Sought.COMING:
                    self._promised[message_id] = loop.time() + PATIENCE
                    return
                case Sought.NOTHING:
                    self._forget(message_id)
                    return
                case Sought.NONE_THERE:
                    answered.add(name)
                case Sought.OPEN:
                    pass
        if everybody <= answered:
            await self._give_up(message_id)

    async def _begun(self, message_id: MessageId) -> bool:
        """Is a good copy wanted? Not if our own copy turns out to be good again."""
        if not await self._database.transact(lambda ledger: damage.wanted(ledger, message_id)):
            return False
        return not await self._examiner.look_again(message_id)

    async def _seek(self, message_id: MessageId, name: ServerName) -> Sought:
        performer = Performer(transact=self._database.transact, ask=self._members.ask)
        return await performer.run(seek(message_id, name, self._inquiry, self._policy, self._clock))

    async def _give_up(self, message_id: MessageId) -> None:
        now = self._clock()
        if await self._database.transact(
            lambda ledger: ledger.apply(damage.given_up(ledger, message_id, now))
        ):
            log.critical("no_good_copy", message=message_id, consequence="set aside for the operator")
        self._forget(message_id)

    def _forget(self, message_id: MessageId) -> None:
        self._answered.pop(message_id, None)
        self._promised.pop(message_id, None)


def _found(rows: DamagedRow, ledger: SqlLedger) -> None:
    ledger.apply(damage.found_rows(rows))


class Giver:
    """Gives good copies to owners whose own copies are damaged, a few at a time, each in the background."""

    def __init__(
        self,
        members: Members,
        database: TransportDatabase,
        examiner: Examiner,
        clock: Callable[[], datetime],
    ) -> None:
        self._members = members
        self._database = database
        self._examiner = examiner
        self._clock = clock
        self._slots = asyncio.Semaphore(GIVEN_AT_ONCE)
        self._tasks: dict[tuple[MessageId, ServerName], asyncio.Task[None]] = {}

    def give(self, message_id: MessageId, to: ServerName) -> None:
        """Begin to give a copy, unless this has begun already."""
        wanted = (message_id, to)
        if wanted not in self._tasks:
            task = self._tasks[wanted] = asyncio.create_task(self._give(message_id, to))
            task.add_done_callback(lambda _: self._tasks.pop(wanted))

    async def close(self) -> None:
        """Stop giving copies, because the node stops."""
        for task in (tasks := tuple(self._tasks.values())):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _give(self, message_id: MessageId, to: ServerName) -> None:
        async with self._slots:
            taken = await offered_whole(
                self._members,
                self._database,
                self._examiner,
                message_id,
                lambda _: give(message_id, to, self._clock),
            )
            log.info("good_copy_given", message=message_id, to=to, taken=bool(taken))
