"""The script of the promise: make two copies durable, then answer the sender."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from shadowrelay.core.decisions import Content, Decision, VerdictKind
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.members.conversation import Answered, Query, Revocation
from shadowrelay.core.messages import Copy
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.delays_and_repeats import Admitted, LateQuestion, admit
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
    """The offer of a new message, whose epoch is 1."""
    return OfferCopy.of(arrival, to, epoch=1, rank=rank)


@dataclass(frozen=True, slots=True)
class Decided:
    """The answer to the sender, and what to record after it (None: the message is recorded already).

    ``admitted``: how a message was admitted of which no member has a copy.
    """

    answer: Answer
    record: Transact[Answer] | None = None
    admitted: Admitted | None = None


def _at_once() -> None:
    """No question about a delayed acknowledgement: the 250 does not wait."""


async def make_redundant(
    arrival: Arrival,
    content: Content,
    whom: Callable[[Sequence[OfferAttempt]], Turn | None],
    policy: Policy,
    clock: Callable[[], datetime],
    deadline: datetime,
    late: Callable[[], LateQuestion | None] = _at_once,
) -> Decided:
    """Decide what the sender is told. When this returns, what the answer promises is already on disk.

    The first candidate makes its copy durable while this node makes its own. Then the sender may get its 250,
    and the message is recorded after it, unless its row says what filters did. In every other case the
    message is recorded, or forgotten, before the answer. ``whom`` chooses the next member from the attempts
    so far. The same member may be asked several times, each time with a new rank. An acknowledgement that no
    longer counts (its holder's database is gone) is treated like a failure. ``late``: what decides, if no
    member has a copy, whether the 250 waits for the next hops, and whether the message is a repeat.
    """
    attempts: list[OfferAttempt] = []
    arrived: Copy | None = None
    promoted_from = deadline - policy.shadow_time_cap + policy.shadow_resubmit_time_span
    untold = arrival.unfiltered or arrival.quarantined  # in a row that a restart would write

    def accepting(
        *, last_resort: bool, answered: bool = False
    ) -> Callable[[Transaction, Arrival], Decision[Answer]]:
        known, kept, too_late = tuple(attempts), arrived, clock() >= promoted_from
        return lambda ledger, arriving: accept(
            ledger,
            arriving,
            content,
            known,
            policy,
            clock(),
            last_resort=last_resort,
            late=too_late,
            arrived=kept,
            answered=answered,
        )

    def decide(*, last_resort: bool, answered: bool = False) -> Transact[Answer]:
        accepted = accepting(last_resort=last_resort, answered=answered)
        return Transact(lambda ledger: ledger.apply(accepted(ledger, arrival)))

    def decide_late(asked: LateQuestion) -> Transact[Admitted]:
        accepted, given, kept = accepting(last_resort=True), bool(uncertain(attempts)), arrived
        return Transact(
            lambda ledger: ledger.apply(
                admit(
                    ledger,
                    arrival,
                    lambda arriving: accepted(ledger, arriving),
                    asked,
                    policy,
                    clock(),
                    arrived=kept,
                    given=given,
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
            if arrived and counts(both.member, both.attempt) and not untold:
                return Decided(Answer.ACCEPTED, decide(last_resort=True, answered=True))
        if attempts[-1].leg is Leg.ACKNOWLEDGED:
            answer = await decide(last_resort=False)
            if answer is not Answer.NOT_REDUNDANT:
                return Decided(answer)
    if (asked := late()) is None:
        answer = await decide(last_resort=True)
        if answer is not Answer.NOT_REDUNDANT:
            return Decided(answer)
    else:
        admitted = await decide_late(asked)
        if admitted.answer is not Answer.NOT_REDUNDANT:
            return Decided(admitted.answer, admitted=admitted)
    return Decided(await take_back(arrival, attempts))


def _arriving(
    arrival: Arrival, content: Content, member: ServerName, clock: Callable[[], datetime]
) -> Callable[[Transaction], Copy | None]:
    return lambda ledger: ledger.apply(arrive(ledger, arrival, content, member, clock()))


async def take_back(arrival: Arrival, attempts: Iterable[OfferAttempt]) -> Answer:
    """Revoke every copy that may exist: before a 4yz no member may hold one (RFC 5321 4.2.5).

    If a revocation is not confirmed, the only honest answer is to close the connection without a reply.
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
