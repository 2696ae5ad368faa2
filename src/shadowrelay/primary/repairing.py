"""The script that ends exposure: a message with one copy gets a second one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from shadowrelay.core.decisions import Transaction
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.messages import Copy
from shadowrelay.core.redundancy import Attempt, repaired, reserve_rank
from shadowrelay.core.shadow_servers import Turn
from shadowrelay.core.steps import OfferCopy, Script, Transact
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
        if copy is None or not copy.exposed:
            return Repaired(copy is not None, tuple(attempts))
        attempt: Attempt = yield OfferCopy(
            to=member,
            message_id=copy.id,
            epoch=copy.epoch,
            rank=copy.ranks_given,
            envelope=copy.envelope,
            recipients=copy.unsettled,
            received_at=copy.received_at,
        )
        attempts.append(attempt)

        def record(books: Transaction, attempt: Attempt = attempt) -> bool:
            return books.apply(repaired(books, message_id, attempt, clock()))

        if (yield Transact(record)):
            return Repaired(safe=True)
    return Repaired(safe=False, attempts=tuple(attempts))
