"""Exchange's retry order, expiry and the delay notice."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from shadowrelay.core.delivery.retry import after, delay_notice_due, expired, expires_at
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Recipient, Status
from shadowrelay.core.policy import Policy

RECEIVED = datetime(2026, 11, 21, 10, tzinfo=UTC)
WAITING = Recipient(1, "a@example.net", NextHop("hop"))


def test_glitch_retries_come_first_then_transient_ones_then_the_long_interval_for_ever() -> None:
    minutes = [after(failures, Policy()) // timedelta(minutes=1) for failures in range(1, 14)]
    assert minutes == [1] * 4 + [5] * 6 + [10] * 3
    assert after(10_000, Policy()) == timedelta(minutes=10)


def test_nothing_is_waited_for_before_the_first_failure() -> None:
    assert after(0, Policy()) == timedelta(0)


def test_a_count_of_zero_skips_its_interval() -> None:
    policy = Policy(queue_glitch_retry_count=0, transient_failure_retry_count=1)
    assert after(1, policy) == timedelta(minutes=5)
    assert after(2, policy) == timedelta(minutes=10)


def test_a_message_expires_at_the_end_of_its_time_and_not_before() -> None:
    end = expires_at(RECEIVED, Policy())
    assert end == RECEIVED + timedelta(days=2)
    assert expired(RECEIVED, end, Policy())
    assert not expired(RECEIVED, end - timedelta(microseconds=1), Policy())


def test_a_clock_set_back_does_not_age_a_message() -> None:
    assert not expired(RECEIVED, RECEIVED - timedelta(days=30), Policy())
    assert not delay_notice_due(WAITING, RECEIVED, RECEIVED - timedelta(days=30), Policy())


def test_the_delay_is_told_once_after_its_timeout() -> None:
    due = RECEIVED + timedelta(hours=4)
    assert delay_notice_due(WAITING, RECEIVED, due, Policy())
    assert not delay_notice_due(WAITING, RECEIVED, due - timedelta(seconds=1), Policy())
    assert not delay_notice_due(replace(WAITING, delay_notified=True), RECEIVED, due, Policy())


@pytest.mark.parametrize("status", [Status.DELIVERED, Status.RELAYED, Status.FAILED])
def test_no_delay_is_told_of_a_settled_recipient(status: Status) -> None:
    late = RECEIVED + timedelta(hours=5)
    assert not delay_notice_due(replace(WAITING, status=status), RECEIVED, late, Policy())


def test_an_expired_message_is_not_called_delayed() -> None:
    assert not delay_notice_due(WAITING, RECEIVED, RECEIVED + timedelta(days=2), Policy())


def test_naive_datetimes_are_refused() -> None:
    naive = datetime(2026, 11, 21)  # noqa: DTZ001
    with pytest.raises(ValueError, match="time zone"):
        expired(naive, naive, Policy())
