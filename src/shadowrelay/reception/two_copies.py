"""The script of the promise: a second copy, our own beside it, then the answer to the sender."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from shadowrelay.core.decisions import Content, VerdictKind
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.members.conversation import Answered, Query, Revocation
from shadowrelay.core.messages import Copy
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.redundancy import (
    Answer,
    Arrival,
    Leg,
    OfferAttempt,
    accept,
    arrive,
    counts,
    uncertain,
)
from shadowrelay.core.reception.shadow_servers import Turn
from shadowrelay.core.steps import Ask, Beside, OfferCopy, Pause, Transact
from shadowrelay.core.values import dataclass


def offer(arrival: Arrival, to: ServerName, rank: int) -> OfferCopy:
    """The offer of a new message: its first ownership."""
    return OfferCopy.of(arrival, to, epoch=1, rank=rank)


@dataclass(frozen=True, slots=True)
class Decided:
    """What the sender is told, and what is to be recorded then (nothing, if it is recorded already)."""

    answer: Answer
    record: Transact[Answer] | None = None


async def make_redundant(
    arrival: Arrival,
    content: Content,
    whom: Callable[[Sequence[OfferAttempt]], Turn | None],
    policy: Policy,
    clock: Callable[[], datetime],
    deadline: datetime,
) -> Decided:
    """Decide what the sender is told; when this returns, what it means is already on disk.

    The first candidate makes its copy durable while we make ours; then the sender may have its 250, and the
    message is recorded behind it. In every other case it is recorded, or forgotten, before anything is said.

    ``whom`` to ask next depends on what became of the attempts so far; the same member may be asked several
    times, each time by a rank of its own. An acknowledgement that does not count any more (its holder's
    database is gone) leads on like a failure.
    """
    attempts: list[OfferAttempt] = []
    arrived: Copy | None = None
    promoted_from = deadline - policy.shadow_time_cap + policy.shadow_resubmit_time_span

    def decide(*, last_resort: bool, answered: bool = False) -> Transact[Answer]:
        known, kept, late = tuple(attempts), arrived, clock() >= promoted_from
        return Transact(
            lambda ledger: ledger.apply(
                accept(
                    ledger,
                    arrival,
                    content,
                    known,
                    policy,
                    clock(),
                    last_resort=last_resort,
                    late=late,
                    arrived=kept,
                    answered=answered,
                )
            )
        )

    while (turn := whom(attempts)) and clock() + turn.pause < deadline:
        if turn.pause:
            await Pause(turn.pause)
        member = turn.to
        step = offer(arrival, member, len(attempts) + 1)
        if attempts:
            attempts.append(await step)
        else:
            both = await Beside(_arriving(arrival, content, member, clock), step)
            arrived = both.kept
            attempts.append(both.attempt)
            if arrived and counts(both.member, both.attempt):
                return Decided(Answer.ACCEPTED, decide(last_resort=True, answered=True))
        if attempts[-1].leg is Leg.ACKNOWLEDGED:
            answer = await decide(last_resort=False)
            if answer is Answer.ACCEPTED:
                return Decided(answer)
    answer = await decide(last_resort=True)
    if answer is Answer.ACCEPTED:
        return Decided(answer)
    return Decided(await take_back(arrival, attempts))


def _arriving(
    arrival: Arrival, content: Content, member: ServerName, clock: Callable[[], datetime]
) -> Callable[[Transaction], Copy | None]:
    return lambda ledger: ledger.apply(arrive(ledger, arrival, content, member, clock()))


async def take_back(arrival: Arrival, attempts: Iterable[OfferAttempt]) -> Answer:
    """Before a 4yz nobody may hold a copy (RFC 5321 4.2.5): revoke every one that may be there.

    Whatever is not confirmed leaves only one honest way: to close without a reply.
    """
    for attempt in uncertain(tuple(attempts)):
        revocation = Revocation(arrival.id, 1, attempt.rank)
        answered = await Ask(attempt.name, Query(0, revoke=revocation))
        confirmed = isinstance(answered, Answered) and any(
            line.verdict.kind is VerdictKind.REJECTED and line.verdict.message_id == arrival.id
            for line in answered.lines
        )
        if not confirmed:
            return Answer.HANG_UP
    return Answer.NOT_REDUNDANT
