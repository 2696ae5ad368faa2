"""Gives a message up for an operator: it fails, and its sender gets a report."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from shadowrelay.core.decisions import Content
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Hop, settle
from shadowrelay.core.identifiers import MessageId, RequestId
from shadowrelay.core.messages import Copy, Stage
from shadowrelay.core.operating import By
from shadowrelay.core.steps import WriteReports
from shadowrelay.database.content import stored
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.delivery.reports import Reporter

REPLY = "554 5.3.0 Given up by the postmaster after a failure of the mail system"


async def give_up(
    database: TransportDatabase,
    reporter: Reporter,
    message_id: MessageId,
    clock: Callable[[], datetime],
    operator: str,
) -> Copy | None:
    """Fail every unsettled recipient of a message that is set aside. None if it is not set aside.

    The message may be damaged: then the report quotes nothing of it.
    """
    copy, content = await database.transact(
        lambda ledger: (ledger.copy(message_id), stored(ledger, message_id))
    )
    if copy is None or copy.stage is not Stage.SET_ASIDE:
        return None
    by = By(operator, "", RequestId(MessageId("")))
    hop = Hop(server="", inside=False, mailbox=False)
    results = tuple(AttemptResult(r.number, Ending.REJECTED, REPLY, remote=False) for r in copy.unsettled)
    reports = await reporter.write(WriteReports(copy, results, hop, dsn_offered=True), content or Content())
    return await database.transact(
        lambda ledger: ledger.apply(settle(ledger, message_id, results, reports, hop, clock(), by=by))
    )
