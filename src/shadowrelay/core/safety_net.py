"""How long settled messages are kept, and what is remembered of them afterwards."""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.decisions import Decision, DropCopy, Outcome
from shadowrelay.core.discard import remembered_for
from shadowrelay.core.messages import Copy, Stage
from shadowrelay.core.policy import Policy
from shadowrelay.core.tracking import HaDiscard


def expire(copy: Copy, policy: Policy, now: datetime) -> Decision[bool]:
    """Forget a copy that was kept long enough; its id and outcome are remembered for longer still.

    A settled one stays ``safety_net_hold_time`` after its settlement. A shadow copy that was never
    acknowledged goes ``message_expiration_timeout`` later than that, counted from reception. True if gone.
    """
    remembered = now + remembered_for(policy)
    if copy.stage is Stage.SAFETY_NET:
        if copy.settled_at is None or now - copy.settled_at < policy.safety_net_hold_time:
            return Decision(False)
        if any(recipient.report for recipient in copy.recipients):
            return Decision(False)  # its DSN is not safe yet: the outcome may not be told
        numbers = tuple(recipient.number for recipient in copy.recipients)
        return Decision(True, (DropCopy(copy), Outcome(copy.id, copy.epoch, numbers, remembered)))
    age = now - copy.received_at
    if copy.held and age >= remembered_for(policy):
        event = HaDiscard(at=now, copy=copy, recipients=copy.unsettled, reason="Expired")
        return Decision(True, (DropCopy(copy),), (event,))
    return Decision(False)
