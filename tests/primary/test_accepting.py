"""The order of asking for copies, and its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from shadowrelay.core.decisions import Content
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.messages import Digests, Envelope, Recipient
from shadowrelay.core.policy import Policy
from shadowrelay.core.redundancy import Arrival, Attempt, Leg
from shadowrelay.core.steps import Beside, Both, OfferCopy, Transact
from shadowrelay.primary.accepting import make_redundant

BEGUN = datetime(2030, 1, 1, tzinfo=UTC)
DEADLINE = BEGUN + timedelta(seconds=10)
MEMBERS = [ServerName(name) for name in ("b", "c", "d")]
ENVELOPE = Envelope(sender="a@example.org", size=1)
RECIPIENTS = (Recipient(1, "b@example.net", NextHop("h")),)
ARRIVAL = Arrival(
    id=MessageId("01900000-0000-7000-8000-000000000001"),
    envelope=ENVELOPE,
    recipients=RECIPIENTS,
    digests=Digests(of_content(b"x"), of_envelope(ENVELOPE, RECIPIENTS)),
    received_at=BEGUN,
)


def test_past_the_time_cap_no_further_member_is_asked() -> None:
    now = BEGUN
    script = make_redundant(ARRIVAL, Content(data=b"x"), MEMBERS, Policy(), lambda: now, DEADLINE)
    step = next(script)
    offered = []
    while isinstance(step, Beside | OfferCopy):
        first = isinstance(step, Beside)
        asked = step.offer if isinstance(step, Beside) else step
        offered.append((asked.to, asked.rank))
        now += timedelta(seconds=6)
        refused = Attempt(asked.to, Leg.REFUSED, asked.rank, "451 4.3.0")
        step = script.send(Both(None, refused, None) if first else refused)
    assert offered == [("b", 1), ("c", 2)]
    assert isinstance(step, Transact)  # the last resort: what policy says of no copy at all
