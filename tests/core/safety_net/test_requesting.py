"""Resubmit requests: made, changed, merged in any order, forgotten."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import permutations

from asked import REQUEST, WINDOW, request
from decision_inputs import POLICY
from hypothesis import given
from hypothesis import strategies as st
from ledger_at_hand import NOW, A, B, C, LedgerAtHand, ledger_of

from shadowrelay.core.identifiers import RequestId
from shadowrelay.core.requests import Progress, Request, RequestState, newest
from shadowrelay.core.safety_net import requesting
from shadowrelay.core.safety_net.requesting import Declined

SECOND = timedelta(seconds=1)

revisions = st.builds(
    replace,
    st.just(request()),
    revision=st.integers(1, 3),
    state=st.sampled_from(RequestState),
    changed_by=st.sampled_from([A, B, C]),
)


@given(st.lists(revisions, min_size=1, max_size=4))
def test_members_that_hear_of_the_same_revisions_agree_whatever_the_order(given: list[Request]) -> None:
    weights = {(one.revision, one.changed_by): one for one in given}
    ends = set()
    for order in permutations(weights.values()):
        last = order[0]
        for one in order[1:]:
            last = newest(last, one)
        ends.add((last.state, last.revision, last.changed_by))
    assert len(ends) == 1


@given(st.lists(revisions, min_size=1, max_size=4))
def test_a_request_that_was_removed_anywhere_stays_removed(given: list[Request]) -> None:
    last = given[0]
    for one in given[1:]:
        last = newest(last, one)
    assert (last.state is RequestState.REMOVED) == any(one.state is RequestState.REMOVED for one in given)
    assert last.state is not RequestState.REMOVED or last.changed(RequestState.RUNNING, A, NOW) == last


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
    on.apply(requesting.change(on, REQUEST, RequestState.REMOVED, A, NOW))
    few = replace(POLICY, resubmit_most_requests=1)
    assert isinstance(on.apply(requesting.add(on, request(2), few, NOW)), Request)
    later = NOW + POLICY.resubmit_request_age
    third = replace(request(3), made_at=later)
    assert isinstance(on.apply(requesting.add(on, third, few, later)), Request)


def test_each_change_is_a_revision_and_no_change_is_none() -> None:
    on = ledger_of(A)
    on.apply(requesting.add(on, request(), POLICY, NOW))
    paused = on.apply(requesting.change(on, REQUEST, RequestState.PAUSED, B, NOW))
    again = on.apply(requesting.change(on, REQUEST, RequestState.PAUSED, C, NOW))
    assert paused == again
    assert paused is not None
    assert (paused.state, paused.revision > 1, paused.changed_by) == (RequestState.PAUSED, True, B)
    gone = on.apply(requesting.change(on, REQUEST, None, B, NOW, gone=[C]))
    assert gone is not None
    assert (gone.state, gone.gone, gone.revision > paused.revision) == (RequestState.PAUSED, (C,), True)
    assert on.apply(requesting.change(on, RequestId("another"), RequestState.PAUSED, B, NOW)) is None


def test_a_change_counts_over_earlier_ones_that_its_node_lost_with_its_disk() -> None:
    """The member that still has these is away."""
    away, lost = ledger_of(B), ledger_of(A)
    for on in (away, lost):
        on.apply(requesting.add(on, request(), POLICY, NOW))
    for state in (RequestState.PAUSED, RequestState.RUNNING, RequestState.PAUSED):
        before = away.apply(requesting.change(away, REQUEST, state, B, NOW))
    later = NOW + timedelta(minutes=1)
    resumed = lost.apply(requesting.change(lost, REQUEST, RequestState.PAUSED, A, later))
    assert before is not None
    assert resumed is not None
    assert newest(before, resumed) == newest(resumed, before) == resumed


def test_a_member_tells_its_own_progress_and_nobody_elses() -> None:
    on = ledger_of(A)
    own, others = (Progress(request=REQUEST, node=node, owner=B, made=3) for node in (B, C))
    on.apply(requesting.merge(on, request(), [own, others], B, POLICY, NOW))
    assert list(on.progress(REQUEST)) == [own]


def test_a_record_is_kept_for_two_lives_and_is_not_taken_after_that() -> None:
    on = ledger_of(A)
    on.apply(requesting.add(on, request(), POLICY, NOW))
    end = NOW + 2 * POLICY.resubmit_request_age
    assert on.apply(requesting.forget(on, POLICY, end - SECOND)) == 0
    assert on.apply(requesting.forget(on, POLICY, end)) == 1
    assert on.apply(requesting.merge(on, request(), (), B, POLICY, end)) is None
    assert not on.requests()


def test_a_member_cannot_make_a_node_keep_any_number_of_requests() -> None:
    on = ledger_of(A)
    for number in range(requesting.MOST_KEPT + 5):
        on.apply(requesting.merge(on, request(number + 1), (), B, POLICY, NOW))
    assert len(on.requests()) == requesting.MOST_KEPT


def test_what_an_open_request_asks_for_is_kept_until_the_request_ends() -> None:
    on = ledger_of(A)
    on.apply(requesting.add(on, request(), POLICY, NOW))
    assert requesting.kept(on, POLICY, NOW) == (WINDOW,)
    assert requesting.kept(on, POLICY, NOW + POLICY.resubmit_request_age) == ()
    on.apply(requesting.change(on, REQUEST, RequestState.PAUSED, A, NOW))
    assert requesting.kept(on, POLICY, NOW) == (WINDOW,)
    on.apply(requesting.change(on, REQUEST, RequestState.REMOVED, A, NOW))
    assert requesting.kept(on, POLICY, NOW) == ()
