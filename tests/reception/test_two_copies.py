"""The order of asking for copies, and its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from ledger_at_hand import DB, RUN, A, B, ledger_of, steps

from shadowrelay.core.decisions import Content
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import Mark, MessageId, NextHop, ServerName
from shadowrelay.core.messages import Digests, Envelope, Recipient
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.redundancy import Arrival, Concern, Leg, OfferAttempt
from shadowrelay.core.reception.shadow_servers import MemberPlace, Turn
from shadowrelay.core.steps import Beside, Both, OfferCopy, Pause, Transact
from shadowrelay.core.values import replace
from shadowrelay.members.boundary import Boundary
from shadowrelay.reception.two_copies import Decided, make_redundant

BEGUN = datetime(2030, 1, 1, tzinfo=UTC)
DEADLINE = BEGUN + timedelta(seconds=10)
ENVELOPE = Envelope(sender="a@example.org", size=1)
RECIPIENTS = (Recipient(1, "b@example.net", NextHop("h")),)
ARRIVAL = Arrival(
    id=MessageId("01900000-0000-7000-8000-000000000001"),
    envelope=ENVELOPE,
    recipients=RECIPIENTS,
    digests=Digests(of_content(b"x"), of_envelope(ENVELOPE, RECIPIENTS)),
    received_at=BEGUN,
)


def asked(*members: str, each: timedelta, concern: Concern = Concern.MEMBER) -> list[object]:
    """What happens if each attempt takes that long and fails: members with their ranks, and pauses."""
    now = BEGUN
    places = [MemberPlace(ServerName(name), "site", f"host-{name}") for name in ("a", *members)]
    candidates = Boundary(places[0], tuple(places[1:]), Policy(), _turn=-1).candidates(0.0)
    script = make_redundant(ARRIVAL, Content(data=b"x"), candidates.after, Policy(), lambda: now, DEADLINE)
    found: list[object] = []
    step = script.send(None)
    while not isinstance(step, Transact):  # the last resort: what policy says of no copy at all
        if isinstance(step, Pause):
            found.append(step.length)
            now += step.length
            step = script.send(None)
            continue
        assert isinstance(step, Beside | OfferCopy)
        to = step.offer if isinstance(step, Beside) else step
        found.append((to.to, to.rank))
        now += each
        refused = OfferAttempt(to.to, Leg.REFUSED, to.rank, "451 4.3.0", concern=concern)
        step = script.send(Both(None, refused, None) if isinstance(step, Beside) else refused)
    return found


RETRY = Policy().shadow_retry_interval


def test_past_the_time_cap_no_further_member_is_asked() -> None:
    assert asked("b", "c", "d", each=timedelta(seconds=2)) == [("b", 1), ("c", 2)]
    assert asked("b", "c", each=timedelta(seconds=10)) == [("b", 1)]


def test_the_only_member_is_asked_again_after_a_pause_by_the_next_rank() -> None:
    assert asked("b", each=timedelta(seconds=1)) == [("b", 1), RETRY, ("b", 2)]


def test_nobody_waits_for_an_attempt_that_would_come_too_late() -> None:
    assert asked("b", each=timedelta(seconds=10) - RETRY) == [("b", 1)]


def test_a_broken_session_is_replaced_without_a_pause_by_the_next_rank() -> None:
    each = timedelta(seconds=1)
    assert asked("b", each=each, concern=Concern.SESSION) == [("b", 1), ("b", 2), RETRY, ("b", 3)]


@pytest.mark.parametrize("filtered", [{}, {"unfiltered": "rspamd"}, {"quarantined": "odd"}])
def test_what_filters_did_is_on_record_before_the_250_since_no_restart_could_tell_it(
    filtered: dict[str, str],
) -> None:
    on, attempt = ledger_of(A), OfferAttempt(B, Leg.ACKNOWLEDGED, 1, "250", DB[B], Mark(RUN[B], 11))

    def both(step: object) -> Both[object]:
        assert isinstance(step, Beside)
        return Both(step.work(on), attempt, on.member(B))

    arrival, policy = replace(ARRIVAL, **filtered), Policy()
    script = make_redundant(arrival, Content(data=b"x"), lambda _: Turn(B), policy, lambda: BEGUN, DEADLINE)
    *_, decided = steps(script, on, both)
    assert isinstance(decided, Decided)
    assert (decided.record is None) is bool(filtered)
    assert [event.event_id for event in on.events] == (["HAREDIRECT", "RECEIVE"] if filtered else [])
