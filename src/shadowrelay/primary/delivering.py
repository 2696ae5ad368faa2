"""The script of one attempt: the next hop answers first, then the outcome is settled and announced."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from shadowrelay.core.damage import found
from shadowrelay.core.delivery import Report, settle
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Copy, Recipient
from shadowrelay.core.steps import Script, SendOn, Sent, Transact, WriteReports


def deliver(
    copy: Copy, next_hop: NextHop, recipients: tuple[Recipient, ...], clock: Callable[[], datetime]
) -> Script[Copy | None]:
    """Send one fork and write down what became of it. The result is the copy after, None if it is gone.

    Whatever happens to the message during the attempt, the attempt is allowed to finish: its outcome
    settles recipients in any role.
    """
    sent: Sent = yield SendOn(next_hop, copy, recipients)
    if sent.damaged:
        yield Transact(lambda books: books.apply(found(books, copy.id, clock(), sent.damaged)))
    return (yield from write_down(copy, sent, clock))


def write_down(copy: Copy, sent: Sent, clock: Callable[[], datetime]) -> Script[Copy | None]:
    """Settle what an attempt did for these recipients, and announce it. An LMTP server answers for one after
    the other, and may take minutes: each answer is written down when it comes.
    """
    reports: tuple[Report, ...] = yield WriteReports(copy, sent.results, sent.hop, sent.dsn_offered)
    after: Copy | None = yield Transact(
        lambda books: books.apply(settle(books, copy.id, sent.results, reports, sent.hop, clock(), sent=copy))
    )
    return after
