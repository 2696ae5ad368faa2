"""The heartbeat of a hop counts our own failed attempts, and any answer ends the count."""

from __future__ import annotations

from shadowrelay.core.delivery.hop_watch import HopWatch
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.policy import Policy

POLICY = Policy()
INTERVAL = POLICY.shadow_heartbeat_timeout_interval.total_seconds()
WATCH = HopWatch(ServerName("edge.example.net"))


def test_a_hop_is_asked_at_once_and_then_after_each_silent_interval() -> None:
    assert WATCH.due(0.0, POLICY)
    answered = WATCH.answered(100.0)
    assert not answered.due(100.0 + INTERVAL - 1, POLICY)
    assert answered.due(100.0 + INTERVAL, POLICY)
    failed = answered.failed(200.0, "connect: refused")
    assert not failed.due(200.0 + INTERVAL - 1, POLICY)
    assert failed.due(200.0 + INTERVAL, POLICY)


def test_a_hop_is_given_up_after_twelve_failures_in_a_row() -> None:
    watch = WATCH
    for count in range(1, 13):
        assert not watch.gone(POLICY)
        watch = watch.failed(count * INTERVAL, "connect: refused")
    assert watch.gone(POLICY)
    assert not watch.answered(14 * INTERVAL).gone(POLICY)


def test_an_answer_in_between_begins_the_count_anew() -> None:
    watch = WATCH
    for count in range(1, 12):
        watch = watch.failed(count * INTERVAL, "x")
    watch = watch.answered(12 * INTERVAL).failed(13 * INTERVAL, "x")
    assert watch.failures == 1


def test_an_answer_counts_from_when_the_hop_was_asked() -> None:
    assert WATCH.answered(50.0).answered(40.0).talked_at == 50.0
