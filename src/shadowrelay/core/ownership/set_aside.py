"""Messages set aside until an operator decides: their fate is unknown, no member has a good copy, or the node
crashed with them in hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from shadowrelay.core.decisions import DamagedRow, Decision, SaveCopy, SaveDamaged
from shadowrelay.core.events.discard_notices import whole
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.messages import Confirmation, Copy, Reason, Recipient, Stage
from shadowrelay.core.ownership.transfer import asked_about, intended
from shadowrelay.core.tracking import OfRows, Resume, RowsDamaged, SetAside
from shadowrelay.core.values import replace

REASON = "away longer than events are kept, and no holder confirms the message"


def set_aside(copy: Copy, now: datetime, reason: str = REASON) -> Decision[None]:
    """Set a message aside: no member confirms it, or none has a good copy of it."""
    aside = replace(
        copy,
        stage=Stage.SET_ASIDE,
        confirmation=Confirmation.NONE,
        confirm_since=None,
        pending=None,
        check_at=None,
    )
    return Decision(None, (SaveCopy(copy, aside),), (SetAside(at=now, copy=aside, reason=reason),))


MOST_CRASHES = 2
"""A message that was in hand at so many crashes is set aside."""


def poisonous(copy: Copy, crashes: Sequence[str], now: datetime) -> Decision[None] | None:
    """The node crashed with this message in hand, and reported it: a line about each crash. None: go on.

    One crash may have any cause. A copy held for another member is not sent from here, so it stays.
    """
    if len(crashes) < MOST_CRASHES or not copy.owned:
        return None
    told = "; ".join(crashes[-MOST_CRASHES:])
    return set_aside(copy, now, f"in hand at {len(crashes)} crashes of the node: {told}")


def resume(
    ledger: Ledger, message_id: MessageId, now: datetime, operator: str = ""
) -> Decision[Copy | DamagedRow | None]:
    """An operator releases a message that was set aside. None if it is not set aside.

    Its age begins anew: at its true age it would expire at once. The holders are asked before it is sent: one
    may have promoted and delivered it meanwhile. A copy held for another member is promoted, because its
    owner has forgotten the message. A damaged message is not sent: a good copy is looked for again.
    """
    copy = ledger.copy(message_id)
    if copy is None:
        return _sought_again(ledger.damaged(message_id), now, operator)
    if copy.stage is not Stage.SET_ASIDE:
        return Decision(None)
    ready = tuple(_released(recipient, now) for recipient in copy.unsettled)
    queued = replace(copy.with_recipients(ready), stage=Stage.QUEUED, received_at=now)
    queued = intended(asked_about(queued, now) if queued.holders else queued, Reason.OWNER_FORGOT, now)
    event = Resume(at=now, copy=queued, recipients=queued.unsettled, operator=operator)
    return Decision(queued, (SaveCopy(copy, queued),), (event,))


def _released(one: Recipient, now: datetime) -> Recipient:
    """A recipient that is due again by this order, unless it is suspended."""
    released = one.let_go()
    return released if one.suspended else replace(released, ordered_at=whole(now))


def _sought_again(
    rows: DamagedRow | None, now: datetime, operator: str
) -> Decision[Copy | DamagedRow | None]:
    if rows is None or not rows.set_aside:
        return Decision(None)
    sought = replace(rows, set_aside=False)
    event = RowsDamaged(at=now, message_id=rows.message_id, told=OfRows.RESUMED, operator=operator)
    return Decision(sought, (SaveDamaged(sought),), (event,))
