"""Which members have the records, and which of them are waited for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from shadowrelay.core.identifiers import Incarnation, RequestId, ServerName
from shadowrelay.core.steps import Unanswered
from shadowrelay.core.switches import Switch
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


def pending(longest: float = 10.0, revision: int = 3) -> Switch:
    return Switch(
        id=R,
        name="shadow_resubmit_time_span",
        value=2000,
        longest=round(1000 * longest),
        shortest=2000,
        operator="ann",
        reason="why",
        revision=revision,
        changed_by=A,
        changed_at=datetime(2026, 11, 21, tzinfo=UTC),
    )


def told(spread: Spread, name: ServerName, run: Incarnation, revision: int, now: float) -> None:
    news: News = frozenset({(R, revision, 0)})
    runs = {known: given.run for known, given in spread.given.items()} | {name: run}
    spread.due(runs, news, now)
    spread.answered(name, ANSWERED, news, now)


def test_a_span_is_settled_once_every_member_has_had_it_for_as_long_as_the_longest() -> None:
    spread, one = Spread(), pending()
    told(spread, A, RUN, 3, 0.0)
    assert spread.settled([one], {A, B}, 100.0) == []
    told(spread, B, RUN, 2, 100.0)
    assert spread.settled([one], {A, B}, 200.0) == [], "it has the revision before"
    told(spread, B, RUN, 3, 200.0)
    assert spread.settled([one], {A, B}, 200.0) == []
    assert spread.settled([one], {A, B}, 209.9) == []
    assert spread.settled([one], {A, B}, 210.0) == [one]
    assert spread.settled([replace(one, longest=None)], {A, B}, 211.0) == [], "it is settled"


def test_a_member_that_is_away_has_what_it_had_and_one_that_comes_back_says_so_again() -> None:
    spread, one = Spread(), pending()
    for name in (A, B):
        told(spread, name, RUN, 3, 0.0)
    assert spread.settled([one], {A, B}, 0.0) == []
    spread.meet({A: RUN}, 5.0)
    assert spread.settled([one], {A, B}, 9.0) == []
    assert spread.settled([one], {A, B}, 10.0) == [one]
    spread.meet({A: RUN, B: NEXT}, 11.0)  # its database may be another one
    assert spread.settled([one], {A, B}, 12.0) == []
    told(spread, B, NEXT, 3, 13.0)
    assert spread.settled([one], {A, B}, 13.0) == []
    assert spread.settled([one], {A, B}, 22.9) == []
    assert spread.settled([one], {A, B}, 23.0) == [one]


def test_a_member_that_refuses_a_span_keeps_it_from_being_settled_until_it_is_retired() -> None:
    spread, one, news = Spread(), pending(), frozenset({(R, 3, 0)})
    told(spread, A, RUN, 3, 0.0)
    spread.due({A: RUN, B: RUN}, news, 0.0)
    spread.answered(B, Shared(refused=((R, "this node cannot switch it"),)), news, 0.0)
    assert spread.settled([one], {A, B}, 50.0) == []
    assert spread.settled([one], {A, B}, 100.0) == []
    assert spread.settled([one], {A}, 100.0) == []
    assert spread.settled([one], {A}, 110.0) == [one]
