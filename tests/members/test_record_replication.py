"""Which members have the records, and which of them are waited for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from shadowrelay.core.identifiers import Incarnation, RequestId, ServerName
from shadowrelay.core.steps import Unanswered
from shadowrelay.members.record_replication import REFRESH, Spread
from shadowrelay.members.sharing import News, Shared

PATIENCE = timedelta(seconds=30)
RUN, NEXT = Incarnation("1" * 16), Incarnation("2" * 16)
A, B = ServerName("a"), ServerName("b")
R = RequestId("01900000-0000-7000-9000-000000000000")
NEWS: News = frozenset({(R, 1, 0)})
CHANGED: News = frozenset({(R, 2, 0)})
ANSWERED = Shared()


def given(to: ServerName = A) -> Spread:
    """That member was given the records at time 0."""
    spread = Spread()
    spread.due({to: RUN}, NEWS, 0.0)
    spread.answered(to, ANSWERED, NEWS, 0.0)
    return spread


def test_a_member_is_given_the_records_again_after_a_change_a_while_and_a_new_contact() -> None:
    spread = given()
    assert spread.due({A: RUN}, NEWS, 1.0) == ()
    assert spread.due({A: RUN}, CHANGED, 1.0) == (A,)
    assert spread.due({A: RUN}, NEWS, REFRESH) == (A,)
    assert spread.due({}, NEWS, 1.0) == ()
    assert spread.due({A: RUN}, NEWS, 1.0) == (A,)


def test_a_member_that_was_started_again_is_given_the_records_again_though_it_was_never_missed() -> None:
    """Its database may be another one, or an older state."""
    spread = given()
    assert spread.due({A: NEXT}, NEWS, 1.0) == (A,)
    assert not spread.heard(PATIENCE, 1.0)
    assert spread.given[A].had == frozenset()


def test_a_member_that_did_not_answer_is_given_them_again() -> None:
    spread = Spread()
    spread.due({A: RUN}, NEWS, 0.0)
    spread.answered(A, replace(ANSWERED, failed=Unanswered("xoperate", "no answer")), NEWS, 0.0)
    assert spread.due({A: RUN}, NEWS, 1.0) == (A,)


def test_nothing_is_made_before_every_member_that_can_be_reached_has_answered() -> None:
    spread = given()
    assert spread.heard(PATIENCE, 1.0)
    spread.due({A: RUN, B: RUN}, NEWS, 1.0)
    assert not spread.heard(PATIENCE, 30.9)
    spread.answered(B, ANSWERED, NEWS, 2.0)
    assert spread.heard(PATIENCE, 2.0)


def test_a_member_that_does_not_answer_is_waited_for_as_long_as_the_reconcile_timeout() -> None:
    spread = given()
    spread.due({A: RUN, B: RUN}, NEWS, 1.0)
    spread.due({A: RUN, B: RUN}, NEWS, 20.0)
    assert spread.heard(PATIENCE, 31.0)


def test_a_member_that_is_out_of_reach_is_not_waited_for_until_it_is_back() -> None:
    spread = given()
    spread.due({A: RUN, B: RUN}, NEWS, 1.0)
    spread.due({A: RUN}, NEWS, 2.0)
    assert spread.heard(PATIENCE, 2.0)
    spread.due({A: RUN, B: RUN}, NEWS, 40.0)
    assert not spread.heard(PATIENCE, 40.0)


def test_a_refusal_is_news_once() -> None:
    spread = given()
    refused = Shared(((R, "too many"),))
    assert spread.answered(A, refused, NEWS, 1.0) == {R: "too many"}
    assert spread.answered(A, refused, NEWS, 2.0) == {}
    assert spread.answered(A, ANSWERED, NEWS, 3.0) == {}
    assert spread.answered(A, refused, NEWS, 4.0) == {R: "too many"}
