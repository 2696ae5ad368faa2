"""Lengths of time and ages as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shadowrelay.core.time_text import ago, span, spell

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(0), "0 s"),
        (timedelta(seconds=59), "59 s"),
        (timedelta(hours=2, minutes=48, seconds=9), "2 h 48 min"),
        (timedelta(days=1), "1 d"),
    ],
)
def test_a_duration_has_its_two_largest_units(length: timedelta, text: str) -> None:
    assert spell(length) == text


@pytest.mark.parametrize(
    ("seconds", "text", "one"),
    [
        (0, "0 s", "0 s"),
        (5.6, "6 s", "6 s"),
        (65, "1 min", "1 min"),
        (3599.6, "1 h", "1 h"),
        (4_800, "1 h 20 min", "1 h"),
        (7_300, "2 h 1 min", "2 h"),
        (200_000, "2 d 7 h", "2 d"),
        (-3, "0 s", "0 s"),
    ],
)
def test_a_span_has_two_units_from_an_hour_on(seconds: float, text: str, one: str) -> None:
    length = timedelta(seconds=seconds)
    assert (span(length), spell(length, 1)) == (text, one)


def test_an_age_says_whether_it_is_over_or_to_come() -> None:
    assert ago(NOW - timedelta(minutes=3, seconds=9), NOW) == "3 min ago"
    assert ago(NOW + timedelta(seconds=12), NOW) == "in 12 s"
