"""The scripts of repair: a message with one copy gets another, a damaged copy gives way to a good one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum

from shadowrelay.core import damage
from shadowrelay.core.conversation import Answered, Query, told
from shadowrelay.core.decisions import Kind
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.inquiry import Inquiry
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.messages import Copy
from shadowrelay.core.policy import Policy
from shadowrelay.core.questions import Speaker
from shadowrelay.core.redundancy import Attempt, Leg, repaired, reserve_rank
from shadowrelay.core.shadow_servers import Turn
from shadowrelay.core.steps import Ask, OfferCopy, Script, Transact, Unanswered
from shadowrelay.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Repaired:
    """Has the message a holder now, or no need of one? And what was tried for that."""

    safe: bool
    attempts: tuple[Attempt, ...] = ()


def copy_again(
    message_id: MessageId,
    whom: Callable[[Sequence[Attempt]], Turn | None],
    clock: Callable[[], datetime],
    refused: Sequence[Attempt] = (),
) -> Script[Repaired]:
    """Give an exposed message a holder.

    ``whom`` to ask next depends on the attempts so far, and on earlier ones that were ``refused``. Each
    offer's rank is recorded before it is made: an answer that is lost leaves a possible holder on record,
    which is told of the outcome like any other.
    """
    attempts: list[Attempt] = []
    while turn := whom([*refused, *attempts]):
        member = turn.to

        def reserve(books: Transaction, member: ServerName = member) -> Copy | None:
            return books.apply(reserve_rank(books, message_id, member))

        copy: Copy | None = yield Transact(reserve)
        if copy is None or not copy.exposed or copy.damaged:
            return Repaired(copy is not None and not copy.exposed, tuple(attempts))
        attempt: Attempt = yield OfferCopy(
            to=member,
            message_id=copy.id,
            epoch=copy.epoch,
            rank=copy.ranks_given,
            envelope=copy.envelope,
            recipients=copy.recipients,
            digests=copy.digests,
            received_at=copy.received_at,
        )
        attempts.append(attempt)

        def record(books: Transaction, attempt: Attempt = attempt) -> bool:
            return books.apply(repaired(books, message_id, attempt, clock()))

        if (yield Transact(record)):
            return Repaired(safe=True)
    return Repaired(safe=False, attempts=tuple(attempts))


class Sought(Enum):
    """What came of asking a member for a good copy. OPEN: ask it again. NOTHING: there is no need."""

    COMING = "coming"
    NONE_THERE = "none there"
    OPEN = "open"
    NOTHING = "nothing to seek"


def seek(
    message_id: MessageId, member: ServerName, inquiry: Inquiry, policy: Policy, clock: Callable[[], datetime]
) -> Script[Sought]:
    """Ask a member for a good copy of a message whose copy here is damaged; what else it says is taken as
    ever.
    """

    def ask(books: Transaction) -> Query | None:
        asked = damage.wanted(books, message_id)
        return Query(0, at=books.lineage.mark, wanted=asked) if asked else None

    query: Query | None = yield Transact(ask)
    if query is None:
        return Sought.NOTHING
    answered: Answered | Unanswered = yield Ask(member, query)
    if isinstance(answered, Unanswered):
        return Sought.OPEN
    lines, mark = answered.lines, answered.mark

    def learn(books: Transaction) -> Sought:
        known = books.member(member)
        if known is None or known.lineage is None or known.lineage.incarnation != mark.incarnation:
            return Sought.OPEN
        speaker = Speaker(member, known.lineage.database_id, mark)
        told(books, speaker, query, lines, inquiry, policy, clock())
        kinds = {line.verdict.kind for line in lines if line.verdict.message_id == message_id}
        if Kind.YOURS in kinds:
            return Sought.COMING
        return Sought.NONE_THERE if kinds & damage.FINAL else Sought.OPEN

    found: Sought = yield Transact(learn)
    return found


def give(message_id: MessageId, to: ServerName, clock: Callable[[], datetime]) -> Script[bool]:
    """Give the good copy that we hold for that member to it: its own is damaged. True when it is taken."""
    copy: Copy | None = yield Transact(lambda books: books.copy(message_id))
    if copy is None or not copy.held or copy.damage or copy.owner != to:
        return False
    attempt: Attempt = yield OfferCopy(
        to=to,
        message_id=copy.id,
        epoch=copy.epoch,
        rank=copy.rank,
        envelope=copy.envelope,
        recipients=copy.recipients,
        digests=copy.digests,
        received_at=copy.received_at,
        given_for=to,
    )
    if attempt.leg is not Leg.ACKNOWLEDGED:
        return False
    yield Transact(lambda books: books.apply(damage.given(books, message_id, to, clock())))
    return True
