"""Delayed acknowledgement: which 250 waits, which is skipped or promoted, and what a repeat is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest
from decision_inputs import arrival
from ledger_at_hand import NOW, A, B, LedgerAtHand, M, ledger_of, message

from shadowrelay.core.decisions import Acknowledged, Content, Decision, Unacknowledged
from shadowrelay.core.digests import of_content
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.messages import FOREVER, AsSent, Damage, HolderState, Recipient, Stage, Status
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception import redundancy
from shadowrelay.core.reception.delays_and_repeats import (
    REPEATED_WITHIN,
    Admitted,
    Course,
    End,
    LateQuestion,
    Skip,
    TargetQueue,
    admit,
    answered,
    course,
    ended,
)
from shadowrelay.core.reception.filtered import quarantined
from shadowrelay.core.reception.redundancy import Answer, Arrival
from shadowrelay.core.recipients import LISTS

POLICY = Policy()
PROMOTING = Policy(shadow_redundancy_promotion_enabled=True)
SENT = AsSent("192.0.2.1 client.example", of_content(b"envelope"), of_content(b"content"))
HOP, OTHER = NextHop("h"), NextHop("other")
NEW = MessageId("01900000-0000-7000-8000-000000000002")


def queue(messages: int = 0, **changes: bool) -> TargetQueue:
    return TargetQueue(HOP, messages, **changes)


def way(*targets: TargetQueue, policy: Policy = POLICY, promotion: Sequence[TargetQueue] = ()) -> Course:
    return course(targets, promotion, policy, crowded=False)


def test_the_250_waits_while_every_target_queue_is_ready_and_short() -> None:
    assert way(queue(), queue(100)) == Course()


@pytest.mark.parametrize(
    ("slow", "skip"),
    [
        (queue(retrying=True), Skip.RETRY),
        (queue(suspended=True), Skip.SUSPENDED),
        (queue(101), Skip.LONG),
    ],
)
def test_one_slow_target_queue_is_enough_to_skip_the_delay(slow: TargetQueue, skip: Skip) -> None:
    assert way(queue(), slow) == way(slow, queue()) == Course(skip)


def test_a_queue_that_was_long_is_long_until_it_has_fewer_than_a_hundred_messages() -> None:
    assert [queue(count).stays_long for count in (99, 100, 101)] == [False, False, True]
    assert [queue(count, long=True).stays_long for count in (99, 100, 101)] == [False, True, True]


def test_past_the_limit_of_sessions_nobody_waits() -> None:
    assert course([queue()], [], POLICY, crowded=True) == Course(Skip.CROWDED)


SLOW = [queue(retrying=True), queue(suspended=True), queue(1), queue(101)]


@pytest.mark.parametrize("slow", SLOW)
def test_with_promotion_another_server_is_taken_in_place_of_a_slow_queue(slow: TargetQueue) -> None:
    servers = [TargetQueue(NextHop("first"), retrying=True), TargetQueue(NextHop("second"), 500)]
    assert way(queue(), slow, policy=PROMOTING, promotion=servers) == Course(promoted=NextHop("second"))


def test_with_promotion_an_empty_queue_that_is_ready_is_waited_for() -> None:
    assert way(queue(), policy=PROMOTING, promotion=[TargetQueue(OTHER)]) == Course()


@pytest.mark.parametrize("slow", SLOW)
def test_without_another_server_the_rules_are_those_without_promotion(slow: TargetQueue) -> None:
    down = [TargetQueue(OTHER, suspended=True), TargetQueue(HOP)]  # and the slow one itself is no other
    assert way(slow, policy=PROMOTING, promotion=down) == way(slow)


def test_promotion_is_disabled_by_default() -> None:
    assert way(queue(retrying=True), promotion=[TargetQueue(OTHER)]) == Course(Skip.RETRY)


# Admission


def coming(to: Arrival | None = None) -> Arrival:
    return replace(to or arrival(), id=NEW)


def question(**changes: object) -> LateQuestion:
    return replace(LateQuestion(sent=SENT, queue=lambda hop, count: TargetQueue(hop, count or 0)), **changes)


def admitted(
    on: LedgerAtHand,
    came: Arrival,
    asked: LateQuestion | None = None,
    policy: Policy = POLICY,
    *,
    given: bool = False,
) -> Admitted:
    def accepted(arriving: Arrival) -> Decision[Answer]:
        return redundancy.accept(on, arriving, Content(data=b"x"), (), policy, NOW, last_resort=True)

    decision = admit(on, came, accepted, asked or question(), policy, NOW, given=given)
    result: Admitted = on.apply(decision)
    return result


def known(on: LedgerAtHand) -> list[MessageId]:
    return list(on.unacknowledged(SENT, NOW - REPEATED_WITHIN))


def before(**changes: object) -> LedgerAtHand:
    """A ledger with a message whose 250 was never written."""
    on = ledger_of(A, message(**changes))
    on.apply(Decision(None, (Unacknowledged(M, SENT, NOW),)))
    return on


def settled(*statuses: Status) -> tuple[Recipient, ...]:
    return tuple(
        replace(one, status=status, settled_at=NOW if status is not Status.READY else None)
        for one, status in zip(message().recipients, statuses, strict=True)
    )


def test_what_a_client_sent_is_known_from_the_acceptance_on_until_its_250() -> None:
    on = ledger_of(A)
    assert admitted(on, coming()) == Admitted(Answer.ACCEPTED, NEW, Course(), known=True, hops=(HOP,))
    assert on.copies[NEW].exposed
    assert known(on) == [NEW]
    on.apply(answered(NEW))
    assert known(on) == []


def test_what_is_acknowledged_at_once_is_not_remembered() -> None:
    on = ledger_of(A)
    asked = question(queue=lambda hop, count: TargetQueue(hop, count or 0, retrying=True))
    assert admitted(on, coming(), asked).course == Course(Skip.RETRY)
    assert on.copies[NEW].exposed
    assert known(on) == []


def test_a_message_that_policy_refuses_is_no_message_and_no_repeat() -> None:
    on = before()
    strict = Policy(reject_message_on_shadow_failure=True)
    assert admitted(on, coming(), policy=strict) == Admitted(Answer.NOT_REDUNDANT, NEW)
    assert list(on.copies) == [M]
    assert on.events == []


def counted(asked: LateQuestion) -> list[int | None]:
    """With which numbers the target queue was looked at, for a new message beside one that is queued."""
    on, seen = before(), []

    def queue(hop: NextHop, count: int | None) -> TargetQueue:
        seen.append(count)
        return asked.queue(hop, count)

    admitted(on, coming(), replace(asked, queue=queue, speaking={M}))
    return seen


def test_the_target_queue_is_counted_without_the_message_itself() -> None:
    assert counted(question()) == [None, 1]


@pytest.mark.parametrize(
    "asked",
    [
        question(crowded=True),
        question(queue=lambda hop, count: TargetQueue(hop, count or 0, retrying=True)),
        question(queue=lambda hop, count: TargetQueue(hop, count or 0, suspended=True)),
    ],
    ids=["crowded", "retrying", "suspended"],
)
def test_the_target_queue_is_not_counted_where_the_250_does_not_wait_anyway(asked: LateQuestion) -> None:
    assert set(counted(asked)) <= {None}


def test_promotion_rewrites_the_next_hop_of_every_recipient() -> None:
    on = before()
    asked = question(promotion=lambda _: [OTHER], speaking={M})
    found = admitted(on, coming(), asked, PROMOTING)
    assert (found.course, found.hops) == (Course(promoted=OTHER), (OTHER,))
    assert {one.next_hop for one in on.copies[NEW].recipients} == {OTHER}
    assert on.copies[NEW].digests == arrival().digests


def test_a_message_with_a_list_of_ours_is_not_promoted() -> None:
    """The other server need not know the list."""
    on, came = before(), coming()
    first, *rest = came.recipients
    came = replace(came, recipients=(*rest, replace(first, next_hop=LISTS)))
    slow = question(
        speaking={M},
        promotion=lambda _: [OTHER],
        queue=lambda hop, count: TargetQueue(hop, count or 0, retrying=hop != OTHER),
    )
    assert admitted(on, came, slow, PROMOTING).course == Course(Skip.RETRY)
    assert LISTS in {one.next_hop for one in on.copies[NEW].recipients}


ENDED = [Status.READY, Status.DELIVERED, Status.RELAYED]


@pytest.mark.parametrize("statuses", list(product(ENDED, ENDED)))
def test_a_repeat_makes_no_second_copy_of_what_is_here_or_delivered(statuses: tuple[Status, Status]) -> None:
    queued = Status.READY in statuses
    on = before(recipients=settled(*statuses), stage=Stage.QUEUED if queued else Stage.SAFETY_NET)
    found = admitted(on, coming())
    assert (found.repeats, found.awaits, found.made, found.known) == (M, M, False, True)
    assert found.course == (Course() if queued else None)
    assert list(on.copies) == [M]
    assert [event.event_id for event in on.events] == ["DUPLICATERECEIVE"]
    assert known(on) == [M]


def test_only_recipients_that_failed_are_tried_again() -> None:
    on = before(recipients=settled(Status.FAILED, Status.DELIVERED), stage=Stage.SAFETY_NET)
    found = admitted(on, coming())
    assert (found.repeats, found.awaits, found.made) == (M, NEW, True)
    assert [(one.number, one.address) for one in on.copies[NEW].recipients] == [(1, "x@example.net")]
    assert [event.event_id for event in on.events] == ["DUPLICATERECEIVE", "HAREDIRECTFAIL", "RECEIVE"]
    assert [one.number for one in on.events[0].recipients] == [2]
    # A further repeat, before that 250 was written either, makes nothing at all.
    assert known(on) == [NEW]
    third = MessageId("01900000-0000-7000-8000-000000000003")
    again = admitted(on, replace(arrival(), id=third))
    assert (again.repeats, again.made) == (NEW, False)
    assert third not in on.copies


@pytest.mark.parametrize(
    "other",
    [
        replace(SENT, client="192.0.2.1 other.example"),
        replace(SENT, envelope=of_content(b"other")),
        replace(SENT, content=of_content(b"other")),
    ],
)
def test_another_client_envelope_or_content_is_another_message(other: AsSent) -> None:
    found = admitted(before(), coming(), question(sent=other))
    assert (found.repeats, found.made) == (None, True)


def test_after_a_day_it_is_another_message() -> None:
    on = ledger_of(A, message())
    on.apply(Decision(None, (Unacknowledged(M, SENT, NOW - REPEATED_WITHIN),)))
    assert admitted(on, coming()).repeats is None


def test_what_a_client_sends_beside_a_session_that_waits_is_another_message() -> None:
    assert admitted(before(), coming(), question(speaking={M})).repeats is None


def test_a_good_copy_in_place_of_a_damaged_one_is_no_repeat() -> None:
    assert admitted(before(damage=Damage.CONTENT), coming()).repeats is None


def test_what_this_node_does_not_have_any_more_is_not_repeated() -> None:
    on = before()
    del on.copies[M]
    assert admitted(on, coming()).repeats is None


def test_a_message_of_which_a_member_may_have_a_copy_is_no_repeat() -> None:
    """That copy would have to be taken back first."""
    assert admitted(before(), coming(), given=True).repeats is None


def test_an_answered_message_is_forgotten_alone() -> None:
    assert answered(M) == Decision(None, (Acknowledged(M),))


# How a wait ends


def test_a_wait_goes_on_until_what_a_list_sends_is_safe() -> None:
    until = NOW + timedelta(seconds=30)
    done = Recipient(1, "team@example.net", LISTS, status=Status.RELAYED, report=MessageId("made"))
    assert ended(message(stage=Stage.SAFETY_NET, recipients=(done,)), until) is None
    safe = replace(done, report=None)
    assert ended(message(stage=Stage.SAFETY_NET, recipients=(safe,)), until) is End.SETTLED


def test_a_wait_ends_when_all_are_settled_or_a_member_has_a_copy() -> None:
    until = NOW + timedelta(seconds=30)
    half = message(recipients=settled(Status.RELAYED, Status.READY))
    assert ended(half, until) is None
    assert ended(message(stage=Stage.SAFETY_NET), until) is End.SETTLED
    held = replace(message(), holders=(redundancy.Holder(B, A, None, 1, HolderState.HOLDING),))
    assert ended(held, until) is End.SETTLED


@pytest.mark.parametrize(("seconds", "end"), [(29, None), (30, End.RETRY), (60, End.RETRY)])
def test_a_wait_ends_when_a_recipient_is_put_off_beyond_it(seconds: int, end: End | None) -> None:
    put_off = replace(message().recipients[0], attempts=1, next_attempt=NOW + timedelta(seconds=seconds))
    copy = message().with_recipients([put_off])
    assert ended(copy, NOW + timedelta(seconds=30)) is end


def test_what_a_filter_quarantines_waits_though_it_is_a_part_of_a_repeat() -> None:
    ledger = before(recipients=settled(Status.FAILED, Status.DELIVERED), stage=Stage.SAFETY_NET)
    admitted(ledger, quarantined(coming(), "spam", NOW))
    made = ledger.copies[NEW]
    assert [(one.status, one.suspended) for one in made.recipients] == [(Status.READY, FOREVER)]
    assert made.suspended_until == FOREVER


def test_whom_a_filter_takes_out_this_time_is_not_tried_again() -> None:
    """x failed. The filter took nobody out at first, and takes x out now."""
    on = before(recipients=settled(Status.FAILED, Status.DELIVERED), stage=Stage.SAFETY_NET)
    came = coming()
    without = replace(came, recipients=came.recipients[1:], removed=("x@example.net",))
    found = admitted(on, without)
    assert (found.repeats, found.made) == (M, False)
    assert list(on.copies) == [M]
    on = before(recipients=settled(Status.FAILED, Status.FAILED), stage=Stage.SAFETY_NET)
    admitted(on, without)
    assert [one.address for one in on.copies[NEW].recipients] == ["y@example.net"]


def test_a_wait_ends_when_a_retry_is_beyond_it_though_a_suspension_is_not() -> None:
    until = NOW + timedelta(seconds=30)
    first, second = message().recipients
    first = first.ordered(NOW + timedelta(seconds=5), NOW)
    copy = message(recipients=(replace(first, attempts=1, next_attempt=until), second))
    assert ended(copy, until) is End.RETRY


@pytest.mark.parametrize(("seconds", "end"), [(29, None), (30, End.RETRY)])
def test_a_wait_ends_when_a_recipient_is_suspended_beyond_it(seconds: int, end: End | None) -> None:
    """By a filter, before the wait began, or by an operator."""
    until = NOW + timedelta(seconds=30)
    first, second = message().recipients
    copy = message(recipients=(first.ordered(NOW + timedelta(seconds=seconds), NOW), second))
    assert ended(copy, until) is end
