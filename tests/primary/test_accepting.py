"""The order of asking for copies, and its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from shadowrelay.core.decisions import Content
from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.messages import Envelope, Recipient
from shadowrelay.core.policy import Policy
from shadowrelay.core.redundancy import Arrival, Attempt, Leg
from shadowrelay.core.steps import OfferCopy, Transact
from shadowrelay.primary.accepting import make_redundant

BEGUN = datetime(2030, 1, 1, tzinfo=UTC)
DEADLINE = BEGUN + timedelta(seconds=10)
MEMBERS = [ServerName(name) for name in ("b", "c", "d")]
ARRIVAL = Arrival(
    id=MessageId("01900000-0000-7000-8000-000000000001"),
    envelope=Envelope(sender="a@example.org", size=1),
    recipients=(Recipient(1, "b@example.net", NextHop("h")),),
    received_at=BEGUN,
)


def test_past_the_time_cap_no_further_member_is_asked() -> None:
    now = BEGUN
    script = make_redundant(ARRIVAL, Content(data=b"x"), MEMBERS, Policy(), lambda: now, DEADLINE)
    step = next(script)
    offered = []
    while isinstance(step, OfferCopy):
        offered.append((step.to, step.rank))
        now += timedelta(seconds=6)
        step = script.send(Attempt(step.to, Leg.REFUSED, step.rank, "451 4.3.0"))
    assert offered == [("b", 1), ("c", 2)]
    assert isinstance(step, Transact)  # the last resort: what policy says of no copy at all
