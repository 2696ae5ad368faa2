"""DSNs, journal copies and messages to the members of lists, and the recipients that wait for them: a
settlement is announced only when what it led to is safe.

Until a DSN has two copies, or is settled, no member is told that its recipient is settled. If this node is
lost before that, a holder still has the original and makes the same DSN again (its id is derived). The same
holds for a journal copy and all recipients, and for the message to the members of a list and that list.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from shadowrelay.core.decisions import Decision, SaveCopy
from shadowrelay.core.events.discard_notices import announced
from shadowrelay.core.events.reports import ReportKind, report_id
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.machines import holding
from shadowrelay.core.messages import Copy, HolderState, Recipient, Status
from shadowrelay.core.recipients import LISTS
from shadowrelay.core.values import replace


def already_safe(ledger: Ledger, report: MessageId) -> bool:
    """Is that DSN safe here already: settled, with a second copy, or held by this node for another owner?

    The holder, or that owner, must be on another machine. Another node may have made the DSN from its own
    copy of the original; then no later event on this node would end the wait.
    """
    copy = ledger.copy(report)
    if copy is None:
        return ledger.outcome(report) is not None
    if copy.held:
        return holding(ledger, copy.owner) is HolderState.HOLDING
    return copy.redundant or not copy.unfinished


def waited_in_vain(ledger: Ledger, original: Copy, now: datetime) -> Decision[Copy]:
    """End the wait of recipients for what is safe already: no further event will end it. A page out of date
    may say again that they wait. The result is the message afterwards.
    """
    awaited = {id_ for one in original.recipients for id_ in (one.report, one.journal) if id_}
    return _announced(ledger, original, {id_ for id_ in awaited if already_safe(ledger, id_)}, now)


def report_is_safe(ledger: Ledger, report: Copy, now: datetime) -> Decision[None]:
    """A DSN or a journal copy is safe: announce the settlement of the recipients that waited for it."""
    original = report.reports_on and ledger.copy(report.reports_on)
    return _announced(ledger, original, {report.id}, now).but(None) if original else Decision(None)


def _announced(ledger: Ledger, original: Copy, safe: Collection[MessageId], now: datetime) -> Decision[Copy]:
    waiting = [
        replace(
            one,
            report=_next(ledger, original, one) if one.report in safe else one.report,
            journal=None if one.journal in safe else one.journal,
        )
        for one in original.recipients
        if one.report in safe or one.journal in safe
    ]
    if not waiting:
        return Decision(original)
    after = original.with_recipients(waiting)
    return Decision(after, (SaveCopy(original, after), *announced(ledger, after, waiting, now)))


def _next(ledger: Ledger, original: Copy, one: Recipient) -> MessageId | None:
    """What the recipient waits for now: a list, whose members' message is safe, for the report on it."""
    if one.next_hop != LISTS or one.status in (Status.FAILED, Status.REMOVED):
        return None
    for kind in (ReportKind.EXPANDED, ReportKind.DELIVERED):
        report = report_id(original.id, one.number, kind)
        if one.report != report and ledger.copy(report) and not already_safe(ledger, report):
            return report
    return None
