"""DSNs and the recipients that wait for them: a settlement is announced only when its DSN is safe.

Until a DSN has two copies, or is settled, no member is told that its recipient is settled. If this node is
lost before that, a holder still has the original and makes the same DSN again (its id is derived).
"""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.decisions import Decision, SaveCopy
from shadowrelay.core.events.announcements import addressed, delivered, listeners
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.machines import holding
from shadowrelay.core.messages import Copy, HolderState, Recipient
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
    return not copy.exposed


def waited_in_vain(ledger: Ledger, original: Copy, now: datetime) -> Decision[None]:
    """End the wait of recipients whose report is safe already: no further event will end it."""
    waiting = [r for r in original.recipients if r.report and already_safe(ledger, r.report)]
    return _announced(original, [replace(r, report=None) for r in waiting], now)


def report_is_safe(ledger: Ledger, report: Copy, now: datetime) -> Decision[None]:
    """A DSN is safe: announce the settlement of the recipients that waited for it."""
    original = report.reports_on and ledger.copy(report.reports_on)
    if not original:
        return Decision(None)
    waiting = [replace(r, report=None) for r in original.recipients if r.report == report.id]
    return _announced(original, waiting, now)


def _announced(original: Copy, waiting: list[Recipient], now: datetime) -> Decision[None]:
    if not waiting:
        return Decision(None)
    after = original.with_recipients(waiting)
    told = addressed(listeners(after), delivered(after, waiting), now)
    return Decision(None, (SaveCopy(original, after), *told))
