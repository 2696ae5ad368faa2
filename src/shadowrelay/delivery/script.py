"""The script of one delivery attempt: send a fork, then write down what became of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from shadowrelay.core.delivery.settling import settle
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.members.damage import found
from shadowrelay.core.messages import Copy, Recipient
from shadowrelay.core.steps import SendOn, Sent, Transact, WriteReports


async def deliver(
    copy: Copy, next_hop: NextHop, recipients: tuple[Recipient, ...], clock: Callable[[], datetime]
) -> Copy | None:
    """Send one fork and record the outcome. The result is the copy afterwards, None if it is gone.

    Whatever happens to the message during the attempt, the attempt may finish: its outcome settles recipients
    in any role.
    """
    sent = await SendOn(next_hop, copy, recipients)
    if sent.damaged:
        await Transact(lambda ledger: ledger.apply(found(ledger, copy.id, clock(), sent.damaged)))
    return await write_down(copy, sent, clock)


async def write_down(copy: Copy, sent: Sent, clock: Callable[[], datetime]) -> Copy | None:
    """Settle the recipients that have results, and announce that.

    An LMTP server answers for one recipient after the other, and may take minutes: each answer is recorded
    when it comes.
    """
    reports = await WriteReports(copy, sent.results, sent.hop, sent.dsn_offered)
    return await Transact(
        lambda ledger: ledger.apply(
            settle(ledger, copy.id, sent.results, (*reports, *sent.expansions), sent.hop, clock(), sent=copy)
        )
    )
