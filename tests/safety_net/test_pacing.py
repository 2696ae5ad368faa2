"""How soon and how fast requests are carried out: who is given the records, who is waited for, the rate."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from shadowrelay.core.identifiers import Incarnation, RequestId, ServerName
from shadowrelay.core.policy import Policy
from shadowrelay.core.steps import Unanswered
from shadowrelay.members.sharing import News, Shared
from shadowrelay.safety_net.pace import REFRESH, Pace

POLICY = Policy(reconcile_timeout=timedelta(seconds=30), resubmit_rate=10)
RUN, NEXT = Incarnation("1" * 16), Incarnation("2" * 16)
A, B = ServerName("a"), ServerName("b")
R, S, T = (RequestId(f"01900000-0000-7000-9000-00000000000{n}") for n in range(3))
NEWS: News = frozenset({(R, 1, 0)})
CHANGED: News = frozenset({(R, 2, 0)})
ANSWERED = Shared()


def given(to: ServerName = A) -> Pace:
    """That member was given the records at time 0."""
    pace = Pace(POLICY, 0.0)
    pace.due({to: RUN}, NEWS, 0.0)
    pace.answered(to, ANSWERED, NEWS, 0.0)
    return pace


def test_a_member_is_given_the_records_again_after_a_change_a_while_and_a_new_contact() -> None:
    pace = given()
    assert pace.due({A: RUN}, NEWS, 1.0) == ()
    assert pace.due({A: RUN}, CHANGED, 1.0) == (A,)
    assert pace.due({A: RUN}, NEWS, REFRESH) == (A,)
    assert pace.due({}, NEWS, 1.0) == ()
    assert pace.due({A: RUN}, NEWS, 1.0) == (A,)


def test_a_member_that_was_started_again_is_given_the_records_again_though_it_was_never_missed() -> None:
    """Its database may be another one, or an older state."""
    pace = given()
    assert pace.due({A: NEXT}, NEWS, 1.0) == (A,)
    assert not pace.may_go_on(1.0)
    assert pace.given[A].had == frozenset()


def test_a_member_that_did_not_answer_is_given_them_again() -> None:
    pace = Pace(POLICY, 0.0)
    pace.due({A: RUN}, NEWS, 0.0)
    pace.answered(A, replace(ANSWERED, failed=Unanswered("xoperate", "no answer")), NEWS, 0.0)
    assert pace.due({A: RUN}, NEWS, 1.0) == (A,)


def test_nothing_is_made_before_every_member_that_can_be_reached_has_answered() -> None:
    pace = given()
    assert pace.may_go_on(1.0)
    pace.due({A: RUN, B: RUN}, NEWS, 1.0)
    assert not pace.may_go_on(30.9)
    pace.answered(B, ANSWERED, NEWS, 2.0)
    assert pace.may_go_on(2.0)


def test_a_member_that_does_not_answer_is_waited_for_as_long_as_the_reconcile_timeout() -> None:
    pace = given()
    pace.due({A: RUN, B: RUN}, NEWS, 1.0)
    pace.due({A: RUN, B: RUN}, NEWS, 20.0)
    assert pace.may_go_on(31.0)


def test_a_member_that_is_out_of_reach_is_not_waited_for_until_it_is_back() -> None:
    pace = given()
    pace.due({A: RUN, B: RUN}, NEWS, 1.0)
    pace.due({A: RUN}, NEWS, 2.0)
    assert pace.may_go_on(2.0)
    pace.due({A: RUN, B: RUN}, NEWS, 40.0)
    assert not pace.may_go_on(40.0)


def test_a_refusal_is_news_once() -> None:
    pace = given()
    refused = Shared(((R, "too many"),))
    assert pace.answered(A, refused, NEWS, 1.0) == {R: "too many"}
    assert pace.answered(A, refused, NEWS, 2.0) == {}
    assert pace.answered(A, ANSWERED, NEWS, 3.0) == {}
    assert pace.answered(A, refused, NEWS, 4.0) == {R: "too many"}


def test_no_more_is_made_than_the_rate_allows_and_nothing_is_saved_up() -> None:
    pace = Pace(POLICY, 0.0)
    assert pace.most(0.5) == 5
    pace.made(5)
    assert pace.most(0.5) == 0
    assert pace.most(100.0) == 10
    pace.made(10)
    assert pace.most(100.5) == 5


def test_each_turn_begins_with_another_request() -> None:
    pace = Pace(POLICY, 0.0)
    assert [pace.in_turn((R, S, T))[0] for _ in range(4)] == [S, T, R, S]
    assert pace.in_turn(()) == ()
