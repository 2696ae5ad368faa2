"""The script that ends exposure: a message with one copy gets a second one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from shadowrelay.core.decisions import Transaction
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.messages import Copy
from shadowrelay.core.redundancy import Attempt, repaired, reserve_rank
from shadowrelay.core.steps import OfferCopy, Script, Transact


def copy_again(
    message_id: MessageId, candidates: Iterable[ServerName], clock: Callable[[], datetime]
) -> Script[bool]:
    """Give an exposed message a holder; True when it has one.

    Each offer's rank is recorded before it is made: an answer that is lost leaves a possible holder on
    record, which is told of the outcome like any other.
    """
    for member in candidates:

        def reserve(books: Transaction, member: ServerName = member) -> Copy | None:
            return books.apply(reserve_rank(books, message_id, member))

        copy: Copy | None = yield Transact(reserve)
        if copy is None or not copy.exposed:
            return copy is not None
        attempt: Attempt = yield OfferCopy(
            to=member,
            message_id=copy.id,
            epoch=copy.epoch,
            rank=copy.ranks_given,
            envelope=copy.envelope,
            recipients=copy.unsettled,
            received_at=copy.received_at,
        )

        def record(books: Transaction, attempt: Attempt = attempt) -> bool:
            return books.apply(repaired(books, message_id, attempt, clock()))

        if (yield Transact(record)):
            return True
    return False
