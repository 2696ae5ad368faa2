"""How long settled messages are kept, and what is remembered of them afterwards."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from shadowrelay.core.decisions import Decision, DropCopy, Outcome
from shadowrelay.core.events.discard import remembered_for
from shadowrelay.core.events.side_effects import report_is_safe, waited_in_vain
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.messages import Copy, Stage
from shadowrelay.core.ownership.transfer import saved
from shadowrelay.core.policy import Policy
from shadowrelay.core.tracking import HaDiscard
from shadowrelay.core.values import replace


def expire(
    ledger: Ledger, copy: Copy, policy: Policy, now: datetime, reachable: Collection[ServerName]
) -> Decision[bool]:
    """Forget a copy that was kept long enough; its id and outcome are remembered for longer still.

    A settled one stays ``safety_net_hold_time`` after its settlement. A shadow copy that was never
    acknowledged goes ``message_expiration_timeout`` later than that, counted from reception, or from when
    its owner last said that it has the message. An owner that can be reached is asked before. A damaged
    copy never goes by age. True if gone.
    """
    remembered = now + remembered_for(policy)
    if copy.stage is Stage.SAFETY_NET:
        if copy.settled_at is None or now - copy.settled_at < policy.safety_net_hold_time:
            return Decision(False)
        if any(recipient.report for recipient in copy.recipients):
            # Its DSN is not safe yet, and the outcome may not be told; or a page is out of date.
            return waited_in_vain(ledger, copy, now).but(False)
        numbers = tuple(recipient.number for recipient in copy.recipients)
        return Decision(True, (DropCopy(copy), Outcome(copy.id, copy.epoch, numbers, remembered)))
    age = now - max(copy.received_at, copy.renewed_at or copy.received_at)
    if copy.held and not copy.damaged and age >= remembered_for(policy):
        if copy.owner in reachable:
            return Decision(False, saved(copy, replace(copy, check_at=copy.check_at or now)).writes)
        event = HaDiscard(at=now, copy=copy, recipients=copy.unsettled, reason="Expired")
        # Nobody will say any more what became of a report.
        return Decision(True, (DropCopy(copy), *report_is_safe(ledger, copy, now).writes), (event,))
    return Decision(False)
