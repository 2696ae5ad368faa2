"""The script of the promise: a second copy first, then our own commit, then the answer to the sender."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from shadowrelay.core.conversation import Answered, Query, Revocation
from shadowrelay.core.decisions import Content, Kind
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.policy import Policy
from shadowrelay.core.redundancy import Answer, Arrival, Attempt, Leg, accept, uncertain
from shadowrelay.core.steps import Ask, OfferCopy, Script, Transact


def offer(arrival: Arrival, to: ServerName, rank: int) -> OfferCopy:
    """The offer of a new message: its first ownership."""
    return OfferCopy(
        to=to,
        message_id=arrival.id,
        epoch=1,
        rank=rank,
        envelope=arrival.envelope,
        recipients=arrival.recipients,
        received_at=arrival.received_at,
    )


def make_redundant(
    arrival: Arrival,
    content: Content,
    candidates: Iterable[ServerName],
    policy: Policy,
    clock: Callable[[], datetime],
    deadline: datetime,
) -> Script[Answer]:
    """Decide what the sender is told; when this returns, it is already on disk.

    ``candidates`` is drawn lazily, a member that just failed may drop out of it. An acknowledgement that
    does not count any more (its holder's database is gone) leads on to the next candidate.
    """
    attempts: list[Attempt] = []
    promoted_from = deadline - policy.shadow_time_cap + policy.shadow_resubmit_time_span

    def decide(*, last_resort: bool) -> Transact:
        known, late = tuple(attempts), clock() >= promoted_from
        return Transact(
            lambda books: books.apply(
                accept(books, arrival, content, known, policy, clock(), last_resort=last_resort, late=late)
            )
        )

    for member in candidates:
        if clock() >= deadline:
            break
        attempt: Attempt = yield offer(arrival, member, len(attempts) + 1)
        attempts.append(attempt)
        if attempt.leg is Leg.ACKNOWLEDGED:
            answer: Answer = yield decide(last_resort=False)
            if answer is Answer.ACCEPTED:
                return answer
    answer = yield decide(last_resort=True)
    if answer is Answer.ACCEPTED:
        return answer
    return (yield from take_back(arrival, attempts))


def take_back(arrival: Arrival, attempts: Iterable[Attempt]) -> Script[Answer]:
    """Before a 4yz nobody may hold a copy (RFC 5321 4.2.5): revoke every one that may be there.

    Whatever is not confirmed leaves only one honest way: to close without a reply.
    """
    for attempt in uncertain(tuple(attempts)):
        revocation = Revocation(arrival.id, 1, attempt.rank)
        answered = yield Ask(attempt.name, Query(0, revoke=revocation))
        confirmed = isinstance(answered, Answered) and any(
            line.verdict.kind is Kind.REJECTED and line.verdict.message_id == arrival.id
            for line in answered.lines
        )
        if not confirmed:
            return Answer.HANG_UP
    return Answer.NOT_REDUNDANT
