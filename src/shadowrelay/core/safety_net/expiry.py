"""Expiry of Safety Net: how long settled messages are kept, and what is remembered of them afterwards."""

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
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.requests import Selector
from shadowrelay.core.tracking import HaDiscard
from shadowrelay.core.values import replace


def expire(
    ledger: Ledger,
    copy: Copy,
    policy: Policy,
    now: datetime,
    reachable: Collection[ServerName],
    kept: Collection[Selector] = (),
    ends: Endings | None = None,
) -> Decision[bool]:
    """Forget a copy that was kept long enough. Its id and outcome are remembered longer. True if it is gone.

    A settled copy is kept for ``safety_net_hold_time`` after its settlement. A shadow copy whose message
    nobody settled is kept for ``message_expiration_timeout`` longer than that, counted from reception, or
    from when its owner last said that it has the message. An owner that can be reached is asked first. A
    damaged shadow copy does not expire by age, nor a suspended one. What was settled in a ``kept`` window, of
    an open resubmit request, stays. So does what a hop beyond the boundary has not delivered yet
    (``delivery.hop_shadows.given_up``). ``ends`` says how old things certainly are.
    """
    ends = ends or Endings(now)
    remembered = now + remembered_for(policy)
    if copy.stage is Stage.SAFETY_NET:
        if copy.settled_at is None or copy.settled_at > ends.before(policy.safety_net_hold_time):
            return Decision(False)
        if any(window.covers(recipient.settled_at) for window in kept for recipient in copy.recipients):
            return Decision(False)
        if any(recipient.waits for recipient in copy.recipients):
            # A DSN about it, or its journal copy, is not safe yet, so its outcome may not be told; or a page
            # is out of date.
            return waited_in_vain(ledger, copy, now).but(False)
        if ledger.hop_shadows_of(copy.id):
            return Decision(False)
        numbers = tuple(recipient.number for recipient in copy.recipients)
        return Decision(True, (DropCopy(copy), Outcome(copy.id, copy.epoch, numbers, remembered)))
    old = max(copy.received_at, copy.renewed_at or copy.received_at) <= ends.before(remembered_for(policy))
    suspended = any(one.is_suspended(now) for one in copy.unsettled)
    if copy.held and not copy.damaged and not suspended and old:
        if ledger.hop_shadows_of(copy.id):
            return Decision(False)
        if copy.owner in reachable:
            return Decision(False, saved(copy, replace(copy, check_at=copy.check_at or now)).writes)
        event = HaDiscard(at=now, copy=copy, recipients=copy.unsettled, reason="Expired")
        # If it is a report, nobody will tell any more what became of it.
        return Decision(True, (DropCopy(copy), *report_is_safe(ledger, copy, now).writes), (event,))
    return Decision(False)
