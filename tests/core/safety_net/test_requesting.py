"""Resubmit requests: made, changed, merged in any order, forgotten."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from asked import REQUEST, WINDOW, request
from decision_inputs import POLICY
from giving_records import hears
from ledger_at_hand import NOW, A, B, C, LedgerAtHand, ledger_of

from shadowrelay.core.decisions import Decision
from shadowrelay.core.identifiers import RequestId
from shadowrelay.core.operating import Told
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.records import newest
from shadowrelay.core.replicating import Merging
from shadowrelay.core.requests import Progress, Request, RequestState
from shadowrelay.core.safety_net import requesting
from shadowrelay.core.safety_net.requesting import Declined
from shadowrelay.members.sharing import received, share
from shadowrelay.wire.records import record_told

SECOND = timedelta(seconds=1)


def test_a_request_gets_the_next_number_and_once_only() -> None:
    on = ledger_of(A)
    first = on.apply(requesting.add(on, request(), POLICY, NOW))
    again = on.apply(requesting.add(on, replace(request(), reason="again"), POLICY, NOW))
    other = on.apply(requesting.add(on, request(2), POLICY, NOW))
    assert first == again
    assert isinstance(other, Request)
    assert (other.number, len(on.requests())) == (2, 2)


def refused(on: LedgerAtHand, asked: Request, **policy: object) -> str:
    found = on.apply(requesting.add(on, asked, replace(POLICY, **policy), NOW))
    assert isinstance(found, Declined)
    assert on.request(asked.id) is None
    return found.why


def test_a_window_ends_in_the_past_and_starts_before_it_ends() -> None:
    on = ledger_of(A)
    early = replace(WINDOW, until=NOW + SECOND)
    assert "in the past" in refused(on, replace(request(), selector=early))
    assert "before it ends" in refused(on, replace(request(), selector=replace(WINDOW, since=WINDOW.until)))


def test_safety_net_that_is_switched_off_takes_no_request() -> None:
    assert "off" in refused(ledger_of(A), request(), safety_net_hold_time=timedelta(seconds=15))


def test_open_requests_have_a_maximum_number_and_removed_or_old_ones_do_not_count() -> None:
    on = ledger_of(A)
    on.apply(requesting.add(on, request(), POLICY, NOW))
    assert "remove one" in refused(on, request(2), resubmit_most_requests=1)
    on.apply(requesting.change(on, REQUEST, RequestState.REMOVED, A, NOW, "ann"))
    few = replace(POLICY, resubmit_most_requests=1)
    assert isinstance(on.apply(requesting.add(on, request(2), few, NOW)), Request)
    later = NOW + POLICY.resubmit_request_age
    third = replace(request(3), made_at=later)
    assert isinstance(on.apply(requesting.add(on, third, few, later)), Request)


def test_each_change_is_a_revision_and_no_change_is_none() -> None:
    on = ledger_of(A)
    on.apply(requesting.add(on, request(), POLICY, NOW))
    paused = on.apply(requesting.change(on, REQUEST, RequestState.PAUSED, B, NOW, "ann"))
    again = on.apply(requesting.change(on, REQUEST, RequestState.PAUSED, C, NOW, "ann"))
    assert paused == again
    assert paused is not None
    assert (paused.state, paused.revision > 1, paused.changed_by) == (RequestState.PAUSED, True, B)
    gone = on.apply(requesting.change(on, REQUEST, None, B, NOW, "ann", gone=[C]))
    assert gone is not None
    assert (gone.state, gone.gone, gone.revision > paused.revision) == (RequestState.PAUSED, (C,), True)
    assert on.apply(requesting.change(on, RequestId("another"), RequestState.PAUSED, B, NOW, "ann")) is None


def test_a_change_counts_over_earlier_ones_that_its_node_lost_with_its_disk() -> None:
    """The member that still has these is away."""
    away, lost = ledger_of(B), ledger_of(A)
    for on in (away, lost):
        on.apply(requesting.add(on, request(), POLICY, NOW))
    for state in (RequestState.PAUSED, RequestState.RUNNING, RequestState.PAUSED):
        before = away.apply(requesting.change(away, REQUEST, state, B, NOW, "ann"))
    later = NOW + timedelta(minutes=1)
    resumed = lost.apply(requesting.change(lost, REQUEST, RequestState.PAUSED, A, later, "ann"))
    assert before is not None
    assert resumed is not None
    assert newest(before, resumed) == newest(resumed, before) == resumed


def test_a_member_tells_its_own_progress_and_nobody_elses() -> None:
    on = ledger_of(A)
    own, others = (Progress(request=REQUEST, node=node, owner=B, made=3) for node in (B, C))
    hears(on, request(), [own, others])
    assert list(on.progress(REQUEST)) == [own]


def test_a_record_is_kept_for_two_lives_on_each_node_whoever_dated_it() -> None:
    """So whoever knows that it was removed knows it until nobody makes messages for it any more."""
    life, made = POLICY.resubmit_request_age, NOW - timedelta(days=300)
    dated = replace(request(), made_at=made, changed_at=made)
    on = ledger_of(A)
    assert hears(on, dated, age=life - SECOND) == dated
    assert requesting.kept(on, POLICY, Endings(NOW + life - SECOND)) == (WINDOW,)
    assert requesting.kept(on, POLICY, Endings(NOW + life)) == ()
    assert on.apply(requesting.forget(on, POLICY, Endings(NOW + 2 * life - SECOND))) == 0
    assert on.apply(requesting.forget(on, POLICY, Endings(NOW + 2 * life, doubt=True))) == 0
    away = (NOW, NOW + SECOND)  # that may not have passed
    assert on.apply(requesting.forget(on, POLICY, Endings(NOW + 2 * life, (away,)))) == 0
    assert on.apply(requesting.forget(on, POLICY, Endings(NOW + 2 * life))) == 1


def test_a_request_that_ended_elsewhere_is_not_taken_anew_but_a_change_of_a_known_one_is() -> None:
    """Else one that is forgotten here would come back from whoever learnt it later, again and again."""
    life = POLICY.resubmit_request_age
    on = ledger_of(A)
    assert hears(on, request(), age=life) is None
    on.apply(requesting.add(on, request(), POLICY, NOW))
    removed = replace(request(), number=1, state=RequestState.REMOVED, revision=2)
    assert hears(on, removed, now=NOW + life, age=life) == removed


def test_what_is_told_of_the_age_of_a_record_passes_on_and_a_member_of_before_goes_by_its_date() -> None:
    one, other, third = ledger_of(A), ledger_of(B), ledger_of(C)
    life = POLICY.resubmit_request_age
    one.apply(requesting.add(one, request(), POLICY, NOW))

    def gives(giver: LedgerAtHand, to: LedgerAtHand, seconds: int, now: datetime) -> Told:
        about = Merging(POLICY, Endings(NOW + timedelta(seconds=seconds)))
        reading: Any = share(to.name, lambda: about).send(None)
        (given,) = reading.work(giver)
        return received(to, requesting.RULES, giver.name, given.act.arguments, Merging(POLICY, Endings(now)))

    assert gives(one, other, 5, NOW - timedelta(days=99))["age"] == 5_000_000
    known = other.request(REQUEST)
    assert known is not None
    other.apply(Decision(None, (replace(known, kept_at=NOW - 7 * SECOND),)))
    assert gives(other, third, 0, NOW)["age"] == 12_000_000
    old = {"request": record_told(request()), "progress": []}
    late = Merging(POLICY, Endings(NOW + life))
    assert received(ledger_of(C), requesting.RULES, B, old, late) == {}
    assert received(ledger_of(C), requesting.RULES, B, old, Merging(POLICY, Endings(NOW)))


def test_a_member_cannot_make_a_node_keep_any_number_of_requests() -> None:
    on = ledger_of(A)
    for number in range(requesting.MOST_KEPT + 5):
        hears(on, request(number + 1))
    assert len(on.requests()) == requesting.MOST_KEPT


def test_what_an_open_request_asks_for_is_kept_until_the_request_ends() -> None:
    on = ledger_of(A)
    on.apply(requesting.add(on, request(), POLICY, NOW))
    assert requesting.kept(on, POLICY, Endings(NOW)) == (WINDOW,)
    on.apply(requesting.change(on, REQUEST, RequestState.PAUSED, A, NOW, "ann"))
    assert requesting.kept(on, POLICY, Endings(NOW)) == (WINDOW,)
    on.apply(requesting.change(on, REQUEST, RequestState.REMOVED, A, NOW, "ann"))
    assert requesting.kept(on, POLICY, Endings(NOW)) == ()
