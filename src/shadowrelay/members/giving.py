"""Gives a message to one member, whether or not it holds a copy: a copy first, then the ownership."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeAlias

from shadowrelay.core.identifiers import MessageId, RequestId, ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.messages import Copy
from shadowrelay.core.operating import Act, ActAnswer, Scope, Told
from shadowrelay.core.ownership.handover import Hindrance, hand_over, hindrance
from shadowrelay.core.reception.by_reference import keepers
from shadowrelay.core.reception.redundancy import Concern, Leg, OfferAttempt, repaired, reserve_rank
from shadowrelay.core.steps import OfferCopy, Operate, Transact, Unanswered
from shadowrelay.core.values import dataclass
from shadowrelay.database.examining import Examiner
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.members.pool import Members
from shadowrelay.members.repair import offered_whole

Busy: TypeAlias = Callable[[Any, MessageId], bool]
"""Asked with the ledger: is a delivery attempt of that message under way?"""

BEING_SENT = "being_sent"
REFUSED = "refused"
UNREADABLE = "unreadable"


TAKES = "takes"
"""The action of XOPERATE that asks a member whether it takes mail."""


async def unwilling(
    operate: Callable[[Operate, float], Awaitable[ActAnswer | Unanswered]],
    to: ServerName,
    job: RequestId,
    patience: float,
) -> str:
    """Why that member takes no mail now; '' if it does, or if it cannot say (an older version).

    ``patience``: seconds for its answer.
    """
    act = Act(job=job, action=TAKES, scope=Scope.READ, operator="handover", reason="", arguments={})
    answer = await operate(Operate(to, act), patience)
    if isinstance(answer, Unanswered):
        return f"{to} cannot be reached: {answer.step}: {answer.error}"
    if answer.refused or answer.told.get("ready", True):
        return ""
    return f"{to} takes no mail now: {answer.told.get('why', '')}"


def takes(ready: tuple[bool, str]) -> Told:
    """The answer to the action TAKES."""
    return {"ready": ready[0], "why": ready[1]}


@dataclass(frozen=True, slots=True)
class HandoverResult:
    """What became of one message. ``handed``: the member owns it. ``copied``: a copy was made there first.

    ``stays``: why it stays here (a ``Hindrance``, BEING_SENT, REFUSED or UNREADABLE); '' if it was handed
    over, or if it is not ours any more. ``reply``: that of the member to the copy. ``member``: the member
    itself failed, so there is no use in offering it another copy now.
    """

    handed: bool = False
    copied: bool = False
    stays: str = ""
    reply: str = ""
    member: bool = False


GONE = HandoverResult()


def hand_to(
    ledger: Transaction,
    message_id: MessageId,
    to: ServerName,
    busy: Busy,
    now: datetime,
) -> HandoverResult | Copy:
    """Hand a message over, if the member has a copy that counts. Else the copy here, to be offered first.

    A message that is ``busy`` stays: the outcome of its attempt would come too late.
    """
    copy = ledger.copy(message_id)
    if copy is None or not copy.owned:
        return GONE
    if busy(ledger, message_id):
        return HandoverResult(stays=BEING_SENT)
    if ledger.apply(hand_over(ledger, copy, (to,), now, beside=True)):
        return HandoverResult(handed=True)
    if why := hindrance(copy):
        return HandoverResult(stays=why.value)
    return copy


async def give_to(
    message_id: MessageId,
    to: ServerName,
    busy: Busy,
    clock: Callable[[], datetime],
) -> HandoverResult:
    """Give one message to that member. A copy, if it needs one, is durable there before the ownership moves.

    The rank of the copy is recorded before the offer: if the answer is lost, a possible holder is on record,
    and is told the outcome like any other. Another member that holds a copy follows to the new owner.
    """

    def reserve(ledger: Transaction) -> tuple[HandoverResult | Copy, bool]:
        found = hand_to(ledger, message_id, to, busy, clock())
        if isinstance(found, HandoverResult):
            return found, False
        copy = ledger.apply(reserve_rank(ledger, message_id, to, another=True))
        return copy or GONE, copy is not None and to in keepers(ledger, copy)

    found, refers = await Transact(reserve)
    if isinstance(found, HandoverResult):
        return found
    attempt = await OfferCopy.of(found, to, epoch=found.epoch, rank=found.ranks_given, refers=refers)

    def record(ledger: Transaction) -> HandoverResult:
        ledger.apply(repaired(ledger, message_id, attempt, clock()))
        ended = hand_to(ledger, message_id, to, busy, clock())
        copied = attempt.leg is Leg.ACKNOWLEDGED
        if isinstance(ended, Copy) or (ended.stays and not copied):
            return _refused(attempt)
        return HandoverResult(ended.handed, copied=copied, stays=ended.stays)

    return await Transact(record)


def _refused(attempt: OfferAttempt) -> HandoverResult:
    of_the_member = attempt.leg is not Leg.ACKNOWLEDGED and attempt.concern is Concern.MEMBER
    return HandoverResult(stays=REFUSED, reply=attempt.reply, member=of_the_member)


WAITED_FOR = frozenset({BEING_SENT, Hindrance.ASKED.value, Hindrance.JOURNAL.value})
"""Why a message stays for a moment only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Giving:
    """How this node gives messages to members. ``unwilling``: why a member takes no mail, '' if it does; the
    second argument is how many seconds its answer may take. ``enabled``: do the members talk? ``changed`` is
    called when there is something to say to them.
    """

    members: Members
    database: TransportDatabase
    examiner: Examiner
    unwilling: Callable[[ServerName, float], Awaitable[str]]
    enabled: Callable[[], bool]
    changed: Callable[[], None]
    clock: Callable[[], datetime]

    async def give(self, message_id: MessageId, to: ServerName, busy: Busy) -> HandoverResult | None:
        """See ``give_to``. None: there is nothing to offer, or the content is damaged or unreadable."""
        return await offered_whole(
            self.members,
            self.database,
            self.examiner,
            message_id,
            lambda _: give_to(message_id, to, busy, self.clock),
        )
