"""The last attempts at each next hop are remembered for the operator, and no more of them than that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from shadowrelay.core.delivery.settling import AttemptResult, Ending, Hop
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.steps import Sent
from shadowrelay.delivery.recent import HOPS, PER_HOP, RecentAttempts

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
HOP = Hop(server="mx.example.org:25", inside=False, mailbox=False)


def sent(*endings: Ending) -> Sent:
    results = (
        AttemptResult(number, ending, f"{ending.value} {number}", remote=True)
        for number, ending in enumerate(endings, 1)
    )
    return Sent(tuple(results), HOP)


def test_an_attempt_is_as_bad_as_its_worst_recipient():
    recent = RecentAttempts()
    recent.note(NextHop("world"), MessageId("m1"), sent(Ending.ACCEPTED, Ending.DEFERRED), 0.5, NOW)
    (one,) = recent.of(NextHop("world"))
    assert (one.outcome, one.reply, one.host, one.seconds) == (
        "deferred",
        "deferred 2",
        "mx.example.org:25",
        0.5,
    )


def test_the_last_attempts_come_first_and_the_oldest_are_forgotten():
    recent = RecentAttempts()
    for number in range(PER_HOP + 5):
        recent.note(NextHop("world"), MessageId(f"m{number}"), sent(Ending.ACCEPTED), 0.5, NOW)
    kept = [one.message for one in recent.of(NextHop("world"))]
    assert kept == [f"m{number}" for number in range(PER_HOP + 4, 4, -1)]


def test_next_hops_that_were_not_tried_for_long_are_forgotten():
    recent = RecentAttempts()
    for number in range(HOPS + 1):
        recent.note(NextHop(f"world/{number}"), MessageId("m1"), sent(Ending.ACCEPTED), 0.5, NOW)
        recent.note(NextHop("world/0"), MessageId("m1"), sent(Ending.ACCEPTED), 0.5, NOW)
    assert recent.of(NextHop("world/0"))
    assert not recent.of(NextHop("world/1"))


def test_an_attempt_that_sent_nothing_says_so():
    recent = RecentAttempts()
    recent.note(NextHop("world"), MessageId("m1"), Sent((), HOP), 0.5, NOW)
    recent.note(NextHop("world"), MessageId("m2"), Sent((), HOP, damaged="octet 7 differs"), 0.5, NOW)
    assert [one.outcome for one in recent.of(NextHop("world"))] == ["damaged", "not sent"]


def test_the_rate_of_a_next_hop_is_what_it_took_in_the_last_minute():
    recent, hop = RecentAttempts(), NextHop("world")
    assert (recent.rate(hop, NOW), recent.last(hop)) == (0, None)
    for number in range(90):  # one a second, every third is refused
        ending = Ending.DEFERRED if number % 3 == 0 else Ending.ACCEPTED
        recent.note(hop, MessageId(f"m{number}"), sent(ending), 0.5, NOW + timedelta(seconds=number))
    after = NOW + timedelta(seconds=89)
    assert recent.rate(hop, after) == 40
    assert recent.rate(hop, after + timedelta(seconds=30)) == 20
    assert recent.rate(hop, after + timedelta(minutes=2)) == 0
    last = recent.last(hop)
    assert last is not None
    assert (last.at, last.reply) == (after, "accepted 1")
