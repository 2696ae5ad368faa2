"""Jobs and suspended queues as decisions: merging, what is meant, and time in which mail does not age."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from core.giving_records import hears
from core.ledger_at_hand import NOW, A, B, C, LedgerAtHand, M, message
from hypothesis import given
from hypothesis import strategies as st

from shadowrelay.core import suspending
from shadowrelay.core.decisions import Decision
from shadowrelay.core.filtering import numbers, overruled
from shadowrelay.core.identifiers import MessageId, NextHop, RequestId
from shadowrelay.core.jobs import Filter, Job, JobProgress, Verb
from shadowrelay.core.operating import ActAnswer
from shadowrelay.core.ownership import jobs
from shadowrelay.core.policy import Policy
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.replicating import Merging
from shadowrelay.core.suspending import SuspendedQueues
from shadowrelay.core.suspensions import Suspension
from shadowrelay.members.sharing import NOT_KEPT, received, share
from shadowrelay.wire.records import record_from, record_told
from shadowrelay.wire.xshadow import Malformed

HOP = NextHop("world")
HOUR = timedelta(hours=1)
AHEAD = 1 << 42  # a revision of a node whose clock is in the year 2109
POLICY = Policy()


def a_job(number: int = 1, **changes: Any) -> Job:
    found: dict[str, Any] = {
        "id": RequestId(f"01900000-0000-7000-9000-{number:012x}"),
        "verb": Verb.REMOVE,
        "filter": Filter(queue=HOP),
        "operator": "ann",
        "reason": "why",
        "made_by": A,
        "made_at": NOW + timedelta(seconds=number),
        "changed_by": A,
        "changed_at": NOW,
    }
    return Job(**found | changes)


def a_suspension(**changes: Any) -> Suspension:
    found: dict[str, Any] = {
        "id": RequestId("01900000-0000-7000-9000-000000000001"),
        "next_hop": HOP,
        "suspended": True,
        "operator": "ann",
        "reason": "why",
        "changed_by": A,
        "changed_at": NOW,
    }
    return Suspension(**found | changes)


def test_a_report_of_progress_that_is_overtaken_changes_nothing() -> None:
    ledger, job = LedgerAtHand(A), a_job()
    newer = JobProgress(job=job.id, node=B, did=5, done=True, step=3)
    for one in (newer, replace(newer, did=1, done=False, step=2)):
        hears(ledger, job, (one,), members=(B,))
    assert ledger.job_progress(job.id) == [newer]


def test_a_member_tells_nothing_about_another_one() -> None:
    ledger, job = LedgerAtHand(A), a_job()
    hears(ledger, job, (JobProgress(job=job.id, node=C, step=9),), members=(B, C))
    assert ledger.job_progress(job.id) == []


def test_of_too_many_jobs_those_that_are_over_are_forgotten_first_and_do_not_come_back() -> None:
    ledger = LedgerAtHand(A)
    for number in range(1, jobs.MOST_KEPT + 1):
        hears(ledger, a_job(number), members=())
    assert hears(ledger, a_job(999), members=()) is None
    over = JobProgress(job=a_job(7).id, node=A, done=True, closed=True, step=1)
    ledger.apply(replace_progress(over))
    assert hears(ledger, a_job(999), members=()) == a_job(999)
    assert ledger.job(a_job(7).id) is None
    assert len(ledger.jobs()) == jobs.MOST_KEPT
    assert hears(ledger, a_job(7), members=()) is None


def replace_progress(progress: JobProgress) -> Any:
    return Decision(None, (progress,))


def test_a_job_is_over_when_every_member_that_is_not_retired_closed_it_and_nothing_is_pending() -> None:
    ledger, job = LedgerAtHand(A), a_job()
    ledger.apply(jobs.add(ledger, job, (B,)))
    own = JobProgress(job=job.id, node=A, done=True, closed=True, pending=1, step=1)
    ledger.apply(replace_progress(own))
    assert not jobs.over(ledger, job, ())
    ledger.apply(replace_progress(replace(own, pending=0, step=2)))
    assert jobs.over(ledger, job, ())
    assert not jobs.over(ledger, job, (B,))


@pytest.mark.parametrize("verb", [Verb.SUSPEND, Verb.RESUME])
def test_a_later_order_to_suspend_or_resume_overrules_an_earlier_one(verb: Verb) -> None:
    first, later = a_job(1, verb=Verb.SUSPEND), a_job(2, verb=verb)
    assert jobs.to_overrule(first, [first, later]) == [later]
    assert jobs.to_overrule(later, [first, later]) == []
    assert jobs.to_overrule(a_job(1), [later]) == []


def test_what_is_told_between_members_is_read_back() -> None:
    job = a_job(
        verb=Verb.SUSPEND,
        filter=Filter(
            ids=(M,), queue=HOP, sender="", recipient="*@a.test", domain="a.test", subject="x", error="y",
            suspended=False, older=HOUR, younger=2 * HOUR, larger=1, smaller=2,
        ),
        until=NOW + HOUR,
    )  # fmt: skip
    assert record_from(Job, record_told(job)) == job
    progress = JobProgress(
        job=job.id, node=B, after=M, did=1, late=2, waiting=3, pending=4, done=True, step=5
    )
    assert record_from(JobProgress, record_told(progress)) == progress
    record = a_suspension(until=NOW + HOUR, spans=((NOW - 2 * HOUR, NOW - HOUR),))
    assert record_from(Suspension, record_told(record)) == record


def test_mail_does_not_age_in_the_spans_in_which_its_queue_was_suspended() -> None:
    record = a_suspension(
        suspended=False, spans=((NOW - 5 * HOUR, NOW - 3 * HOUR), (NOW - 2 * HOUR, NOW - HOUR))
    )
    queues = SuspendedQueues({HOP: record})
    domain = NextHop("world/example.net")
    assert queues.not_aged(HOP, NOW - 10 * HOUR, NOW) == 3 * HOUR
    assert queues.not_aged(domain, NOW - 4 * HOUR, NOW) == 2 * HOUR
    assert queues.not_aged(NextHop("worldwide"), NOW - 10 * HOUR, NOW) == timedelta(0)
    assert queues.received_by(HOP, HOUR, NOW) == NOW - HOUR
    assert queues.received_by(HOP, 2 * HOUR, NOW) == NOW - 3 * HOUR
    assert queues.received_by(HOP, 3 * HOUR, NOW) == NOW - 6 * HOUR


spans = st.lists(st.integers(0, 1000), min_size=2, max_size=8, unique=True).map(sorted)


@given(spans, st.integers(0, 1000), st.integers(1, 2000))
def test_what_is_late_by_its_age_is_late_by_the_moment_of_its_reception(
    ends: list[int], received: int, age: int
) -> None:
    pairs = tuple(
        (NOW + timedelta(seconds=begin), NOW + timedelta(seconds=end))
        for begin, end in zip(ends[::2], ends[1::2], strict=False)
    )
    queues, now = (
        SuspendedQueues({HOP: a_suspension(suspended=False, spans=pairs)}),
        NOW + timedelta(seconds=1000),
    )
    at, limit = NOW + timedelta(seconds=received), timedelta(seconds=age)
    aged = now - at - queues.not_aged(HOP, at, now)
    boundary = queues.received_by(HOP, limit, now)
    if aged > limit:
        assert at < boundary
    if at < boundary:
        assert aged >= limit


def test_a_change_keeps_the_spans_of_before_and_the_time_until_now() -> None:
    ledger = LedgerAtHand(A)
    first = ledger.apply(suspending.changed(ledger, a_suspension(), NOW))
    assert first is not None
    later = NOW + HOUR
    resumed = ledger.apply(suspending.changed(ledger, a_suspension(suspended=False, changed_at=later), later))
    assert resumed is not None
    assert (resumed.revision > first.revision, resumed.spans) == (True, ((NOW, later),))
    again = later + HOUR
    until = a_suspension(changed_at=again, until=again + HOUR)
    ledger.apply(suspending.changed(ledger, until, again))
    end = ledger.apply(
        suspending.changed(
            ledger, a_suspension(suspended=False, changed_at=again + 5 * HOUR), again + 5 * HOUR
        )
    )
    assert end is not None
    assert end.spans == ((NOW, later), (again, again + HOUR))


def test_a_queue_is_suspended_or_resumed_over_earlier_changes_that_its_node_lost_with_its_disk() -> None:
    ledger, lost = LedgerAtHand(A), LedgerAtHand(B)
    for suspended in (True, False, True):
        known = ledger.apply(suspending.changed(ledger, a_suspension(suspended=suspended), NOW))
        assert known is not None
    later = NOW + HOUR
    resumed = a_suspension(suspended=False, changed_at=later, changed_by=B)
    after = lost.apply(suspending.changed(lost, resumed, later))
    assert after is not None
    assert hears(lost, known, now=later) == after
    assert hears(ledger, after, now=later) == after
    assert not after.in_force(later)


def test_of_too_many_records_of_queues_one_that_is_not_suspended_makes_room_for_one_that_is() -> None:
    ledger = LedgerAtHand(A)
    for number in range(suspending.MOST_KEPT):
        resumed = a_suspension(
            next_hop=NextHop(f"hop{number}"), suspended=False, changed_at=NOW + number * HOUR, revision=AHEAD
        )
        hears(ledger, resumed, now=NOW)
    assert hears(ledger, a_suspension(suspended=False), now=NOW) is None
    mine = ledger.apply(suspending.changed(ledger, a_suspension(), NOW))
    assert mine is not None
    # A record of it that was forgotten here may have come as far as any other.
    assert mine.revision == AHEAD + 1
    theirs = a_suspension(next_hop=NextHop("theirs"))
    assert hears(ledger, theirs, now=NOW) == theirs
    kept = {one.next_hop for one in ledger.suspensions()}
    assert len(kept) == suspending.MOST_KEPT
    assert {HOP, "theirs", "hop2"} <= kept
    assert not {"hop0", "hop1"} & kept
    for number in range(2, suspending.MOST_KEPT):
        ledger.apply(suspending.changed(ledger, a_suspension(next_hop=NextHop(f"hop{number}")), NOW))
    assert ledger.apply(suspending.changed(ledger, a_suspension(next_hop=NextHop("more")), NOW)) is None
    assert hears(ledger, a_suspension(next_hop=NextHop("more")), now=NOW) is None


def test_a_filter_means_a_message_only_if_all_conditions_hold() -> None:
    copy = message()
    one = copy.unsettled[0]
    made = copy.received_at + HOUR
    assert numbers(Filter(ids=(copy.id,)), copy, made, made) == tuple(r.number for r in copy.unsettled)
    assert numbers(Filter(sender=copy.envelope.sender), copy, copy.received_at, made) == ()
    for wanted, meant in [
        (Filter(recipient=one.address.lower()), True),
        (Filter(recipient=one.address.lower(), larger=copy.envelope.size + 1), False),
        (Filter(queue=one.next_hop, older=HOUR), True),
        (Filter(queue=one.next_hop, older=2 * HOUR), False),
        (Filter(younger=timedelta(minutes=1)), False),
        (Filter(error="no such text"), False),
        (Filter(suspended=True), False),
        (Filter(suspended=False), True),
    ]:
        assert (one.number in numbers(wanted, copy, made, made)) is meant, wanted
    later = replace(a_job(), filter=Filter(suspended=True), made_at=made, verb=Verb.RESUME)
    assert overruled([later], copy) == {r.number for r in copy.unsettled}


def test_a_filter_with_a_condition_of_a_later_version_is_not_taken_without_it() -> None:
    told = record_told(a_job())
    told["filter"] |= {"header": "x"}
    with pytest.raises(Malformed, match="unknown condition header"):
        record_from(Job, told)


def test_a_member_cannot_give_a_job_that_means_all_mail() -> None:
    told = {"job": record_told(a_job(filter=Filter())), "progress": []}
    with pytest.raises(Malformed, match="all mail"):
        received(LedgerAtHand(A), jobs.RULES, B, told, Merging(POLICY, Endings(NOW)))


@pytest.mark.parametrize(
    "changes", [{"reason": "\udc80"}, {"operator": "a\0"}, {"filter": Filter(subject="\ud800")}]
)
def test_text_that_is_no_unicode_is_not_taken(changes: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        record_from(Job, record_told(a_job(**changes)))
    with pytest.raises(Malformed):
        record_from(Suspension, record_told(a_suspension(next_hop=NextHop("\udc80"))))


def test_a_resume_overrules_a_suspension_that_was_dated_by_a_clock_ahead() -> None:
    ledger = LedgerAtHand(A)
    suspended = a_job(1, verb=Verb.SUSPEND, made_at=NOW + HOUR, made_by=B)
    hears(ledger, suspended, members=(B,))
    resumed = ledger.apply(jobs.add(ledger, a_job(2, verb=Verb.RESUME, made_at=NOW), (B,)))
    assert isinstance(resumed, Job)
    assert jobs.to_overrule(suspended, ledger.jobs()) == [resumed]
    assert jobs.to_overrule(resumed, ledger.jobs()) == []


def test_a_message_that_a_job_names_is_meant_whatever_two_clocks_say() -> None:
    copy = message()
    early = copy.received_at - HOUR
    assert numbers(Filter(queue=copy.recipients[0].next_hop), copy, early, NOW) == ()
    assert numbers(Filter(ids=(copy.id,)), copy, early, NOW)


@pytest.mark.parametrize("first", ["ffffffff-ffff", "00000000-0000"])
def test_the_id_of_a_message_that_was_made_of_another_tells_no_time(first: str) -> None:
    """Its first octets are those of a digest: as a time, of the year 10889 or of 1970."""
    copy = replace(message(), id=MessageId(f"{first}-8abc-8000-000000000001"))
    resumed = replace(copy.recipients[0], ordered_at=NOW)
    copy = replace(copy, recipients=(resumed, *copy.recipients[1:]))
    wanted = Filter(queue=resumed.next_hop)
    assert numbers(wanted, copy, copy.received_at + HOUR, NOW)
    assert numbers(wanted, copy, copy.received_at - HOUR, NOW) == ()


def test_a_report_of_progress_counts_over_those_that_a_database_lost_when_it_was_put_back() -> None:
    ledger, job = LedgerAtHand(A), a_job()
    kept = JobProgress(job=job.id, node=B)
    lost = jobs.further(jobs.further(replace(kept, did=1), NOW), NOW)
    again = jobs.further(replace(kept, did=2), NOW + timedelta(seconds=1))
    for one in (lost, again):
        hears(ledger, job, (one,), members=(B,))
    assert ledger.job_progress(job.id) == [again]


def test_a_job_is_not_closed_while_a_holder_has_yet_to_hear_what_another_member_did() -> None:
    """That holder may promote the message, if the member is lost: then the job is still to be done to it."""
    ledger, job = LedgerAtHand(A), a_job()
    told = JobProgress(job=job.id, node=B, did=1, pending=1, done=True, step=1)
    hears(ledger, job, (told,), members=(B,))
    assert not jobs.all_done(ledger, job, (B,))
    hears(ledger, job, (replace(told, pending=0, step=2),), members=(B,))
    assert jobs.all_done(ledger, job, (B,))


def test_a_record_that_a_member_does_not_keep_is_not_shown_as_one_that_it_has() -> None:
    """A member that has no room for it, or has forgotten it, answers nothing."""
    ledger = LedgerAtHand(A)
    ledger.apply(suspending.changed(ledger, a_suspension(), NOW))
    script = share(B, lambda: Merging(POLICY, Endings(NOW)))
    reading: Any = script.send(None)
    script.send(reading.work(ledger))
    with pytest.raises(StopIteration) as ended:
        script.send(ActAnswer({}))
    assert [why for _, why in ended.value.value.refused] == [NOT_KEPT]
